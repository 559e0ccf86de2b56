"""Memory that is taken as it is touched."""

from __future__ import annotations

import sys

import pytest

from refimpl.backend.device import lazy_zeros
from refimpl.backend.run_errors import DeviceFailed
from refimpl.network import NetworkError

pytestmark = pytest.mark.vdnnpp


@pytest.mark.parametrize("nbytes", [0, 1, 4097, 1 << 20])
def test_zeros_that_can_be_written_to(nbytes: int) -> None:
    made = lazy_zeros(nbytes)
    assert made.nbytes == nbytes and not made.any()
    made[:] = 7
    assert (made == 7).all()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems give memory as they like")
def test_more_than_the_machine_has_costs_what_is_touched() -> None:
    made = lazy_zeros(1 << 40)
    made[1 << 39] = 7
    assert made[1 << 39] == 7 and made[-1] == 0


def test_too_much_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        lazy_zeros(1 << 62)


def test_an_error_of_a_library_says_what_was_being_done_and_our_own_stays() -> None:
    pytest.importorskip("cuda.bindings")
    from refimpl.backend.cuda import device_errors

    with pytest.raises(DeviceFailed, match="while making streams: out of memory"), device_errors("making streams"):
        raise MemoryError("out of\n  memory")
    with pytest.raises(NetworkError, match="^ours$"), device_errors("making streams"):
        raise NetworkError("ours")

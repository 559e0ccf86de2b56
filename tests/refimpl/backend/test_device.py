"""Memory that is taken as it is touched."""

from __future__ import annotations

import sys

import pytest

from refimpl.backend.device import lazy_zeros

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

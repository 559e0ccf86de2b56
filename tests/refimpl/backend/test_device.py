"""Memory that is taken as it is touched."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from refimpl.backend import device
from refimpl.backend.cpu import CpuDevice
from refimpl.backend.device import Sizes, lazy_zeros
from refimpl.backend.run_errors import DeviceFailed, RunError
from tests.messages import raises_naming

pytestmark = pytest.mark.vdnnpp


@pytest.mark.skipif(sys.platform != "linux", reason="other systems give memory as they like")
def test_more_than_the_machine_has_costs_what_is_touched() -> None:
    made = lazy_zeros(1 << 40)
    made[1 << 39] = 7
    assert made[1 << 39] == 7 and made[-1] == 0


def test_a_device_without_room_for_the_store_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(nbytes: int) -> np.ndarray:
        raise MemoryError

    monkeypatch.setattr(device, "lazy_zeros", full)
    with raises_naming(DeviceFailed, "3 GiB", "store"):
        CpuDevice(Sizes(arena=64, pinned=64, store=3 << 30, streams=1))


def test_a_view_stays_inside_the_arena() -> None:
    made = CpuDevice(Sizes(arena=64, pinned=64, store=0, streams=1))
    whole = made.view(0, (16,), np.float32)
    made.write(4, np.arange(3, dtype=np.float32))
    assert whole[:5].tolist() == [0, 0, 1, 2, 0] and made.view(0, (16,), np.float32) is whole
    assert made.view(64, (0,), np.float32).size == 0
    for address, shape in ((-4, (1,)), (4, (16,)), (64, (1,)), (0, (1 << 40,))):
        with raises_naming(RunError, address, address + 4 * shape[0], 64):
            made.view(address, shape, np.float32)
    made.close()

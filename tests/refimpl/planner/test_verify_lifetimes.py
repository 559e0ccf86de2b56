"""The map of free ranges against an obvious twin: a list with one entry a byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from refimpl.network import Tensor
from refimpl.planner.verify.lifetimes import CheckedBlock, CheckedDevice, FreeBytes, HostMemory, inherited

SIZE = 24
actions = st.lists(st.tuples(st.booleans(), st.integers(-2, SIZE), st.integers(-1, 9), st.integers(0, 2)), max_size=40)


@given(actions)
def test_ranges_are_cut_and_put_back_as_bytes_are(drawn: list[tuple[bool, int, int, int]]) -> None:
    free = FreeBytes(SIZE)
    twin: list[dict[int, int] | None] = [{} for _ in range(SIZE)]  #: a byte's last accesses; None: taken
    taken: list[tuple[int, int]] = []
    for time, (take, start, length, stream) in enumerate(drawn):
        if take:
            end = start + length
            inside = 0 <= start < end <= SIZE and None not in twin[start:end]
            cut = free.take(start, end)
            assert (cut is not None) == inside
            if cut is not None:
                latest: dict[int, int] = {}
                for accesses in twin[start:end]:
                    for at, position in (accesses or {}).items():
                        latest[at] = max(latest.get(at, -1), position)
                assert inherited(cut) == latest
                twin[start:end] = [None] * length
                taken.append((start, end))
        elif taken:
            start, end = taken.pop(length % len(taken))
            block = CheckedBlock(None, start, end, {stream: time})
            free.put(block)
            assert free.at(start) is block
            twin[start:end] = [{stream: time}] * (end - start)


def test_whoever_is_behind_the_reads_is_behind_the_write() -> None:
    block = CheckedBlock(None, 0, 4, {})
    assert block.last_accesses() == {}
    block.written_at, block.write_stream = 7, 1
    assert block.last_accesses() == {1: 7}
    block.read_at[2] = 9
    assert block.last_accesses() == {2: 9}


def test_no_memory_at_all() -> None:
    assert FreeBytes(0).take(0, 4) is None


def test_held_and_peak_bytes() -> None:
    device, tensor = CheckedDevice(1024), Tensor("x", (100,), "map", managed=True)
    first = device.allocate(tensor, 0, 512)
    assert first is not None and device.allocate(tensor, 256, 512) is None
    assert device.overlapped(256, 512) is first and device.overlapped(512, 512) is None
    device.free(first)
    assert device.allocate(tensor, 256, 512) is not None
    assert (device.held, device.peak) == (512, 512)


def test_a_pinned_buffer_is_its_tensors_until_another_goes_over_it() -> None:
    stays, one, two = (Tensor(name, (4,), "map") for name in ("batch", "one", "two"))
    pinned = HostMemory(64, {stays: 0})
    first = pinned.overwrite(one, 16, one.nbytes, position=5)
    assert (
        first is not None
        and pinned.buffer(one, 16) is first
        and pinned.overwrite(one, 16, one.nbytes, position=6) is first
    )
    assert pinned.buffer(two, 16) is None and pinned.buffer(one, 20) is None
    assert pinned.overwrite(two, 24, two.nbytes, position=7) is not None
    assert pinned.buffer(one, 16) is None and pinned.lost == {one: 7}
    assert pinned.overwrite(one, 8, one.nbytes, position=8) is None  # part of it is the batch's
    assert pinned.overwrite(one, 56, one.nbytes, position=9) is None  # part of it is outside
    pinned.forget()
    assert pinned.buffer(two, 24) is None and pinned.buffer(stays, 0) is not None

"""The books of bytes, each against a twin that remembers every single byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.memory import BothEnds
from refimpl.network import Network
from refimpl.planner import Allocate, Program, plan
from refimpl.planner.history import Accesses, History, latest
from refimpl.planner.order import widest_gap
from refimpl.planner.verify.lifetimes import CheckedBlock, FreeBytes, inherited
from tests.refimpl.modules import machine, networks, setup

BYTES = 24
ranges = st.tuples(st.integers(0, BYTES - 1), st.integers(1, BYTES)).map(lambda r: (r[0], min(BYTES, r[0] + r[1])))
accesses = st.tuples(st.integers(-1, 9), st.integers(-1, 9))


class EveryByte:
    """The slow twin: what happened to each free byte."""

    def __init__(self) -> None:
        self.bytes: dict[int, Accesses] = {}

    def put(self, start: int, end: int, found: Accesses) -> None:
        self.bytes.update(dict.fromkeys(range(start, end), found))

    def take(self, start: int, end: int) -> Accesses | None:
        result = None
        for byte in range(start, end):
            found = self.bytes.pop(byte, None)
            if found is not None:
                result = found if result is None else latest(result, found)
        return result


@given(st.lists(st.tuples(ranges, accesses, st.booleans()), max_size=40))
def test_the_history_knows_what_happened_to_every_byte(doings: list[tuple[tuple[int, int], Accesses, bool]]) -> None:
    history, twin = History(), EveryByte()
    for (start, end), found, put in doings:
        if put and not any(byte in twin.bytes for byte in range(start, end)):  # a range is freed once
            history.put(start, end, found)
            twin.put(start, end, found)
        else:
            assert history.take(start, end) == twin.take(start, end)


# -- the stretch that no block touches is cut out, and nothing else changes --------------------------------------------


BLOCKS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)).map(lambda b: (b[0], b[0] + b[1])), max_size=8)


@given(BLOCKS)
def test_the_widest_gap_is_that_of_a_search_byte_by_byte(drawn: list[tuple[int, int]]) -> None:
    start, nbytes = widest_gap(drawn)
    covered = {byte for first, end in drawn for byte in range(first, end)}
    last = max(covered, default=0)
    runs, run = [0], 0
    for byte in range(last):
        run = 0 if byte in covered else run + 1
        runs.append(run)
    assert nbytes == max(runs)
    assert covered.isdisjoint(range(start, start + nbytes))


def shape(program: Program) -> list[tuple[object, ...]]:
    """All but addresses; a plan's workspaces are tensors of its own."""
    return [(i.op, i.step, str(getattr(i, "tensor", None)), getattr(i, "event", None)) for i in program.instructions]


@given(networks())
@settings(max_examples=10)
def test_an_arena_is_no_larger_than_what_is_used(network: Network) -> None:
    """A plan with a thousand times the memory has the same instructions, and an arena not much larger."""
    ends = setup(allocator=BothEnds())
    near, far = (plan(network, ends, machine(), 1 << bits) for bits in (30, 40))
    assert shape(near) == shape(far) and near.arena_bytes == far.arena_bytes < 1 << 28
    assert far.verify().peak_bytes == far.peak_bytes
    used = max(i.address + i.nbytes for i in far.instructions if isinstance(i, Allocate))
    assert used <= far.arena_bytes


# -- the map of free ranges against an obvious twin: a list with one entry a byte --------------------------------------


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

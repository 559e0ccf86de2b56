"""The history of free bytes, against one that remembers every single byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from refimpl.planner.history import Accesses, History, latest

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


def test_a_block_gets_what_happened_to_any_of_its_bytes() -> None:
    history = History()
    history.put(0, 100, (3, -1))
    history.put(100, 200, (1, 7))
    assert history.take(50, 150) == (3, 7)
    assert history.take(0, 50) == (3, -1)
    assert history.take(150, 300) == (1, 7)
    assert history.take(0, 300) is None

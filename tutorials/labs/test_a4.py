"""Lab A4, an allocator against fragmentation: pytest tutorials/labs/test_a4.py --submission mine.py"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from refimpl.memory import Allocator, BestFit, FirstFit
from refimpl.memory.allocation_trace import TraceEvent
from refimpl.names.presets import superneurons_offload, vdnn_all, vdnn_conv, vdnnpp_all
from refimpl.planner import DoesNotFit
from refimpl.slots.planner_only import PoolSearch
from refimpl.text import size
from tutorials.labs.gates import Marked
from tutorials.labs.lab import Case, Refused
from tutorials.labs.traces import Recorded, Replayed, Traces, above

MIB = 1 << 20
VDNN_CONV, VDNN_ALL = vdnn_conv.setup, vdnn_all.setup
FASTEST = vdnn_conv(algorithms="performance")
VDNNPP_ALL = vdnnpp_all.setup
SUPERNEURONS = superneurons_offload(algorithms="memory")

LAB = Traces(
    "a4",
    ("allocator",),
    {
        "VDNN_CONV": VDNN_CONV,
        "VDNN_ALL": VDNN_ALL,
        "FASTEST": FASTEST,
        "VDNNPP_ALL": VDNNPP_ALL,
        "SUPERNEURONS": SUPERNEURONS,
    },
    unit=above,
    trained=Case("", "lenet", 16, 16 * MIB, "VDNN_CONV"),
)

LENET = Case("", "lenet", 48, around="VDNN_CONV")
TINY_VGG = Case("", "tiny-vgg", 16, around="VDNN_CONV")
OVERFEAT = Case("", "overfeat", 48, around="VDNN_ALL")


@pytest.fixture
def mine(modules: Mapping[str, Any]) -> Allocator:
    found: Allocator = modules["allocator"]
    return found


def trace_of(text: str) -> Recorded:
    """A trace by hand: `a4` allocates 4 MiB, `a4!` a block that stays, `-a` frees."""
    events: list[TraceEvent] = []
    numbers: dict[str, int] = {}  # in the order of allocation, as a plan's
    for word in text.split():
        if word.startswith("-"):
            events.append(TraceEvent(numbers[word[1]], 0))
        else:
            number = numbers.setdefault(word[0], len(numbers))
            events.append(TraceEvent(number, int(word[1:].rstrip("!")) * MIB, word.endswith("!"), word[0]))
    return Recorded(events)


def served(trace: Recorded, allocator: Allocator, nbytes: int) -> bool:
    try:
        trace.served(allocator, nbytes)
    except DoesNotFit:
        return False
    except Refused as error:
        pytest.fail(error.message)
    return True


# -- step 1: a rule, and two of them in turn ---------------------------------------------------------------------------


def test_no_two_blocks_overlap(mine: Allocator) -> None:
    numbers, pool, live = random.Random(1), mine.open(64 * MIB), dict[int, int]()
    for _ in range(500):
        if live and numbers.random() < 0.4:
            address = numbers.choice([*live])
            pool.free(address)
            del live[address]
        nbytes = numbers.randint(1, 8 * MIB)
        found = pool.allocate(nbytes)
        if found is None:
            continue
        end = found + pool.rounded(nbytes)
        assert 0 <= found and end <= 64 * MIB, f"{found:,} to {end:,} is outside of a pool of {64 * MIB:,} bytes"
        for other, its in live.items():
            assert end <= other or its <= found, (
                f"a block gets the bytes {found:,} to {end:,}, and a live block has {other:,} to {its:,}; "
                "take a block out of a hole"
            )
        live[found] = end
    assert live, "in an empty pool of 64 MiB no block of 1 byte to 8 MiB fits"


def test_a_freed_block_joins_its_neighbours(mine: Allocator) -> None:
    pool = mine.open(6 * MIB)
    addresses = [pool.allocate(2 * MIB) for _ in range(3)]
    assert None not in addresses, "three blocks of 2 MiB do not fit an empty pool of 6 MiB"
    for address in (addresses[0], addresses[2], addresses[1]):
        pool.free(address or 0)
    assert pool.allocate(6 * MIB) is not None, (
        "all is free again, and a block of the whole pool does not fit; join a hole with the holes beside it, as "
        "FitPool does"
    )


def test_it_is_never_worse_than_best_fit(mine: Allocator) -> None:
    for case, rule in product((LENET, TINY_VGG, OVERFEAT), (BestFit(), FirstFit())):
        trace = LAB.recorded(case)
        nbytes = trace.least(rule).budget
        assert served(trace, mine, nbytes), (
            f"{case}: {rule.name} serves it in {size(nbytes)}, and yours does not; try both rules, one after the other"
        )


# -- step 2: blocks that stay ------------------------------------------------------------------------------------------


STAYING = "p4 s1! -p q5 t1! -q r6"


def test_blocks_that_stay_are_at_one_end(mine: Allocator) -> None:
    assert served(trace_of(STAYING), mine, 8 * MIB), (
        f"{STAYING} (letter, MiB, ! for a block that stays, - frees) does not fit 8 MiB: s splits the bytes that p "
        "frees, and q finds no hole; add a rule that puts blocks that stay at the right end"
    )


# -- step 3: several rules ---------------------------------------------------------------------------------------------


SMALL = "p40 s1 -p q41 t1 -q r42"


def test_the_first_rule_that_fits_is_taken(mine: Allocator) -> None:
    trace, tried = trace_of(SMALL), list[int]()

    def attempt(nbytes: int, lag: int | None = None, allocator: Allocator = mine) -> Replayed:
        found = trace.replayed(allocator, nbytes)
        tried.append(nbytes)
        return found

    assert isinstance(mine, PoolSearch), (
        "it has no search; write, as in the lab's file, class Mine(Allocator, PoolSearch)"
    )
    mine.search(attempt, 256 * MIB, True)
    again = len([nbytes for nbytes in tried if nbytes <= 256 * MIB]) - 1
    assert not again, f"an attempt fitted the budget, and {again} more were made; return the first"
    try:
        mine.search(attempt, trace.ideal, True)
    except DoesNotFit:
        pytest.fail(
            f"{SMALL} (letter, MiB, - frees) does not fit {size(trace.ideal)}: s and t are small, and without the hint "
            "that they stay; add a rule that puts small blocks at the right end"
        )


# -- step 4: all lives are known ---------------------------------------------------------------------------------------


def test_two_blocks_alive_together_do_not_touch(mine: Allocator) -> None:
    for case in (TINY_VGG, OVERFEAT):
        trace = LAB.recorded(case)
        assert served(trace, mine, int(1.02 * trace.ideal)), (
            f"{case}, 2 % above the ideal, does not fit; an attempt in a large pool shows all lives: place the largest "
            "block first, each at the lowest address that no block alive with it has"
        )


FIVE = "a2 b3 c3 d1 -b e4"


def test_a_trace_of_five_blocks_needs_the_ideal(mine: Allocator) -> None:
    trace = trace_of(FIVE)
    assert served(trace, mine, trace.ideal), (
        f"{FIVE} (letter, MiB, - frees) has {size(trace.ideal)} alive at most, and does not fit a pool of that size; "
        "place the largest block first"
    )


# -- step 5: other orders ----------------------------------------------------------------------------------------------


def test_the_ideal_of_tiny_inception_within_3_percent(mine: Allocator) -> None:
    for batch in (32, 80):
        case = Case("", "tiny-inception", batch, around="VDNN_ALL")
        trace = LAB.recorded(case)
        assert served(trace, mine, int(1.03 * trace.ideal)), (
            f"{case}, 3 % above the ideal, does not fit; place the block with the highest end first and all again, "
            "some rounds, and begin with several orders"
        )


class TestMark(Marked):
    lab = LAB

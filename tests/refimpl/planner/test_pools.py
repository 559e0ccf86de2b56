"""The largest smaller pool: more budget never fails where less fits, and the error is the budget's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from refimpl.machine import MACHINES
from refimpl.memory.base import GRANULARITY
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import Context, DoesNotFit, Program, Setup, TooSlow, plan
from refimpl.planner.pools import HALVINGS, MIB, STEPS, TRIED, largest_smaller
from refimpl.slots.errors import PoolDoesNotFit
from tests.matrix import diagonal

TITAN_X = MACHINES["titan-x"]
GIB = 1 << 30
STEP = build("lenet").steps[0]


def misfit(hole: int = 0, free: int = 10, early: int = 0) -> DoesNotFit:
    return DoesNotFit(STEP, "x", 10, free, hole, 100, {}, early=early)


def pools(fit: Callable[[int], bool], tried: list[int]) -> Callable[[int], int]:
    """An attempt that fits where `fit` says so, and otherwise fails for its holes."""

    def attempt(nbytes: int) -> int:
        tried.append(nbytes)
        if not fit(nbytes):
            raise misfit()
        return nbytes

    return attempt


def test_an_error_says_whether_it_failed_for_its_holes() -> None:
    assert misfit().for_holes and not misfit(free=9).for_holes
    assert misfit(free=4, early=6).for_holes  # a smaller pool might not have prefetched
    assert not PoolDoesNotFit(STEP, "the pool", 200, 100, 100, 100, {}).for_holes


@pytest.mark.parametrize("budget", [1 << 20, 6_900 << 10, 12 * GIB])
def test_it_is_found_in_few_tries_and_is_near_the_largest(budget: int) -> None:
    unit = MIB if budget >= STEPS * MIB else GRANULARITY
    for share in (0.999, 0.98, 0.9, 0.82):
        tried: list[int] = []
        found = largest_smaller(pools((share * budget).__ge__, tried), budget)
        assert found and found[0] == found[1] and found[0] % unit == 0
        assert share * budget * (1 - 1 / STEPS) < found[0] <= share * budget < budget
        assert len(tried) <= len(TRIED) + HALVINGS and len(tried) == len({*tried})
    tried = []
    assert largest_smaller(pools(lambda nbytes: False, tried), budget) is None
    assert len(tried) == len(TRIED) and tried == sorted(tried, reverse=True)


def test_it_ends_where_bytes_are_missing_and_not_a_hole() -> None:
    tried: list[int] = []

    def attempt(nbytes: int) -> int:
        tried.append(nbytes)
        raise misfit(free=10 if len(tried) < 3 else 9)

    assert largest_smaller(attempt, GIB) is None and len(tried) == 3


@pytest.mark.parametrize(
    ("name", "policy", "gib"),
    [
        ("vgg16", "superneurons", 12),
        ("vgg16", "vdnn-conv algorithms=vdnn-greedy", 12),
        ("vgg16", "vdnn-conv", 12),
    ],
)
def test_a_smaller_pool_fits_where_one_of_the_budget_does_not(name: str, policy: str, gib: int) -> None:
    network, wanted, budget = build(name, 256), setup(policy), gib * GIB
    with pytest.raises(DoesNotFit) as error:
        plan(network, wanted, TITAN_X, budget, exact=True)
    assert error.value.for_holes
    program = plan(network, wanted, TITAN_X, budget)
    program.verify()
    assert program.peak_bytes <= program.arena_bytes <= program.pool_bytes < program.budget == budget
    again = plan(network, wanted, TITAN_X, program.pool_bytes, exact=True)  # the pool, given back as a budget
    assert again.pool_bytes == again.budget == program.pool_bytes
    assert again.planned_seconds == program.planned_seconds and again.peak_bytes == program.peak_bytes
    with pytest.raises(TooSlow):
        plan(network, wanted, TITAN_X, budget, program.planned_seconds / 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "name"),
    diagonal(
        ["baseline", "vdnn-conv", "vdnn-dyn", "superneurons", "superneurons-recompute"],
        ["lenet", "tiny-vgg", "tiny-resnet", "tiny-inception"],
    ),
)
def test_more_budget_hardly_ever_fails_where_less_fits(name: str, policy: str) -> None:
    """Between two tries a pool may fit that is missed; of the budgets above one that fits, one in fifty fails."""
    network, wanted = build(name, 64), setup(policy)
    most = plan(network, wanted, TITAN_X, 1 << 40).arena_bytes
    failed = fits = False
    misses: list[int] = []
    for share in range(40, 110):
        budget = most * share // 100
        failed = outcome(lambda nbytes: plan(network, wanted, TITAN_X, nbytes), budget)
        if failed and fits:
            misses.append(share)
        fits = fits or not failed
    assert fits and len(misses) <= 1, misses


def outcome(attempt: Callable[[int], object], budget: int) -> bool:
    """Whether it does not fit."""
    try:
        attempt(budget)
    except DoesNotFit:
        return True
    return False


def test_a_plan_that_fits_at_once_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from refimpl.planner import planning

    count: list[int] = []
    monkeypatch.setattr(planning, "largest_smaller", lambda *given: count.append(1))
    network = build("lenet")
    assert plan(network, setup("superneurons"), TITAN_X, GIB).pool_bytes == GIB
    with pytest.raises(DoesNotFit):  # bytes are missing, and not a hole
        plan(network, setup("baseline"), TITAN_X, 1 << 20)
    assert not count


def test_a_search_adopts_what_fits_all_of_the_budget_before_it_tries_smaller_pools() -> None:
    """VGG-16(256) on 11.87 GiB: vDNN's conv (greedy) would fit a smaller pool, and is slower than all (greedy)."""
    network, budget = build("vgg16", 256), int(11.87 * GIB)
    program = plan(network, setup("vdnn-dyn"), TITAN_X, budget)
    assert program.adopted and program.adopted.setup == "all (greedy)" and program.pool_bytes == budget
    conv = plan(network, setup("vdnn-conv algorithms=vdnn-greedy"), TITAN_X, budget)
    assert conv.pool_bytes < budget and conv.planned_seconds > 1.1 * program.planned_seconds


def test_a_search_tries_smaller_pools_where_no_candidate_fits_all_of_the_budget() -> None:
    network, wanted = build("lenet"), setup("vdnn-dyn")
    asked: list[tuple[str, bool | None]] = []

    def attempt(one: Setup, smaller: bool | None = None) -> Program:
        name = one.name.partition(": ")[2]
        asked.append((name, smaller))
        if name == "all (m)" or (smaller and name == "all (p)"):
            return plan(network, one, TITAN_X, GIB)
        raise misfit()

    program = wanted.search(attempt, Context(network, TITAN_X, GIB))  # type: ignore[attr-defined]
    whole = ["none (p)", "conv (p)", "all (p)", "conv (greedy)", "all (greedy)"]
    again = [(name, True) for name in whole[:3]]
    assert asked == [("all (m)", None), *((name, False) for name in whole), *again]
    assert program.adopted and program.adopted.setup == "all (p)"
    assert len({one.setup for one in program.tried}) == len(program.tried) == 6

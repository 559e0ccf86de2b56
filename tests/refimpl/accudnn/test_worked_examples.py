"""The worked examples: what is offloaded, when it is prefetched and what that costs, on small chains."""

from __future__ import annotations

import pytest

from refimpl.accudnn import Model, choose, late, simulate
from tests.refimpl.accudnn.chains import FIVE, FOUR

pytestmark = pytest.mark.accudnn


def test_copies_in_begin_as_late_as_all_deadlines_allow() -> None:
    assert late([10, 12, 13], [2, 3, 4]) == [4, 6, 9]


def test_what_the_chains_hold_and_when_their_steps_start() -> None:
    assert FIVE.base[1:].tolist() == [2, 3, 7, 8, 8, 9, 12, 8, 5, 2]
    assert FIVE.starts.tolist() == [0, 0, 1, 3, 6, 7, 8, 9, 11, 14, 16, 17]
    assert [one.name for one in FIVE.candidates] == ["y1", "y2", "y3"]
    assert FOUR.base[1:].tolist() == [2, 6, 7, 7, 8, 11, 8, 2]


@pytest.mark.parametrize(
    ("model", "budget", "coming", "seconds"),
    [
        (FIVE, 12, {}, 17),
        (FIVE, 11, {"y1": 8}, 17),
        (FIVE, 10, {"y1": 8}, 17),
        (FIVE, 9, {"y2": 8, "y1": 8}, 18),
        (FOUR, 11, {}, 17),
        (FOUR, 10, {"y1": 7}, 19),  # by time in step 6, but that one has no room
        (FOUR, 9, {"y1": 7}, 19),
    ],
)
def test_the_choice_within_a_budget(model: Model, budget: int, coming: dict[str, int], seconds: float) -> None:
    decision = choose(model, budget)
    assert decision is not None
    assert [(one.name, step) for one, step in decision.coming.items()] == [*coming.items()]
    assert decision.seconds == seconds


@pytest.mark.parametrize("model", [FIVE, FOUR])
def test_less_cannot_be_trained_in(model: Model) -> None:
    assert model.least() == 9
    assert choose(model, 9) and choose(model, 8) is None


def test_a_map_that_is_needed_at_once_is_fetched_before_one_that_is_not() -> None:
    """The copies are one queue: y1 first would let step 8 wait for both."""
    y1, y2, _ = FIVE.candidates
    right, wrong = (simulate(FIVE, coming, 9) for coming in ({y2: 8, y1: 8}, {y1: 8, y2: 8}))
    assert right and right.seconds == 18 and right.waits == {y2: 1}
    assert wrong and wrong.seconds == 20


def test_a_map_comes_back_when_it_has_left() -> None:
    """The copy in is issued at 7; the copy out takes from 6 to 10, so step 7, which begins at 9, waits until 14."""
    y3 = FIVE.candidates[2]
    run = simulate(FIVE, {y3: 5}, 100)
    assert run and run.waits == {y3: 5} and run.starts[7] == 14


def test_why_a_map_leaves() -> None:
    decision = choose(FIVE, 9)
    assert decision is not None
    assert {one.name: reason for one, reason in decision.reasons.items()} == {
        "y1": "idle 12 s, its copies hide",
        "y2": "idle 6 s, 1 s of its copies do not",
    }

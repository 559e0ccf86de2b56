"""A setup refuses what makes no sense when it is built, and swaps one module at a time."""

from __future__ import annotations

import dataclasses

import pytest

import refimpl
from refimpl.memory import ALLOCATORS
from refimpl.planner import DoesNotFit, SetupError
from refimpl.slots.baseline import NetworkWide
from tests.messages import raises_naming
from tests.refimpl.modules import DropSome, LastUsed, OffloadSome, PrefetchAhead, setup


@pytest.mark.parametrize("module", [{"offload": OffloadSome()}, {"recompute": DropSome()}, {"cache": LastUsed()}])
def test_what_must_be_released_needs_a_liveness_that_releases(module: dict[str, object]) -> None:
    with raises_naming(SetupError, "liveness=layer-wise"):
        setup(liveness=NetworkWide(), **module)


def test_a_prefetch_needs_an_offload() -> None:
    with raises_naming(SetupError, "prefetch=ahead", "prefetch=none"):
        setup(prefetch=PrefetchAhead())
    setup(prefetch=PrefetchAhead(), offload=OffloadSome())


def test_replace_swaps_one_module_and_checks_again() -> None:
    first = setup(offload=OffloadSome())
    second = first.replace(allocator=ALLOCATORS["first-fit"], name="other")
    assert second.allocator.name == "first-fit" and second.offload is first.offload and second.name == "other"
    with raises_naming(SetupError, "alocator"):
        first.replace(alocator=ALLOCATORS["first-fit"])
    with raises_naming(SetupError, "offload=some"):
        first.replace(liveness=NetworkWide())


def test_a_changed_setup_says_what_differs() -> None:
    first = setup(offload=OffloadSome())
    changed = first.replace(join=True, copy_streams="shared").replace(allocator=ALLOCATORS["first-fit"])
    assert changed.name == "test, allocator=first-fit, copy-streams=shared, join=yes" and changed.preset == "test"
    assert changed.replace(allocator=first.allocator, join=False).name == "test, copy-streams=shared"
    assert changed.replace(name="other").name == "other"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"offload": OffloadSome}, "offload=OffloadSome OffloadSome()"),
        ({"offload": LastUsed()}, "used cache offload"),
        ({"allocator": "first-fit"}, "allocator='first-fit' .replace"),
        ({"cache": 7}, "cache=7 refimpl.slots.Cache"),
        ({"offload": type("Nameless", (OffloadSome,), {"name": None})()}, "Nameless() no name ClassVar"),
        ({"copy_streams": "both"}, "copy_streams both shared separate"),
    ],
)
def test_a_module_in_the_wrong_place_is_refused(wrong: dict[str, object], says: str) -> None:
    with raises_naming(SetupError, *says.split()):
        setup(**wrong)


def test_the_adopted_trial_has_the_programs_setup_and_its_seconds() -> None:
    program = refimpl.plan(refimpl.networks.build("tiny-vgg", 16), "vdnn-dyn", "titan-x")
    adopted = program.adopted
    assert adopted is not None and adopted.seconds == program.planned_seconds
    as_fast = dataclasses.replace(adopted, setup="another")
    slower = dataclasses.replace(adopted, seconds=2 * program.planned_seconds)
    assert dataclasses.replace(program, tried=(as_fast, slower, adopted)).adopted is adopted
    assert dataclasses.replace(program, tried=(as_fast, slower)).adopted is None


# -- sizes for people, and the hint that is looked for once, when it is read -------------------------------------------


def test_a_hint_is_looked_for_once_and_only_when_it_is_read() -> None:
    looked: list[int] = []

    def hint() -> str:
        looked.append(1)
        return "take less"

    error = DoesNotFit(None, "conv1", 2, 1, 1, 1, {})
    error.hint = hint
    assert not looked
    assert str(error).endswith(". take less") and str(error).endswith(". take less") and len(looked) == 1

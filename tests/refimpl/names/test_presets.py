"""Presets and modules by name: setups from words, and the nearest word for a wrong one."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings

from refimpl.combined import COMBINED
from refimpl.combined.fixed import FixedAddresses
from refimpl.combined.papers import papers
from refimpl.combined.smaller_pool import SmallerPool
from refimpl.machine import TITAN_X
from refimpl.memory import ALLOCATORS
from refimpl.names.modules import MODULES, assignments, module
from refimpl.names.networks import lenet
from refimpl.names.presets import PAPERS, PRESETS, baseline, combinations, setup, superneurons
from refimpl.network import Network
from refimpl.planner import SLOTS, Copy, Free, Launch, SetupError, plan
from refimpl.superneurons import SPEED_CENTRIC, Ahead
from refimpl.vdnnpp import FoundPool
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import CONVENTIONS, SMALLEST, networks, smallest
from tests.refimpl.modules import every_preset_fits_or_says_so


def test_the_baseline_moves_nothing_keeps_every_map_and_takes_the_fastest_convolutions() -> None:
    network = lenet(batch=4)
    program = plan(network, baseline(), TITAN_X, 1 << 30)
    copied = {one.tensor.kind for one in program.instructions if isinstance(one, Copy)}
    assert copied == {"input", "labels", "loss"}
    last = network.steps[-1].number
    freed = {one.tensor.kind for one in program.instructions if isinstance(one, Free) and one.released < last}
    assert freed == {"gradient map", "workspace"}
    launched = [one for one in program.instructions if isinstance(one, Launch)]
    assert not any(one.rebuild for one in launched)
    choices = [(one.choice, TITAN_X.choices(one.call)) for one in launched if one.choice is not None]
    assert all(choice == fastest for choice, (fastest, *_) in choices) and len(choices) == 2 + 2 + 1


def test_replace_takes_names_too() -> None:
    changed = superneurons().replace(recompute="speed-centric", prefetch="superneurons-ahead:5", join="yes")
    assert changed == superneurons(recompute=SPEED_CENTRIC, prefetch=Ahead(5), join=True)
    assert changed.name == "superneurons, recompute=speed-centric, prefetch=superneurons-ahead:5, join=yes"
    with pytest.raises(SetupError, match="did you mean speed-centric"):
        superneurons().replace(name="x", recompute="speed-centrc")


@pytest.mark.parametrize("kinds", SMALLEST, ids="-".join)
def test_every_preset_plans_the_smallest_networks(kinds: tuple[str, ...]) -> None:
    """A softmax alone, one layer, no convolution, no map of more than 128 bytes."""
    network = smallest(kinds, CONVENTIONS[[*SMALLEST].index(kinds) % 3])
    roomy = plan(network, baseline(), TITAN_X, 1 << 30)
    for name, preset in PRESETS.items():
        made = dataclasses.replace(COMBINED, effort=5) if name == "combined" else preset()
        program = plan(network, made, TITAN_X, 4 * roomy.peak_bytes)
        program.verify()
        assert name != "combined" or program.planned_seconds <= roomy.planned_seconds


@pytest.mark.slow
@given(networks(layers=4, inputs=3))
@settings(max_examples=1)
def test_every_preset_uploads_several_inputs_or_says_that_they_do_not_fit(network: Network) -> None:
    every_preset_fits_or_says_so(network, 4)


@pytest.mark.campaign
@given(networks(inputs=3))
@settings(max_examples=3)
def test_every_preset_uploads_several_inputs_of_many_networks(network: Network) -> None:
    every_preset_fits_or_says_so(network)


def test_every_module_stands_in_its_slot_under_its_own_name() -> None:
    assert list(MODULES) == list(SLOTS)
    searched = {"fixed-addresses": FixedAddresses(), "smaller-pool": SmallerPool(), "vdnnpp-pool": FoundPool()}
    assert MODULES["allocator"] == ALLOCATORS | searched
    for slot, found in MODULES.items():
        for name, one in found.items():
            assert one.name == name and one.summary and module(slot, name) is one


#: What offers a feature that a module needs.
OFFERING = {
    "release": {"liveness": "layer-wise"},
    "offload": {"liveness": "layer-wise", "offload": "vdnn-all"},
}


@pytest.mark.parametrize(("slot", "name"), [(slot, name) for slot in MODULES for name in MODULES[slot]])
def test_every_module_can_be_set_by_name(slot: str, name: str) -> None:
    needed = [OFFERING[feature] for feature in getattr(module(slot, name), "needs", ())]
    made = setup("baseline", {other: theirs for some in needed for other, theirs in some.items()} | {slot: name})
    assert made.slots[slot] == name
    plan(lenet(batch=4), made, TITAN_X, 1 << 30).verify()


@pytest.mark.parametrize(
    ("preset", "named", "says"),
    [
        ("baslin", {}, "baslin baseline"),
        ("baseline", {"algorithm": "memory"}, "algorithm algorithms"),
        ("baseline", {"algorithms": "memry"}, "algorithms memry memory"),
        ("baseline", {"join": "perhaps"}, "join perhaps yes no"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(preset: str, named: dict[str, str], says: str) -> None:
    with raises_naming(SetupError, *says.split()):
        setup(preset, named)


def test_the_effort_of_a_search_is_a_word_of_its_setup() -> None:
    assert setup("combined effort=30") == dataclasses.replace(COMBINED, effort=30)
    assert setup("combined", {"effort": "30"}) == setup("combined, effort=30") != COMBINED
    with raises_naming(SetupError, "effort=30", "combined", "vdnn-dyn"):
        setup("vdnn-dyn effort=30")
    for text in ("0", "-1", "much", "1.5"):
        with raises_naming(SetupError, f"effort={text}", "effort=200"):
            setup(f"combined effort={text}")


def test_a_papers_setups_are_its_presets_and_then_the_combinations_of_its_modules() -> None:
    for paper, names in PAPERS.items():
        made = combinations(paper)
        assert made[: len(names)] == tuple(PRESETS[name].setup for name in names)
        assert made[len(names) :] == papers().get(paper, ())
    assert sorted(name for names in PAPERS.values() for name in names) == sorted(PRESETS)
    assert len(combinations("vDNN")) == 18 and len(combinations("vDNN++")) == 59


def test_assignments() -> None:
    assert assignments(["liveness=layer-wise", " join = yes "]) == {"liveness": "layer-wise", "join": "yes"}
    for texts in (["liveness"], ["=x"], ["liveness="], ["join=yes", "join=no"]):
        with pytest.raises(SetupError):
            assignments(texts)

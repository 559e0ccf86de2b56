"""The stages: what each is made of."""

from __future__ import annotations

import pytest

from refimpl.names import presets
from refimpl.planner import SLOTS, Setup
from refimpl.superneurons import DynamicWorkspace
from refimpl.superneurons import presets as stages

pytestmark = pytest.mark.superneurons

STAGES = (stages.liveness, stages.offload, stages.recompute, stages.everything)


def differing(one: Setup, other: Setup) -> set[str]:
    return {slot for slot in SLOTS if one.module(slot) != other.module(slot)}


def test_each_stage_changes_only_its_own_slots() -> None:
    base = stages.liveness()
    assert differing(base, stages.offload()) == {"offload", "prefetch"}
    assert differing(base, stages.recompute()) == {"recompute"}
    assert differing(base, stages.everything()) == {"recompute", "prefetch", "cache", "algorithms"}
    for stage in STAGES:
        assert stage().copy_streams == "separate" and not stage().join  # the paper's streams never join


@pytest.mark.parametrize("stage", STAGES)
def test_a_preset_is_its_stage(stage) -> None:  # type: ignore[no-untyped-def]
    """The stage offload takes the least workspaces, so that none enters the memory curve; its preset those of §3.5."""
    setup = stage(algorithms=DynamicWorkspace()) if stage is stages.offload else stage()
    assert presets.setup(setup.name) == setup
    assert setup.name == ("superneurons" if stage is stages.everything else f"superneurons-{stage.__name__}")

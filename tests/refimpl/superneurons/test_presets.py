"""The stages: what each is made of, and that each does what it adds."""

from __future__ import annotations

import pytest

from refimpl.machine import MACHINES
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.planner import SLOTS, Setup, SetupError, plan
from refimpl.slots.algorithms import PerformanceOptimal
from refimpl.slots.baseline import NetworkWide
from refimpl.superneurons import COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC, DynamicWorkspace
from refimpl.superneurons import presets as stages
from tests.messages import raises_naming

pytestmark = pytest.mark.superneurons

K40C = MACHINES["k40c"]
PLENTY = 1 << 40  #: bytes
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


def test_options_reach_their_slots() -> None:
    for stage in STAGES:
        assert stage(algorithms=PerformanceOptimal()).algorithms == PerformanceOptimal()
    for stage in (stages.recompute, stages.everything):
        for how in (SPEED_CENTRIC, MEMORY_CENTRIC):
            assert stage(how).recompute == how and differing(stage(how), stage()) == {"recompute"}
        assert stage().recompute == COST_AWARE
    assert stages.everything().algorithms == DynamicWorkspace()
    far = stages.offload(distance=7)
    assert "distance=7" in repr(far.offload) and "distance=7" in repr(far.prefetch)


def test_without_a_liveness_that_lets_go_a_stage_is_refused() -> None:
    for stage in STAGES[1:]:
        with raises_naming(SetupError, "liveness=layer-wise"):
            stage().replace(liveness=NetworkWide())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50", "inceptionv4"])
def test_each_technique_lowers_the_memory_curve(name: str) -> None:
    """Network-wide, then liveness, then either of the other two: the order of the paper's curves."""
    network = build(f"{name}:superneurons", 16)
    total = sum(tensor.nbytes for tensor in network.managed)
    alive, moved, rebuilt = (plan(network, stage(), K40C, PLENTY) for stage in STAGES[:3])
    assert total > alive.peak.live_bytes > max(moved.peak.live_bytes, rebuilt.peak.live_bytes)
    assert moved.counts.offloaded_bytes > 0 == moved.counts.recomputed_layers
    assert rebuilt.counts.recomputed_layers > 0 == rebuilt.counts.offloaded_bytes
    everything = plan(network, stages.everything(MEMORY_CENTRIC), K40C, PLENTY)
    assert everything.counts.offloaded_bytes == everything.counts.evicted_bytes == 0  # it fits

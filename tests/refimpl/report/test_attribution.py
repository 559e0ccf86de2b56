"""Where the seconds go: the parts sum to the iteration, and equal programs are told apart from different ones."""

from __future__ import annotations

import pytest

import refimpl
from refimpl.planner import CopyOut, Program
from refimpl.report.attribution import Attribution, attributions


def planned(setup: str, budget: str = "7MiB") -> Program:
    return refimpl.plan("lenet", setup, "titan-x", budget)


@pytest.mark.parametrize("setup", ["vdnn-all", "superneurons"])
def test_the_parts_sum_to_the_iteration(setup: str) -> None:
    program = planned(setup)
    one, timeline = Attribution.of(program), program.simulate()
    assert one.kernels + one.waits + one.slower + one.rebuilds == pytest.approx(timeline.seconds)
    assert one.waits == pytest.approx(timeline.stall)
    assert one.kernels == pytest.approx(Attribution.of(planned("vdnn-all, algorithms=performance")).kernels)


def test_each_cause_is_in_the_sentence_that_has_it() -> None:
    slow = Attribution.of(planned("liveness=layer-wise algorithms=memory"))
    assert "to slower algorithms" in slow.sentence("one") and "rebuilds" not in slow.sentence("one")
    rebuilt = planned("superneurons-recompute")
    assert rebuilt.counts.recomputed_layers and "to rebuilds" in Attribution.of(rebuilt).sentence("one")
    idle = Attribution.of(planned("vdnn-dyn", "9MiB"))
    assert idle.sentence("vDNN").endswith("it adopted none (p): nothing is offloaded.")


def test_evictions_count_with_the_bytes_moved() -> None:
    program = refimpl.plan("tiny-resnet", "superneurons", "titan-x", 0.3)
    assert program.counts.evicted_bytes
    said = Attribution.of(program).sentence("SuperNeurons")
    assert "evictions moved" in said
    copies = [it for it in program.instructions if isinstance(it, CopyOut) and it.tensor not in program.pinned]
    assert program.counts.evicted_bytes <= sum(it.nbytes for it in copies)


def test_the_same_program_is_named_and_another_one_is_not() -> None:
    setups = "vdnn-dyn", "vdnn-dyn", "vdnn-all"
    same, again, other = (Attribution.of(planned(setup)) for setup in setups)
    said = attributions([("vDNN", same), ("none fits", None), ("layer-wise", again), ("all", other)])
    assert "layer-wise runs the same program as vDNN." in said and "all loses" in said and "`view --against`" in said
    assert "none fits" not in said and "--against" not in attributions([("vDNN", same), ("layer-wise", again)])
    assert attributions([("none", None)]) == ""

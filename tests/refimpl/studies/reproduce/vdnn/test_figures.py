"""`refimpl reproduce vdnn`: the conventions, by hand.  ../test_rows.py has what is met."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.planner import plan
from refimpl.studies.reproduce.vdnn import figures
from refimpl.vdnn import ALL, static

pytestmark = pytest.mark.vdnn


def test_memory_is_averaged_over_the_feature_extraction_alone() -> None:
    """By hand, on a small network without workspace."""
    program = plan(build("tiny-vgg", 8), static("test", ALL), figures.TITAN_X, 1 << 40)
    layers = [layer.name for layer in program.network.layers]
    classifier = set(layers[layers.index("fc4") :])
    filters = sum(2 * p.weight.nbytes for layer, _, p in program.network.parameters() if layer.kind == "conv")
    assert figures.step_memory(program) == {
        row.step.number: row.live_bytes + row.workspace_bytes + filters
        for row in program.rows
        if row.step.layer.name not in classifier
    }


def test_a_row_is_beside_everything_allocated_once_and_beside_the_oracle() -> None:
    """Performance lost is a share of performance, and not of time."""
    network, policy = build("alexnet", 128), figures.POLICIES["all (m)"]
    oracle = figures.Oracle(network)
    row = oracle.under("all (m)", policy)
    memory = figures.step_memory(plan(network, policy, figures.TITAN_X, 12 << 30))
    assert row.average_saving == pytest.approx(1 - mean(memory.values()) / row.network_wide_bytes)
    assert row.peak_saving == pytest.approx(1 - max(memory.values()) / row.network_wide_bytes)
    assert row.network_wide_bytes / figures.GB == pytest.approx(1.183, abs=0.001)
    assert row.performance_lost == pytest.approx(1 - row.oracle_seconds / row.seconds) and row.failure == ""
    held = oracle.under("dyn", figures.POLICIES["dyn"])
    assert held.adopted == "none (p)" and held.performance == pytest.approx(1, abs=1e-12)
    assert figures.Oracle(network, MACHINES["k40c"]).timeline.seconds > 1.3 * oracle.timeline.seconds


def test_a_policy_that_does_not_fit_has_no_performance_and_is_counted_on_a_larger_gpu() -> None:
    small = replace(MACHINES["titan-x"], memory_bytes=1 << 29)
    row = figures.Oracle(build("alexnet", 128), small).under("conv (p)", figures.POLICIES["conv (p)"])
    assert "missing" in row.failure and row.performance is row.performance_lost is None
    assert 0.1 < row.peak_saving < row.average_saving < 1


def test_x_waits_from_the_end_of_its_forward_to_the_start_of_its_backward() -> None:
    network = build("tiny-vgg", 64)
    found = figures.waits(network)
    assert [row.layer for row in found] == [layer.name for layer in network.layers if layer.kind in ("conv", "pool")]
    waits = [row.wait_seconds for row in found]
    assert waits == sorted(waits, reverse=True), "on a chain the earlier layer's X waits longer"
    for row, later in pairwise(found):
        passes = later.forward_seconds + later.backward_seconds
        assert row.wait_seconds >= later.wait_seconds + passes * (1 - 1e-9), "the later layer runs in between"

"""The planner's bench: what it measures of a network, and what it writes down."""

from __future__ import annotations

import pytest

from refimpl.studies.bench import plan_times
from refimpl.studies.bench.plan_times import PHASES, Growth, PlanningCase, PlanningRow

GROWTH = [
    Growth("vdnn-all", 0.5, [1000, 3000, 10000], [0.1, 0.3, 1.0]),
    Growth("combined", 0.5, [1000, 3000], [10.0, 90.0]),
]


def test_every_phase_of_a_network_is_measured() -> None:
    row = plan_times.measure(PlanningCase("lenet", 2), turns=2)
    assert (row.network, row.layers) == ("lenet", 11) and row.instructions > row.layers
    assert all(getattr(row, phase) > 0 for phase in PHASES)
    assert row.together == row.plan + row.verify + row.simulate


def test_the_tuner_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_times, "TUNE", PlanningCase("lenet", 1, "accudnn", "titan-x", 5 << 20))
    assert 0 < plan_times.measure_tuner(turns=1) < plan_times.TUNE_SECONDS


@pytest.mark.parametrize("preset", ["baseline", "combined"])
def test_how_a_preset_grows_is_measured(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a budget that it fits, and for a search with the same number of plans at every size."""
    monkeypatch.setattr(plan_times, "EFFORT", 2)
    sizes = [plan_times.Size.named(name) for name in ("lenet", "tiny-resnet")]
    growth = plan_times.measure_growth(preset, sizes, turns=1)
    assert growth.layers == [len(size.network.layers) for size in sizes] and all(growth.seconds)
    assert growth.share in plan_times.SHARES and (growth.share > 1) == (preset == "baseline")


def test_a_plan_that_is_expected_to_take_too_long_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected follows from the smaller sizes."""
    sizes = [plan_times.Size.named(name) for name in ("lenet", "tiny-resnet", "resnet50")]
    asked = iter([1.0, 60.0])
    monkeypatch.setattr(plan_times.Size, "seconds", lambda *_: next(asked))
    growth = plan_times.measure_growth("vdnn-all", sizes, turns=1)
    assert growth.seconds == [1.0, 60.0] and "not measured" in growth.cells[-1]


def test_the_page_says_what_is_met_and_what_is_missed() -> None:
    rows = [PlanningRow(str(case), 10 * i, 50 * i, 0.1, i, i, i) for i, case in enumerate(plan_times.NETWORKS, 1)]
    text = plan_times.report(rows, turns=3, load=2.0, tuner=61.5, given_up=0.0025, presets=GROWTH).short()
    assert "| vgg416 | 90 | 450 | 0.100 s | 9.000 s |" in text
    assert "| tune vgg16, accudnn, 12 GiB | 60 s | 61.50 s | missed |" in text
    assert "| vgg16, combined: a plan that is given up early | 3 ms | 2.5 ms | met |" in text
    assert "the least of 3 turns" in " ".join(text.split())
    assert "| preset | budget | 1,000 layers | 3,000 layers | 10,000 layers | exponent |" in text
    assert "| vdnn-all | 0.5 | 0.10 s | 0.30 s | 1.00 s | 1.00 |" in text
    assert "| combined | 0.5 | 10.00 s | 90.00 s | not measured: more than 5 minutes expected | 2.00 |" in text
    assert "| growth of every preset, exponent | 1.15 | 2.00 (combined) | missed |" in text

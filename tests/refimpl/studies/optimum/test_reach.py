"""How near the combined policy comes to the optimum: minutes of searches, printed with -s."""

from __future__ import annotations

import pytest

from refimpl.combined import COMBINED
from refimpl.machine import MACHINES
from refimpl.names.largest_batch import attempt
from refimpl.names.least_budget import least_budget
from refimpl.names.networks import build
from refimpl.names.presets import baseline
from refimpl.network import Network
from refimpl.studies.grid.over_budget import budgets_between
from refimpl.studies.optimum.bound import floor_seconds, lower_bound, single_step_bytes
from refimpl.studies.optimum.exhaustive import MOST, crossing_maps, exhaustive

TITAN_X = MACHINES["titan-x"]


def budgets(network: Network, points: int) -> list[int]:
    """From a little above the single-step limit to what the baseline needs."""
    most = least_budget(network, baseline(), TITAN_X)
    assert most is not None
    return budgets_between(round(single_step_bytes(network, TITAN_X) * 1.002), most, points)


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "batch"), [("lenet", 4096), ("lenet", 256), ("lenet:vdnnpp", 1024)])
def test_small_networks_are_within_1_percent_of_the_enumerated_optimum(name: str, batch: int) -> None:
    network = build(name, batch)
    assert len(crossing_maps(network, TITAN_X)) <= MOST
    for budget in budgets(network, 8):
        found, best = attempt(network, COMBINED, TITAN_X, budget), exhaustive(network, TITAN_X, budget)
        ratio = found.planned_seconds / best.seconds if found and best.seconds else None
        print(
            f"{name} {batch}: {budget:,} bytes, combined over the enumerated optimum {ratio}, {best.planned} planned",
            flush=True,
        )
        assert found or not best.program
        assert ratio is None or ratio <= 1.01


@pytest.mark.campaign
def test_chains_are_near_the_bound() -> None:
    ratios = []
    for name, batch in (("alexnet", 256), ("vgg16", 64), ("vgg16", 256)):
        network = build(name, batch)
        floor = floor_seconds(network, TITAN_X)
        for budget in budgets(network, 12):
            found, bound = (
                attempt(network, COMBINED, TITAN_X, budget),
                lower_bound(COMBINED.cut(network), TITAN_X, budget, 120),
            )
            assert bound is not None
            if found and found.planned_seconds > floor * (1 + 1e-6):
                ratios.append(found.planned_seconds / bound.seconds)
                print(f"{name} {batch}: {budget:,} bytes, {found.planned_seconds / floor:.4f} × the floor, "
                      f"{ratios[-1]:.4f} × the bound", flush=True)  # fmt: skip
    print(f"mean {sum(ratios) / len(ratios):.4f} of {len(ratios)}")
    assert sum(ratios) / len(ratios) <= 1.04

"""How far cost-aware recomputation is from the best: all 2^n ways to let n segments keep or not, on small networks.

`python -m tests.refimpl.superneurons.test_recompute_best` prints the distribution over 200 drawn networks.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from refimpl.network import SUPERNEURONS, Builder, Network
from refimpl.network.zoo import build
from refimpl.planner import PlanContext, Program, plan
from refimpl.superneurons import ALL_CHECKPOINTS, COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC, Recompute
from refimpl.superneurons import presets as stages
from refimpl.superneurons.recompute import BoundRecompute
from refimpl.superneurons.segments import Segment, Segmentation
from tests.refimpl.superneurons.watching import MACHINE, PLENTY

pytestmark = pytest.mark.superneurons

#: Checkpoints stay, as in the preset, or leave and are fetched on demand, as for the published ResNets.
CHECKPOINTS = {"stay": stages.liveness().offload, "leave": ALL_CHECKPOINTS}


@dataclass(frozen=True)
class ByHand(Recompute):
    """The segments that could do either keep what they rebuild as they are told to, one after another."""

    keeps: tuple[bool, ...] = ()

    def bind(self, context: PlanContext) -> BoundRecompute:
        found = Segmentation("speed", context)
        for segment, keeps in zip(either(found), self.keeps, strict=True):
            segment.keeps = keeps
        return BoundRecompute(found, context)


def either(found: Segmentation) -> list[Segment]:
    """The segments to which it makes a difference: those that drop two maps or more."""
    dropped = Counter(found.dropped.values())
    return [segment for segment in found.segments if dropped[segment] > 1]


def choices(network: Network) -> Iterable[tuple[bool, ...]]:
    return product((True, False), repeat=len(either(COST_AWARE.bind(PlanContext(network, MACHINE)).segmentation)))


def by_hand(keeps: tuple[bool, ...]) -> Recompute:
    return ByHand("speed", "by hand", "each segment as told", keeps=keeps)


def drawn(seed: int) -> Network:
    """Two to four convolutions, each with two or three cheap layers behind it, and now and then a way round them."""
    r = random.Random(seed)
    b = Builder(f"drawn {seed}", (1, r.randint(1, 4), 8, 8), SUPERNEURONS)
    for _ in range(r.randint(2, 4)):
        before = b.last
        b.conv(r.randint(1, 8), 1, bias=False)
        for kind in r.choices(("relu", "lrn", "batchnorm", "dropout", "pool"), k=r.randint(2, 3)):
            if kind == "pool":
                b.pool(min(2, *b.last.shape[2:]), ceil=True)
            else:
                getattr(b, kind)()
        if b.last.shape[2:] == before.shape[2:] and r.random() < 0.5:
            through = b.last
            b.join(b.conv(through.shape[1], 1, bias=False, after=before), through)
    b.fc(3)
    b.softmax()
    return b.build()


# -- the distance ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What a plan costs: bytes at its peak, and forward runs beside the necessary ones."""

    peak: int
    runs: int


@dataclass(frozen=True)
class Distance:
    """Between cost-aware and the best of all choices."""

    cost_aware: Cost
    best_runs: int  #: the fewest of the choices that peak no higher than cost-aware
    least_peak: int  #: of all choices
    speed_runs: int  #: of the choice to keep everything
    memory_runs: int  #: of the choice to keep nothing
    choices: int

    @property
    def runs(self) -> int:
        return self.cost_aware.runs - self.best_runs

    @property
    def peak(self) -> float:
        """As a share of the least."""
        return self.cost_aware.peak / self.least_peak - 1


def cost(network: Network, how: Recompute, offload: Any) -> Cost:
    program: Program = plan(network, stages.recompute(how).replace(offload=offload), MACHINE, PLENTY)
    program.verify()
    return Cost(program.peak.live_bytes, program.counts.recomputed_layers)


def distance(network: Network, offload: Any) -> Distance:
    found = cost(network, COST_AWARE, offload)
    each = [cost(network, by_hand(keeps), offload) for keeps in choices(network)]
    best = min(other.runs for other in each if other.peak <= found.peak)
    return Distance(found, best, min(other.peak for other in each), each[0].runs, each[-1].runs, len(each))


def distribution(count: int, checkpoints: str) -> list[Distance]:
    """Over drawn networks, leaving out those without any choice."""
    found = (distance(drawn(seed), CHECKPOINTS[checkpoints]) for seed in range(count))
    return [one for one in found if one.choices > 1]


def table(distances: list[Distance]) -> str:
    """In words: how often cost-aware is the best, and how far it is from that where it is not."""
    more = sorted(Counter(one.runs for one in distances).items())
    above = sorted(one.peak for one in distances if one.peak)
    span = f", by {above[len(above) // 2]:.1%} (median) to {above[-1]:.1%}" if above else ""
    best, more_runs, speed, memory = (
        sum(getattr(one, name) for one in distances) for name in ("best_runs", "runs", "speed_runs", "memory_runs")
    )
    return "\n    ".join(
        (
            f"{len(distances)} networks, {sum(one.choices for one in distances)} choices",
            "runs more than the best choice that peaks no higher: "
            + ", ".join(f"{runs} in {count} networks" for runs, count in more),
            f"a peak above the least of all choices: in {len(above)} networks{span}",
            f"runs in all: speed-centric {speed}, the best choices {best}, cost-aware {best + more_runs}, "
            f"memory-centric {memory}",
        )
    )


@pytest.mark.parametrize("checkpoints", CHECKPOINTS)
def test_cost_aware_is_the_best_choice_on_most_small_networks(checkpoints: str) -> None:
    """Three in four at least; and of the runs that memory-centric wastes it wastes one in ten at most."""
    distances = distribution(12, checkpoints)
    assert len(distances) >= 10 and all(one.runs >= 0 and one.peak >= 0 for one in distances)
    best = [one for one in distances if one.runs == 0 and one.peak == 0]
    assert len(best) >= 0.75 * len(distances)
    wasted = sum(one.memory_runs - one.best_runs for one in distances)
    assert wasted > 20 and sum(one.runs for one in distances) <= 0.1 * wasted
    if checkpoints == "leave":  # nothing much comes on top of l_peak, and the least peak is memory-centric's
        assert all(one.peak == 0 for one in distances)


def test_the_hand_can_choose_what_each_strategy_does() -> None:
    """The twin and the module are the same where they choose the same."""
    network = build("alexnet:superneurons", 200)
    offload = CHECKPOINTS["stay"]
    cost_aware = tuple(segment.keeps for segment in either(COST_AWARE.bind(PlanContext(network, MACHINE)).segmentation))
    assert cost(network, by_hand(cost_aware), offload) == cost(network, COST_AWARE, offload)
    assert cost(network, by_hand((True,) * 5), offload) == cost(network, SPEED_CENTRIC, offload)
    assert cost(network, by_hand((False,) * 5), offload) == cost(network, MEMORY_CENTRIC, offload)


def test_on_alexnet_cost_aware_is_the_best_of_all_32_choices() -> None:
    network = build("alexnet:superneurons", 200)
    found = [cost(network, by_hand(keeps), CHECKPOINTS["stay"]) for keeps in choices(network)]
    assert len(found) == 32
    least = min(one.peak for one in found)
    assert least / 2**20 == pytest.approx(886.230, abs=0.001)
    assert cost(network, COST_AWARE, CHECKPOINTS["stay"]) == Cost(least, min(o.runs for o in found if o.peak == least))
    assert min(one.runs for one in found) == 14 < min(one.runs for one in found if one.peak == least) == 17


if __name__ == "__main__":
    for name in CHECKPOINTS:
        print(f"Checkpoints {name}:", table(distribution(int(sys.argv[1]) if sys.argv[1:] else 200, name)))

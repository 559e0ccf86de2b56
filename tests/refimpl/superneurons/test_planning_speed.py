"""Planning all of SuperNeurons takes work linear in depth: what is done is counted.  The bench has the seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, Launch, plan
from refimpl.studies.bench import plan_times as planner_bench
from refimpl.superneurons import LeastRecentlyUsed
from refimpl.superneurons import presets as stages
from refimpl.superneurons.cache import TensorCache

pytestmark = pytest.mark.superneurons

K40C = MACHINES["k40c"]


@dataclass(frozen=True)
class Counting(LeastRecentlyUsed):
    """The cache, every question to which is counted."""

    asked: list[str] = field(default_factory=list, compare=False)

    def bind(self, context: Context) -> TensorCache:
        return _Counting(self.asked)


class _Counting(TensorCache):
    def __init__(self, asked: list[str]) -> None:
        super().__init__()
        for name in ("enter", "leave", "touch", "victim"):
            setattr(self, name, self._counted(name, getattr(super(), name), asked))

    @staticmethod
    def _counted(name: str, method, asked: list[str]):  # type: ignore[no-untyped-def]
        def counted(*arguments):  # type: ignore[no-untyped-def]
            asked.append(name)
            return method(*arguments)

        return counted


def tight(depth: int) -> tuple[Network, int]:
    """A ResNet and a budget in which it is short of memory: its weights, and what two of its deepest units need."""
    network = build(f"resnet:{depth}", 2)
    resident = sum(tensor.nbytes for tensor in network.resident)
    budget = resident
    while not fits(network, budget):
        budget += 8 << 20
    return network, budget


def fits(network: Network, budget: int) -> bool:
    try:
        plan(network, stages.everything(), K40C, budget)
    except DoesNotFit:
        return False
    return True


def work(depth: int) -> dict[str, float]:
    """A plan's instructions, questions to the cache, rebuilt layers and evictions, each per layer of the network."""
    network, budget = tight(depth)
    cache = Counting()
    program = plan(network, stages.everything().replace(cache=cache), K40C, budget)
    assert program.counts.evicted_bytes > 0
    layers = len(network.layers)
    return {
        "instructions": len(program.instructions) / layers,
        "asked": len(cache.asked) / layers,
        "rebuilt": sum(isinstance(i, Launch) and i.rebuild for i in program.instructions) / layers,
        "evicted": cache.asked.count("victim") / layers,
    }


@pytest.mark.slow
def test_work_grows_with_depth_and_no_faster() -> None:
    """Four times as deep, and short of memory both times: hardly more to do for each layer (quadratic: four times)."""
    shallow, deep = work(50), work(194)
    for what, amount in shallow.items():
        assert deep[what] < 1.3 * amount, what


def test_the_bench_measures_it_beside_the_others() -> None:
    """`refimpl bench --planner`: the growth is fitted to the ResNets without SuperNeurons, the target is shown."""
    rows = [
        planner_bench.PlanningRow(str(case), number, 10 * number, 0.1, 0.1 * number, 0.1 * number, 0.1 * number)
        for number, case in enumerate(planner_bench.NETWORKS, 1)
    ]
    grown = [planner_bench.Growth("superneurons", 0.5, [1000, 3000], [1.0, 3.0])]
    report = planner_bench.report(rows, turns=1, load=0.0, tuner=1.0, given_up=1e-3, presets=grown)
    assert report.exponents["together"] == pytest.approx(1.0)
    table, _, targets = report.tables()
    assert {len(line) for line in table.rows} == {len(table.head)}
    assert "resnet:2498, superneurons" in {line[0] for line in table.rows}
    assert ["resnet:2498, superneurons: plan, verify, simulate", "20 s", "2.40 s", "met"] in targets.rows

"""AccUDNN's policy beside the other papers': an iteration within the same budget, on networks that it was not tuned on.

policies   x = 0 is the least that the model can train in, x = 1 what the baseline takes
"""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.accudnn import Model
from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED
from refimpl.network import Network
from refimpl.network.zoo import build
from refimpl.planner import PlanContext
from refimpl.registry import presets
from refimpl.registry.largest import attempt
from refimpl.registry.planning import unlimited_baseline
from refimpl.reproduce.accudnn.figures import slowdowns
from refimpl.reproduce.published import Found, Watch

POLICIES = ("accudnn", "vdnn-dyn", "vdnnpp-dyn", "superneurons")
#: GPU, network and batch → the shares x.
CELLS: dict[tuple[str, str, int], tuple[float, ...]] = {
    ("titan-x", "vgg16", 128): (0.05, 0.1, 0.2, 0.35, 0.5),
    ("titan-x", "vgg16", 256): (0.1, 0.2, 0.35),
    ("titan-x", "resnet50", 64): (0.05, 0.1, 0.2, 0.35),
    ("titan-x", "resnet101", 48): (0.1, 0.2, 0.35),
    ("titan-x", "resnet152", 32): (0.1, 0.2, 0.35),
    ("titan-x", "inceptionv4", 32): (0.1, 0.2, 0.35),
    ("titan-x", "alexnet", 256): (0.05, 0.1, 0.2, 0.35, 0.5),
    ("k40c", "vgg16", 128): (0.2, 0.35, 0.5),
    ("k40c", "resnet50", 64): (0.02, 0.05, 0.2, 0.35, 0.5),
}


@dataclass(frozen=True)
class PolicyRow:
    """One network within one budget: an iteration of each policy over the baseline's with unlimited memory."""

    machine: str
    network: str
    batch: int
    x: float
    budget_bytes: int
    ratios: dict[str, float | None]  #: policy → times; None: does not fit


def budget_at(network: Network, machine: Machine, x: float) -> int:
    """Bytes: a share of the way from the least that the model can train in to the baseline's peak."""
    least = Model.of(PlanContext(network, machine, UNLIMITED)).least()
    return int(least + x * (unlimited_baseline(network, machine).peak_bytes - least))


def cells() -> list[tuple[tuple[str, str, int], float]]:
    return [(cell, x) for cell, shares in CELLS.items() for x in shares]


def policies(watch: Watch) -> Found:
    """A row a network and budget."""
    rows = []
    for (gpu, name, batch), x in cells():
        watch(f"{gpu}, {name}({batch}), x = {x:g}")
        network, machine = build(name, batch), MACHINES[gpu]
        budget = budget_at(network, machine, x)
        found = ((policy, attempt(network, presets.setup(policy), machine, budget)) for policy in POLICIES)
        rows.append(PolicyRow(gpu, name, batch, x, budget, slowdowns(network, machine, found)))
    return Found([], rows)

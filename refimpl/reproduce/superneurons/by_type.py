"""Time and memory by type of layer (§4, Figure 8), of networks with no technique but liveness analysis.

A type's memory is the paper's: the bytes that the forward step of a layer needs, and those that its backward step
needs, added up over the type's layers.  A tensor that several steps need counts for each of them.  The structure layers
(FORK, JOIN, CONCAT) are left out.

With this rule the shares of VGG-16 and ResNet-50 are the published ones.  AlexNet's would be, if LRN had a gradient of
its own (4.8 % of the total); in the paper's memory curve it is in place on dy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refimpl.network import Network
from refimpl.planner import Launch, Program
from refimpl.reproduce.published import Found, Published, Reproduced, Watch
from refimpl.reproduce.superneurons import figures, published

#: Kind of layer → the paper's name of its type, without the structure layers.
TYPES = {
    "conv": "CONV", "pool": "POOL", "relu": "ACT", "lrn": "LRN", "batchnorm": "BN", "fc": "FC", "dropout": "DROPOUT",
    "softmax": "SOFTMAX",
}  # fmt: skip


@dataclass(frozen=True)
class TypeRow:
    """A network's time and memory by type of layer, without the structure layers."""

    network: str
    batch: int
    seconds: dict[str, float]  #: type → in its kernels in an iteration, simulated
    needed_bytes: dict[str, int]  #: type → the sum of what the steps of its layers need


def share(parts: Mapping[str, float], part: str) -> float:
    """Per cent of the sum."""
    return 100 * parts[part] / sum(parts.values())


def by_type(watch: Watch) -> Found:
    """The paper's Figure 8."""
    rows: list[TypeRow] = []
    times: list[Reproduced] = []
    needs: list[Reproduced] = []
    for name in figures.NETWORKS:
        watch(name)
        built = figures.network(name)
        row = TypeRow(name, built.batch, kernel_seconds(figures.planned(built, figures.FASTEST)), needed_bytes(built))
        rows.append(row)
        times += _beside(published.TIME_SHARES.get(name, {}), row.seconds, "simulated")
        needs += _beside(published.MEMORY_SHARES.get(name, {}), row.needed_bytes, "")
    return Found([*times, *needs], rows)


def _beside(theirs: Mapping[str, Published], ours: Mapping[str, float], note: str) -> list[Reproduced]:
    return [Reproduced(figure, share(ours, kind), note) for kind, figure in theirs.items()]


def kernel_seconds(program: Program) -> dict[str, float]:
    """Type → seconds of its layers' kernels in an iteration."""
    found = dict.fromkeys(TYPES.values(), 0.0)
    for span in program.simulate().spans:
        if isinstance(span.instruction, Launch):
            kind = program.network.steps[span.instruction.step - 1].layer.kind
            if kind in TYPES:
                found[TYPES[kind]] += span.end - span.start
    return found


def needed_bytes(network: Network) -> dict[str, int]:
    """Type → bytes that its layers' forward steps and backward steps need, each step for itself."""
    found = dict.fromkeys(TYPES.values(), 0)
    for step in network.steps:
        if step.layer.kind in TYPES:
            found[TYPES[step.layer.kind]] += sum(tensor.nbytes for tensor in step.uses)
    return found

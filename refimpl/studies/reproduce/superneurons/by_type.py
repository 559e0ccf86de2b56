"""Time and memory by type of layer (§4, Figure 8), of networks with no technique but liveness analysis.

A type's memory is the paper's: the bytes that the forward step of a layer needs, and those that its backward step
needs, added up over the type's layers.  A tensor that several steps need counts for each of them.  The structure layers
(FORK, JOIN, CONCAT) are left out.  With this rule the shares of all networks but AlexNet are the published ones.
AlexNet's would be, if LRN had a gradient of its own (4.8 % of the total); in the paper's memory curve it is in place.

A type's time is that of its layers' kernels, as a share of all kernels'.  Structure layers count, and are not drawn:
the published shares of a network with forks add up to 88 to 91 %.  In the paper a layer of a cheap type takes the same
time whatever its bytes.  So each *call of a library* gets a fixed cost, one number for all networks, which is fitted
to this figure (least squares, in percentage points); `unseen` tries it on figures that the fit has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from refimpl.network import Network
from refimpl.planner import Launch, Program
from refimpl.studies.reproduce.published import Found, Reproduced, Watch
from refimpl.studies.reproduce.superneurons import figures, published
from refimpl.studies.reproduce.superneurons.fixed_cost import library_calls

#: Kind of layer → the paper's name of its type, without the structure layers.
TYPES = {
    "conv": "CONV", "pool": "POOL", "relu": "ACT", "lrn": "LRN", "batchnorm": "BN", "fc": "FC", "dropout": "DROPOUT",
    "softmax": "SOFTMAX",
}  # fmt: skip
STRUCTURE = "structure"  #: the type of FORK, JOIN and CONCAT; its networks have no other kinds


@dataclass(frozen=True)
class TypeRow:
    """A network's time and memory by type of layer."""

    network: str
    batch: int
    kernel_seconds: dict[str, float]  #: type → in its kernels in an iteration, simulated; structure layers too
    calls: dict[str, int]  #: type → calls of a library, likewise
    needed_bytes: dict[str, int]  #: type → the sum of what the steps of its layers need; no structure layers

    def seconds(self, cost: float) -> dict[str, float]:
        """Type → seconds, with a fixed cost (seconds) for each call of a library."""
        return {name: found + cost * self.calls[name] for name, found in self.kernel_seconds.items()}


def share(parts: Mapping[str, float], part: str) -> float:
    """Per cent of the sum."""
    return 100 * parts[part] / sum(parts.values())


def rows(watch: Watch) -> list[TypeRow]:
    """A row a network, all on a K40c with the fastest convolutions."""
    found = []
    for name in figures.NETWORKS:
        watch(name)
        built = figures.network(name)
        program = figures.planned(built, figures.FASTEST)
        found.append(TypeRow(name, built.batch, kernel_seconds(program), calls(built), needed_bytes(built)))
    return found


def by_type(watch: Watch) -> Found:
    """The paper's Figure 8."""
    found = rows(watch)
    cost = fitted_cost(found)
    times: list[Reproduced] = []
    needs: list[Reproduced] = []
    for row in found:
        with_cost = row.seconds(cost)
        for kind, figure in published.TIME_SHARES.get(row.network, {}).items():
            note = f"without the fitted cost: {share(row.kernel_seconds, kind):.1f}"
            times.append(Reproduced(figure, share(with_cost, kind), note))
        needed = published.MEMORY_SHARES.get(row.network, {})
        needs += [Reproduced(figure, share(row.needed_bytes, kind), "") for kind, figure in needed.items()]
    return Found([*times, *needs], found)


def kernel_seconds(program: Program) -> dict[str, float]:
    """Type → seconds of its layers' kernels in an iteration."""
    found = dict.fromkeys([*TYPES.values(), STRUCTURE], 0.0)
    for span in program.simulate().spans:
        if isinstance(span.instruction, Launch):
            kind = program.network.steps[span.instruction.step - 1].layer.kind
            found[TYPES.get(kind, STRUCTURE)] += span.end - span.start
    return found


def calls(network: Network) -> dict[str, int]:
    """Type → calls of a library in an iteration that rebuilds nothing."""
    found = dict.fromkeys([*TYPES.values(), STRUCTURE], 0)
    for step in network.steps:
        found[TYPES.get(step.layer.kind, STRUCTURE)] += sum(map(library_calls, step.calls))
    return found


def needed_bytes(network: Network) -> dict[str, int]:
    """Type → bytes that its layers' forward steps and backward steps need, each step for itself."""
    found = dict.fromkeys(TYPES.values(), 0)
    for step in network.steps:
        if step.layer.kind in TYPES:
            found[TYPES[step.layer.kind]] += sum(tensor.nbytes for tensor in step.uses)
    return found


# -- the fixed cost ----------------------------------------------------------------------------------------------------


def misfit(found: Iterable[TypeRow], cost: float) -> float:
    """Sum of the squared differences from the published shares of time, in percentage points."""
    return sum(
        (share(row.seconds(cost), kind) - figure.value) ** 2
        for row in found
        for kind, figure in published.TIME_SHARES.get(row.network, {}).items()
    )


def fitted_cost(found: Iterable[TypeRow]) -> float:
    """The seconds a call with the least misfit, by halving steps of a factor; the same every time."""
    known, least, most = list(found), 1e-6, 1.0
    best, factor = float((least * most) ** 0.5), 10.0
    while factor > 1.0005:
        tried = [min(most, max(least, best * by)) for by in (1 / factor, 1.0, factor)]
        nearest = min(tried, key=lambda cost: misfit(known, cost))
        if nearest == best:
            factor = float(factor**0.5)
        best = nearest
    return best


def deviations(found: Iterable[TypeRow], cost: float) -> dict[str, list[float]]:
    """Type → how far its shares of time are from the published ones, as shares of these, without a sign."""
    apart: dict[str, list[float]] = {}
    for row in found:
        with_cost = row.seconds(cost)
        for kind, figure in published.TIME_SHARES.get(row.network, {}).items():
            apart.setdefault(kind, []).append(abs(share(with_cost, kind) / figure.value - 1))
    return apart

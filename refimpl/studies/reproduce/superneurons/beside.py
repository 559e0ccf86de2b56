"""The paper beside other frameworks (§4): memory at the largest batches (Figure 13), and speed by batch (Figure 14).

The other frameworks are not here; what the paper has of them is printed as it is.  Ours are SuperNeurons' own lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from refimpl.machine import MACHINES
from refimpl.names.largest_batch import attempt
from refimpl.studies.reproduce.published import Found, Reproduced, Watch
from refimpl.studies.reproduce.superneurons import figures, published
from refimpl.superneurons import presets as stages

TITAN_XP = MACHINES["titan-xp"]
GB = 10**9  #: bytes, in Figure 13 as in Figure 2
EVERYTHING = stages.everything()

# -- Figure 13 ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CostRow:
    """A network's memory at the largest batch of Table 5, as in Figure 2.  Bytes."""

    network: str
    batch: int
    memory_bytes: int
    workspace_bytes: int  #: of the fastest algorithm of every convolution's forward


def costs(watch: Watch) -> Found:
    """Figure 13, of SuperNeurons' own bars."""
    rows, found = [], []
    for name, figure in published.LARGEST_MEMORY.items():
        watch(name)
        built = figures.network(name, int(published.LARGEST[name].value))
        memory, workspaces = sum(figures.tensor_and_weight_bytes(built)), figures.workspace_bytes(built)["forward"]
        rows.append(CostRow(name, built.batch, memory, workspaces))
        note = f"as in Figure 2; without workspaces: {memory / GB:.1f}"
        found.append(Reproduced(figure, (memory + workspaces) / GB, note))
    return Found(found, rows)


# -- Figure 14 ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BesideRow:
    """A point of a curve of Figure 14, and ours; images a second, and as shares of the curve's highest."""

    network: str
    batch: int
    published_rate: int
    published_share: float
    rate: float | None  #: simulated; None: does not fit
    share: float | None


def speeds(watch: Watch) -> Found:
    """Figure 14, of SuperNeurons' own curves: where each is highest, and how far it falls."""
    rows: list[BesideRow] = []
    found: list[Reproduced] = []
    for name, shape in published.SPEED_SHAPES.items():
        watch(name)
        mine = list(curve(name))
        rows += mine
        rates = {row.batch: row.rate for row in mine if row.rate is not None}
        best = max(rates, key=lambda batch: rates[batch])
        last = rates.get(mine[-1].batch, 0.0)
        found += [
            Reproduced(shape.best_batch, best, "of the batches in the figure"),
            Reproduced(shape.best_rate, rates[best], f"simulated on a {TITAN_XP.name}"),
            Reproduced(shape.fallen, last / rates[best], f"the highest is at {best}"),
        ]
    return Found(found, rows)


def curve(name: str) -> Iterator[BesideRow]:
    """A network at the batches of the figure, under all techniques in 12 GiB."""
    theirs = published.SPEED_CURVES[name]
    programs = {batch: attempt(figures.network(name, batch), EVERYTHING, TITAN_XP, TITAN_XP.memory_bytes)
                for batch in theirs}  # fmt: skip
    rates = {batch: batch / found.planned_seconds for batch, found in programs.items() if found}
    most, best = max(theirs.values()), max(rates.values(), default=0.0)
    for batch, rate in theirs.items():
        mine = rates.get(batch)
        yield BesideRow(name, batch, rate, rate / most, mine, mine / best if mine is not None else None)

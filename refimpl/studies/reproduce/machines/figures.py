"""The tables of `refimpl reproduce machines`: measured times and memory beside ours, and how far ours are off.

Memory depends on no model of time.  `memory.csv` has MiB: of MXNet (0.11 or 0.12) all that the process used of a
Titan X, its context included; of PyTorch 1.5 the peak of its allocator, as the authors of MONeT measured it, whose GB
is 2³⁰ bytes.  A third of the measured figures is of networks that this project does not build, and left out.  Ours is
counted in two ways: *network-wide*, every map stays for the whole iteration, and *layer-wise*, every tensor is freed
after its last use.  Which of them a framework's planner comes near, the table shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import log, log1p, sqrt
from operator import attrgetter
from statistics import NormalDist, median, quantiles
from typing import Any

from refimpl.machine import MACHINES
from refimpl.names.largest_batch import unlimited, unlimited_baseline
from refimpl.report.tables import Column, Table, in_units, percent, plain
from refimpl.studies.reproduce.machines.fit import FITTED, LIBRARY, fit
from refimpl.studies.reproduce.machines.independent import (
    GPUS,
    SOURCES,
    Prediction,
    compared,
    convolutions,
    networks,
    rows_of,
)
from refimpl.studies.reproduce.machines.measured_networks import benchmarked
from refimpl.studies.tune.caffe import CONTEXT_BYTES
from refimpl.studies.tune.tuning import LAYER_WISE

WITHIN = (0.1, 0.2, 0.5)
MIB = 1 << 20
TITAN_X = MACHINES["titan-x"]  #: MXNet's; MONeT's GPU is not named
MEMORY_SOURCES = {
    "mxnet": "knjcode/mxnet-finetuner@f5947a5, docs/benchmark.md", "monet": "utsaslab/MONeT@98a5c7d, README.md",
}  # fmt: skip


@dataclass(frozen=True)
class WholeNetwork:
    """All parts of one row of `networks.csv` together, in milliseconds."""

    gpu: str
    cudnn: float
    network: str
    source: str
    measured: float
    predicted: float
    fitted: bool

    @property
    def off(self) -> float:
        return self.predicted / self.measured - 1

    @classmethod
    def of(cls, parts: Sequence[Prediction]) -> WholeNetwork:
        """Of the parts of one row; where the whole was timed, its forward part is in it."""
        whole = [one for one in parts if one.part == "total"] or parts
        row = parts[0].measured
        network = row.subject if len(parts) > 1 or parts[0].part == "total" else f"{row.subject} forward"
        measured, predicted = sum(one.milliseconds for one in whole), sum(one.predicted for one in whole)
        return cls(row.gpu, row.cudnn, network, row.source, measured, predicted, row.fitted)


@dataclass(frozen=True)
class Offs:
    """How many figures of one kind are within 10, 20 and 50 %."""

    what: str
    off: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(map(abs, self.off))

    def within(self, share: float) -> int:
        return sum(abs(off) <= share for off in self.off)


def signed(share: float) -> str:
    """`+8%`"""
    return f"{share:+.0%}".replace("-0%", "+0%")


NETWORK_COLUMNS = (
    Column("GPU", "gpu"), Column("cuDNN", "cudnn", lambda release: f"{release:g}"), Column("network", "network"),
    Column("source", "source"), Column("measured", "measured", in_units(1)),
    Column("predicted", "predicted", in_units(1)), Column("off", "off", signed),
    Column("fitted", lambda row: "yes" if row.fitted else "no"),
)  # fmt: skip
OFF_COLUMNS = (
    Column("", "what"), Column("figures", lambda row: len(row.off), plain), Column("median off", "median", percent),
    *(Column(f"within {share:.0%}", partial(Offs.within, share=share), plain) for share in WITHIN),
)  # fmt: skip


def whole_networks() -> list[list[Prediction]]:
    """The parts of each network that was measured."""
    return [list(parts) for _, parts in groupby(compared(networks()), attrgetter("measured"))]


def counted(rows: Iterable[Any], key: Callable[[Any], str]) -> list[Offs]:
    """The rows together by `key`, in their order."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row.off)
    return [Offs(what, tuple(off)) for what, off in found.items()]


def sources(rows: Iterable[WholeNetwork]) -> str:
    """Where the rows are from, as a sentence."""
    return (
        f"Sources: {'; '.join(f'{name}: {SOURCES[name].where}' for name in dict.fromkeys(row.source for row in rows))}."
    )


def network_tables() -> list[Table]:
    """Whole networks: how far off, by GPU, and every figure."""
    rows = [WholeNetwork.of(parts) for parts in whole_networks()]
    tallies = counted(rows, lambda row: f"{row.gpu}, {'fitted' if row.fitted else 'not fitted'}")
    tallies += counted(rows, lambda row: "all, fitted" if row.fitted else "all, not fitted")
    return [
        Table.of("Whole networks, by GPU", tallies, OFF_COLUMNS),
        Table.of("Whole networks, milliseconds of an iteration", rows, NETWORK_COLUMNS, sources(rows)),
    ]


def convolution_tables() -> list[Table]:
    """Single convolutions: how far off, by GPU and release."""
    tallies = counted(
        compared(convolutions()),
        lambda row: f"{row.measured.gpu}, cuDNN {row.measured.cudnn:g}, {'' if row.measured.fitted else 'not '}fitted",
    )
    return [Table.of("Single convolutions, each pass", tallies, OFF_COLUMNS)]


def unseen_widths(rows: Sequence[Sequence[Prediction]]) -> tuple[float, float]:
    """How far whole networks that no figure was fitted to are off, and their parts from the whole.

    Both as standard deviations of natural logarithms with which 90 % of the errors lie between the 5th and the 95th
    percentile of a normal distribution.  An inference of few images waits for its host, which nothing here models.
    """
    whole, parts = [], []
    for row in rows:
        if row[0].measured.fitted or row[0].measured.source == "nvidia-inference":
            continue
        whole.append(log1p(WholeNetwork.of(row).off))
        if len(row) > 1:
            errors = part_errors(row)
            mean = sum(errors) / len(errors)
            freedom = sqrt(len(errors) / (len(errors) - 1))
            parts += [(error - mean) * freedom for error in errors]
    return spread(whole), spread(parts)


def part_errors(row: Sequence[Prediction]) -> list[float]:
    """Logarithms of predicted over measured; of a total without the forward part before it."""
    (first, *rest), errors = row, []
    for one in rest:
        less = (first.predicted, first.milliseconds) if one.part == "total" else (0.0, 0.0)
        errors.append(log((one.predicted - less[0]) / (one.milliseconds - less[1])))
    return [log1p(first.off), *errors]


def spread(errors: Sequence[float]) -> float:
    """The standard deviation of a normal distribution with nine tenths of the errors in its middle nine tenths."""
    return quantiles(map(abs, errors), n=10)[-1] / NormalDist().inv_cdf(0.95)


def fit_tables() -> list[Table]:
    """Every fitted GPU's figures, as a new fit finds them, and as they are."""
    figures = (*LIBRARY, "early")
    rows = []
    for name in FITTED:
        for what, found in (("in use", GPUS[name].efficiency), ("fitted", fit(name))):
            rows.append([name, what, *(f"{getattr(found, figure):.3f}" for figure in figures)])
    return [Table("The fit of each GPU", ["GPU", "", *figures], rows)]


# -- memory ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryRow:
    """An iteration's bytes as measured, and ours by both accountings."""

    network: str
    source: str
    measured: int
    network_wide: int
    layer_wise: int


def memory_rows() -> list[MemoryRow]:
    found = []
    for row in rows_of("memory.csv"):
        network = benchmarked(row["network"], int(row["batch"]), False)
        context = CONTEXT_BYTES if row["source"] == "mxnet" else 0
        programs = unlimited_baseline(network, TITAN_X), unlimited(network, LAYER_WISE, TITAN_X)
        ours = (context + program.peak_bytes for program in programs)
        found.append(MemoryRow(f"{row['network']}({row['batch']})", row["source"], int(row["mebibytes"]) * MIB, *ours))
    return found


def memory_tables() -> list[Table]:
    mebibytes = in_units(MIB, 0)
    columns = (
        Column("network", "network"), Column("source", "source"), Column("measured", "measured", mebibytes),
        Column("network-wide", "network_wide", mebibytes),
        Column("off", lambda row: row.network_wide / row.measured - 1, signed),
        Column("layer-wise", "layer_wise", mebibytes),
        Column("off ", lambda row: row.layer_wise / row.measured - 1, signed),
    )  # fmt: skip
    note = (
        f"MXNet's has its context; so has ours, {CONTEXT_BYTES / MIB:.0f} MiB, an assumption.  Sources: "
        f"{'; '.join(f'{name}: {where}' for name, where in MEMORY_SOURCES.items())}."
    )
    return [Table.of("Memory of an iteration, MiB", memory_rows(), columns, note)]


#: Part → its tables.
PARTS: dict[str, Callable[[], list[Table]]] = {
    "networks": network_tables, "convolutions": convolution_tables, "memory": memory_tables, "fit": fit_tables,
}  # fmt: skip
#: Part → the page that has its tables; the fit takes a minute, and is made where it is named.
PAGES = {"networks": "simulate.md", "convolutions": "simulate.md", "memory": "fidelity.md"}

"""The tables of `refimpl reproduce machines`: measured times and memory beside ours, and how far ours are off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from refimpl.report.tables import Column, Table, in_units, percent, plain
from refimpl.studies.reproduce.machines.independent import SOURCES, Prediction, compared, convolutions, networks
from refimpl.studies.reproduce.machines.measured_memory import memory_tables

WITHIN = (0.1, 0.2, 0.5)


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
    return f"{share:+.0%}"


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


def whole_networks() -> list[WholeNetwork]:
    """A line for each network that was measured."""
    by_row: dict[int, list[Prediction]] = {}
    for one in compared(networks()):
        by_row.setdefault(id(one.measured), []).append(one)
    return [WholeNetwork.of(parts) for parts in by_row.values()]


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
    rows = whole_networks()
    tallies = counted(rows, lambda row: f"{row.gpu}, {'fitted' if row.fitted else 'not fitted'}")
    tallies += counted(rows, lambda row: "all, fitted" if row.fitted else "all, not fitted")
    return [
        Table.of("Whole networks, by GPU", tallies, OFF_COLUMNS),
        Table.of("Whole networks, milliseconds of an iteration", rows, NETWORK_COLUMNS, sources(rows)),
    ]


def convolution_tables() -> list[Table]:
    """Single convolutions: how far off, by GPU and release."""
    tallies = counted(compared(convolutions()), lambda row: f"{row.measured.gpu}, cuDNN {row.measured.cudnn:g}")
    return [Table.of("Single convolutions, each pass", tallies, OFF_COLUMNS)]


PARTS: dict[str, Callable[[], list[Table]]] = {
    "networks": network_tables, "convolutions": convolution_tables, "memory": memory_tables,
}  # fmt: skip
#: Part → the page that has its tables.
PAGES = {"networks": "simulate.md", "convolutions": "simulate.md", "memory": "fidelity.md"}

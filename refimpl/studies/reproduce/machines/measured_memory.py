"""Memory that others measured on GPUs, beside what this project's plans take: it depends on no model of time.

`memory.csv` has MiB: of MXNet (0.11 or 0.12) all that the process used of a Titan X, its context included; of PyTorch
1.5 the peak of its allocator, as the authors of MONeT measured it, plainly and within smaller and smaller memories.
There `overhead` is the per cent that an iteration took longer.  A third of the measured figures is of networks that
this project does not build, and left out.

Ours is counted in two ways: *network-wide*, every map stays for the whole iteration, and *layer-wise*, every tensor is
freed after its last use.  Which of them a framework's planner comes near, the table shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from refimpl.machine import MACHINES
from refimpl.names import presets
from refimpl.names.largest_batch import attempt, unlimited, unlimited_baseline
from refimpl.network import Network
from refimpl.report.tables import Column, Table, in_units
from refimpl.slots.baseline import LayerWise
from refimpl.studies.optimum.bound import single_step_bytes
from refimpl.studies.reproduce.machines.independent import rows_of
from refimpl.studies.reproduce.machines.measured_networks import benchmarked
from refimpl.studies.tune.caffe import CONTEXT_BYTES
from refimpl.text import size

MIB = 1 << 20
TITAN_X = MACHINES["titan-x"]  #: MXNet's; MONeT's GPU is not named
LAYER_WISE = presets.baseline(liveness=LayerWise())
SOURCES = {
    "mxnet": "knjcode/mxnet-finetuner@f5947a5, docs/benchmark.md", "monet": "utsaslab/MONeT@98a5c7d, README.md",
}  # fmt: skip
#: Setups that recompute and copy nothing, as MONeT does.
RECOMPUTING = ("chen-sqrt", "rotor", "superneurons-recompute")


@dataclass(frozen=True)
class MemoryRow:
    """An iteration's bytes as measured, and ours by both accountings."""

    network: str
    source: str
    measured: int
    network_wide: int
    layer_wise: int

    @property
    def network_wide_off(self) -> float:
        return self.network_wide / self.measured - 1

    @property
    def layer_wise_off(self) -> float:
        return self.layer_wise / self.measured - 1


@dataclass(frozen=True)
class WithinRow:
    """MONeT within a memory, and the fastest of our setups that recompute."""

    measured: int
    theirs: float  #: times the iteration without
    ours: float | None  #: None: none fits
    setup: str


def measured() -> Iterator[tuple[dict[str, str], int, Network]]:
    """A row of the file, its bytes, and its network."""
    for row in rows_of("memory.csv"):
        yield row, int(row["mebibytes"]) * MIB, benchmarked(row["network"], int(row["batch"]), False)


def plain_rows() -> list[MemoryRow]:
    """Frameworks that recompute nothing."""
    found = []
    for row, nbytes, network in measured():
        if not row["overhead"]:
            context = CONTEXT_BYTES if row["source"] == "mxnet" else 0
            ours = (
                context + peak
                for peak in (
                    unlimited_baseline(network, TITAN_X).peak_bytes, unlimited(network, LAYER_WISE, TITAN_X).peak_bytes
                )
            )  # fmt: skip
            found.append(MemoryRow(f"{row['network']}({row['batch']})", row["source"], nbytes, *ours))
    return found


def within_rows() -> list[WithinRow]:
    """MONeT's smaller memories."""
    found = []
    for row, nbytes, network in measured():
        if row["overhead"]:
            whole = unlimited_baseline(network, TITAN_X).planned_seconds
            made = {name: attempt(network, presets.setup(name), TITAN_X, nbytes) for name in RECOMPUTING}
            ratios = {name: program.planned_seconds / whole for name, program in made.items() if program}
            best = min(ratios, key=ratios.__getitem__, default="")
            found.append(WithinRow(nbytes, 1 + float(row["overhead"]) / 100, ratios.get(best), best))
    return found


MEBIBYTES = in_units(MIB, 0)


def signed(share: float) -> str:
    return f"{share:+.0%}"


def memory_tables() -> list[Table]:
    """Whole networks, and VGG-16 within MONeT's memories."""
    plain = (
        Column("network", "network"), Column("source", "source"), Column("measured", "measured", MEBIBYTES),
        Column("network-wide", "network_wide", MEBIBYTES), Column("off", "network_wide_off", signed),
        Column("layer-wise", "layer_wise", MEBIBYTES), Column("off ", "layer_wise_off", signed),
    )  # fmt: skip
    within = (
        Column("memory", "measured", size), Column("MONeT", "theirs", "{:.2f} ×".format),
        Column("ours", "ours", "{:.2f} ×".format), Column("", "setup"),
    )  # fmt: skip
    step = single_step_bytes(benchmarked("vgg16", 176, False), TITAN_X)
    return [
        Table.of(
            "Memory of an iteration, MiB", plain_rows(), plain,
            f"MXNet's has its context; so has ours, {CONTEXT_BYTES / MIB:.0f} MiB, an assumption.  Sources: "
            f"{'; '.join(f'{name}: {where}' for name, where in SOURCES.items())}.",
        ),
        Table.of(
            "vgg16(176) recomputed within a smaller memory", within_rows(), within,
            "Over the iteration with memory enough; MONeT's measured, ours simulated on a Titan X: the fastest of "
            f"{', '.join(RECOMPUTING)}.  –: none fits.  One step of ours needs {size(step)} by itself.",
        ),
    ]  # fmt: skip

"""Memory that others measured on GPUs, beside what this project's plans take: it depends on no model of time.

`memory.csv` has MiB: of MXNet (0.11 or 0.12) all that the process used of a Titan X, its context included; of PyTorch
1.5 the peak of its allocator, as the authors of MONeT measured it, whose GB is 2³⁰ bytes.  A third of the measured
figures is of networks that this project does not build, and left out.

Ours is counted in two ways: *network-wide*, every map stays for the whole iteration, and *layer-wise*, every tensor is
freed after its last use.  Which of them a framework's planner comes near, the table shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.machine import MACHINES
from refimpl.names import presets
from refimpl.names.largest_batch import unlimited, unlimited_baseline
from refimpl.report.tables import Column, Table, in_units
from refimpl.slots.baseline import LayerWise
from refimpl.studies.reproduce.machines.independent import rows_of, signed
from refimpl.studies.reproduce.machines.measured_networks import benchmarked
from refimpl.studies.tune.caffe import CONTEXT_BYTES

MIB = 1 << 20
TITAN_X = MACHINES["titan-x"]  #: MXNet's; MONeT's GPU is not named
LAYER_WISE = presets.baseline(liveness=LayerWise())
SOURCES = {
    "mxnet": "knjcode/mxnet-finetuner@f5947a5, docs/benchmark.md", "monet": "utsaslab/MONeT@98a5c7d, README.md",
}  # fmt: skip


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


MEBIBYTES = in_units(MIB, 0)


def memory_tables() -> list[Table]:
    columns = (
        Column("network", "network"), Column("source", "source"), Column("measured", "measured", MEBIBYTES),
        Column("network-wide", "network_wide", MEBIBYTES),
        Column("off", lambda row: row.network_wide / row.measured - 1, signed),
        Column("layer-wise", "layer_wise", MEBIBYTES),
        Column("off ", lambda row: row.layer_wise / row.measured - 1, signed),
    )  # fmt: skip
    note = (
        f"MXNet's has its context; so has ours, {CONTEXT_BYTES / MIB:.0f} MiB, an assumption.  Sources: "
        f"{'; '.join(f'{name}: {where}' for name, where in SOURCES.items())}."
    )
    return [Table.of("Memory of an iteration, MiB", memory_rows(), columns, note)]

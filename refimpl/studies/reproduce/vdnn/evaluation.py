"""vDNN's evaluation as `refimpl reproduce vdnn` shows it: tables and pictures, part by part."""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.report.tables import Column, Table, in_units, percent
from refimpl.studies.reproduce.evaluation import MIB, NETWORK, Part, one_table
from refimpl.studies.reproduce.vdnn import figures, pictures, published
from refimpl.studies.reproduce.vdnn.figures import VdnnRow
from refimpl.text import size

GB_2, MS_1 = in_units(figures.GB, 2), in_units(1e-3)

POLICY = Column("policy", "policy")
HOW = Column("", lambda row: f"does not fit: {row.failure}" if row.failure else row.adopted, wraps=True)
MODES = "(m): least workspace, (p): fastest; dyn: with the adopted policy."

MEMORY = one_table(
    "Memory of vDNN's networks",
    (
        NETWORK, POLICY, Column("at once", "network_wide_bytes", GB_2), Column("average", "average_saving", percent),
        Column("by time", "weighted_saving", percent), Column("peak", "peak_saving", percent),
        Column("out", lambda row: row.offloaded_bytes or None, size), HOW,
    ),
    "Planned for a Titan X of 12 GiB with the modelled cuDNN 4.  at once: the network-wide total, GB.  average, by "
    "time, peak: memory saved against it, over the steps of the feature extraction; by time: steps weighted by how "
    "long they take.  out: offloaded in an iteration.  A policy that does not fit is counted on a larger GPU.  "
    f"{MODES}  vgg16(256), conv (m) has a pool of 11,904 MiB: in 12 GiB no hole is large enough for one gradient.",
)  # fmt: skip

PERFORMANCE = (
    NETWORK, POLICY, Column("oracle", "oracle_seconds", MS_1),
    Column("vDNN", lambda row: None if row.failure else row.seconds, MS_1),
    Column("lost", "performance_lost", percent), Column("TFLOP/s", "flops_rate", in_units(1e12, 2)), HOW,
)  # fmt: skip


def performance_tables(rows: Sequence[VdnnRow]) -> list[Table]:
    link = max(row.link_rate for row in rows if row.link_rate)
    note = (
        "Milliseconds an iteration, simulated on a Titan X of 12 GiB with the modelled cuDNN 4.  oracle: a GPU that "
        "holds everything, with the fastest algorithms.  lost: 1 - T(oracle) / T(vDNN).  TFLOP/s: of the kernels; "
        f"copies ran at {link / 1e9:.1f} GB/s.  {MODES}"
    )
    return [Table.of("Performance of vDNN's networks", rows, PERFORMANCE, note)]


REUSE = one_table(
    "How long X waits between its two uses",
    (
        NETWORK, Column("layer", "layer"), Column("X (MiB)", "x_bytes", in_units(MIB)),
        Column("forward", "forward_seconds", MS_1), Column("backward", "backward_seconds", MS_1),
        Column("X waits", "wait_seconds", MS_1), Column("out and in", "copy_seconds", MS_1),
    ),
    "Milliseconds, simulated on a Titan X that holds everything, with the fastest algorithms.  X waits: from the end "
    "of the layer's forward to the start of its backward.  out and in: X alone on the link.",
)  # fmt: skip

DEEP = one_table(
    "Very deep networks",
    (
        NETWORK, POLICY, Column("at once", "network_wide_bytes", GB_2), Column("GPU, peak", "peak_bytes", GB_2),
        Column("average", "average_bytes", GB_2), Column("host", "offloaded_bytes", GB_2),
        Column("on the host", "host_share", percent), Column("lost", "performance_lost", percent), HOW,
    ),
    "GB.  at once: the network-wide total.  GPU: of the feature extraction.  host: offloaded maps.  on the host: of "
    f"these and the GPU's peak.  lost: performance, against a GPU that holds everything.  {MODES}",
)  # fmt: skip

RANGES = one_table(
    "Ten networks under vdnn-dyn",
    (
        NETWORK, Column("at once", "network_wide_bytes", GB_2), Column("average", "average_saving", percent),
        Column("lost", "performance_lost", percent), HOW,
    ),
    "at once: the network-wide total, GB.  average: memory saved against it.  lost: performance, against a GPU that "
    "holds everything.  The paper's policy takes conv (p) for VGG-16(128), as we recall; with layer-wise release "
    "none (p) fits, comes first and is taken.",
)  # fmt: skip

GB = "GB: 2^30 bytes."

PARTS = (
    Part("memory", "memory saved and offloaded under each policy", len(figures.CONVENTIONAL) + 1, figures.memory,
         MEMORY, pictures.memory_picture, units=GB),
    Part("performance", "performance lost under each policy", len(figures.CONVENTIONAL) + 1, figures.performance,
         performance_tables, pictures.performance_picture, units="lost: 1 - T(all in memory) / T(vDNN)."),
    Part("ranges", "ten networks: memory needed and saved, performance lost",
         len(figures.CONVENTIONAL) + len(figures.DEEP), figures.ranges, RANGES, pictures.ranges_picture, units=GB),
    Part("reuse", "how long each layer's input waits for its second use", len(published.REUSE), figures.reuse,
         REUSE, pictures.reuse_picture),
    Part("deep", "VGG with up to 416 layers, on the GPU and on the host", len(figures.DEEP) + 1, figures.deep,
         DEEP, pictures.deep_picture, units=GB),
)  # fmt: skip

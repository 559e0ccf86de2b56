"""vDNN's evaluation as `refimpl reproduce vdnn` shows it: published figures, and its networks under every policy."""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.report.tables import Column, Table, in_units, percent
from refimpl.reproduce.evaluation import Part
from refimpl.reproduce.vdnn import figures
from refimpl.reproduce.vdnn.figures import Row
from refimpl.reproduce.vdnn.pictures import networks_picture
from refimpl.text import size

NETWORKS = (
    Column("network", lambda row: f"{row.network}({row.batch})"), Column("policy", "policy"),
    Column("at once", "network_wide_bytes", size), Column("average", "average_saving", percent),
    Column("by time", "weighted_saving", percent), Column("peak", "peak_saving", percent),
    Column("out", lambda row: row.offloaded_bytes or None, size), Column("TFLOP/s", "flops_rate", in_units(1e12, 2)),
    Column("slower", "slowdown", percent),
    Column("", lambda row: row.adopted if row.fits else f"does not fit: {row.failure}", wraps=True),
)  # fmt: skip


def networks_table(rows: Sequence[Row]) -> Table:
    """Every network under every policy."""
    link = max((row.link_rate for row in rows if row.link_rate), default=0.0)
    note = (
        "Simulated on a Titan X of 12 GiB with the modelled cuDNN 4.  at once: the network-wide total.  average, by "
        "time, peak: memory saved against it, over the steps of the feature extraction.  TFLOP/s: of the kernels; "
        f"copies ran at {link / 1e9:.1f} GB/s.  slower: than a GPU that holds it all.  (m): least workspace, (p): "
        "fastest."
    )
    return Table.of("vDNN's networks", rows, NETWORKS, note)


PARTS = (
    Part("published", "the figures that the paper prints", 1, figures.reproduced, units="GB: 2^30 bytes."),
    Part("networks", "its networks under every policy", len(figures.NETWORKS), figures.networks,
         lambda rows: [networks_table(rows)], networks_picture),
)  # fmt: skip

"""vDNN's evaluation as `refimpl reproduce vdnn` shows it: published figures, and its networks under every policy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from refimpl.report.tables import Table
from refimpl.reproduce.evaluation import Part, networks_picture
from refimpl.reproduce.published import Found, Watch
from refimpl.reproduce.vdnn import figures
from refimpl.reproduce.vdnn.figures import Row
from refimpl.text import size


def published(watch: Watch) -> Found:
    watch("published figures")
    return Found(list(figures.reproduced()), [])


def networks(watch: Watch) -> Found:
    return Found([], list(figures.networks(watch)))


def networks_table(rows: Sequence[Row]) -> Table:
    """Every network under every policy."""
    head = ["network", "policy", "at once", "average", "by time", "peak", "out", "TFLOP/s", "slower", ""]
    body = []
    for row in rows:
        who = [f"{row.network}({row.batch})", row.policy, size(row.network_wide_bytes)]
        if not row.fits:
            body.append([*who, "", "", "", "", "", "", f"does not fit: {row.failure}"])
            continue
        shares = [f"{share:.1%}" for share in (row.average_saving, row.weighted_saving, row.peak_saving) if share]
        moved = size(row.offloaded_bytes) if row.offloaded_bytes else "–"
        speed = f"{(row.flops_rate or 0.0) / 1e12:.2f}"
        body.append([*who, *shares, moved, speed, f"{row.slowdown or 0.0:.1%}", row.adopted])
    link = max((row.link_rate for row in rows if row.link_rate), default=0.0)
    note = (
        "Simulated on a Titan X of 12 GiB with the modelled cuDNN 4.  at once: the network-wide total.  average, by "
        "time, peak: memory saved against it, over the steps of the feature extraction.  slower: than a GPU that holds "
        f"it all, at so many TFLOP/s of the kernels; copies ran at {link / 1e9:.1f} GB/s.  (m): least workspace, (p): "
        "fastest."
    )
    numbers = frozenset({"at once", "average", "by time", "peak", "out", "TFLOP/s", "slower"})
    return Table("vDNN's networks", head, body, numbers, ("",), note)


def picture(rows: Sequence[Row]) -> Figure:
    title = "vDNN's networks: memory and time under each policy"
    return networks_picture(title, "Titan X of 12 GiB, cuDNN 4, simulated", rows, figures.TITAN_X.memory_bytes)


PARTS = (
    Part("published", "what the paper prints", 1, published),
    Part("networks", "its networks under every policy", len(figures.NETWORKS), networks,
         lambda rows: [networks_table(rows)], picture),
)  # fmt: skip

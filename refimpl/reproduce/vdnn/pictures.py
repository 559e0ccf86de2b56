"""The picture of vDNN's evaluation: memory and time of its networks under each policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.reproduce.drawing import log2_axis, named
from refimpl.reproduce.evaluation import GIB
from refimpl.reproduce.vdnn.figures import TITAN_X, Row

LOOKS = tuple(zip("os^DP", (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.VERMILION), strict=True))


def networks_picture(rows: Sequence[Row]) -> Figure:
    """A line a network, a dot a policy: the most memory of a step, and the slow-down."""
    names = list(dict.fromkeys(f"{row.network}({row.batch})" for row in rows))
    policies = dict(zip(dict.fromkeys(row.policy for row in rows), LOOKS, strict=False))
    title, subtitle = "vDNN's networks: memory and time under each policy", "Titan X of 12 GiB, cuDNN 4, simulated"
    with style.page(11, 1.7 + 0.36 * len(names), title, subtitle, 0.75) as figure:
        memory, time = figure.subplots(1, 2, sharey=True)
        for axes in (memory, time):
            style.grid(axes)
            places = named(axes, names)
        for row in rows:
            y = places[f"{row.network}({row.batch})"]
            memory.plot(row.network_wide_bytes / GIB, y, "|", color=style.INK, markersize=11, markeredgewidth=2)
            marker, colour = policies[row.policy]
            look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 6, "alpha": 0.85}
            if row.peak_bytes is not None and row.slowdown is not None:
                memory.plot(row.peak_bytes / GIB, y, **look)
                time.plot(100 * row.slowdown, y, **look)
        style.limit(memory, TITAN_X.memory_bytes / GIB, across=False)
        log2_axis(memory, "most memory of a step (GiB); | everything at once; dashed: the GPU's")
        time.set_xlabel("slower than a GPU that holds it all (%)")
        handles = [time.plot([], [], color=colour, marker=marker, linestyle="none", label=policy)[0]
                   for policy, (marker, colour) in policies.items()]  # fmt: skip
        time.legend(handles=handles, loc="lower right", fontsize=8, frameon=True, edgecolor="none")
    return figure

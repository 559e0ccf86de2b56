"""Pictures of fragmentation: the blocks and holes of a pool over time, and the memory that each heuristic wastes.

A panel is one replay of a trace in one pool.  Grey is free; a red frame is the request that found no hole, drawn on the
hole that it could have had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from refimpl.combined.fixed_pool import fix_addresses
from refimpl.memory import Allocator
from refimpl.memory.allocation_trace import Misfit, Trace, TraceEvent, ideal, replay, rounded
from refimpl.planner import Program
from refimpl.report import style
from refimpl.studies.drawing import grouped_bars
from refimpl.studies.fragmentation.study import HEURISTICS, ORDERS, PLANNED, Order, PoolRow
from refimpl.text import size
from refimpl.vdnnpp.pool_search import find_pool

LOOKS = {
    "stays": style.BLUE, "comes and goes": style.SKY, "gradient map": style.ORANGE, "weight gradient": style.PURPLE,
    "workspace": style.GREEN,
}  # fmt: skip
REFUSED: dict[str, Any] = {"edgecolor": style.VERMILION, "facecolor": "#D55E0040", "linewidth": 1.4}
OWN_LINE = 16  #: letters of a block's name from which it has a line of its own
#: Beside `planned`: where each heuristic places a block.
SHOWN = {
    "best left": "smallest hole, low end", "best right": "what stays at the high end", "first left": "lowest hole",
}  # fmt: skip
HEAD = 0.8  #: inches at the top


def look(event: TraceEvent) -> str:
    """The block's kind, one of the LOOKS."""
    if event.kind in ("workspace", "weight gradient", "gradient map"):
        return event.kind
    return "stays" if event.stays else "comes and goes"


# -- one replay --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoolPanel:
    """A trace in one pool, up to the first request that fails."""

    title: str
    events: Trace
    size: int  #: of the pool, bytes
    ideal: int  #: bytes
    addresses: Mapping[int, int]  #: block → address
    misfit: Misfit | None = None
    hole: int = 0  #: the address of the hole that the misfit could have had

    @property
    def shown(self) -> int:
        """The number of events that are drawn."""
        return len(self.events) if self.misfit is None else self.events.index(self.misfit.event)

    @property
    def reach(self) -> int:
        """The highest address that is drawn."""
        return self.size if self.misfit is None else max(self.size, self.hole + rounded(self.misfit.event.nbytes))

    @property
    def outcome(self) -> str:
        if self.misfit is None:
            return "all of it fits"
        return f"fails in step {self.misfit.event.step}" if self.misfit.event.step else "fails"


def replayed(title: str, events: Trace, allocator: Allocator, nbytes: int) -> PoolPanel:
    """The trace in a pool of `nbytes` bytes."""
    pool, addresses = allocator.open(nbytes), dict[int, int]()
    misfit = replay(events, pool, addresses)
    hole = 0
    if misfit is not None:
        hole = next((at for at, free in reversed(pool.holes()) if free == misfit.largest_hole), pool.size)
    return PoolPanel(title, events, nbytes, ideal(events), addresses, misfit, hole)


def moments(events: Trace) -> np.ndarray:
    """Event → its place on an axis of steps; without steps it counts events.  One entry more for the end."""
    steps = np.array([event.step for event in events])
    if not steps.any():
        return np.arange(len(events) + 1, dtype=float)
    first = np.searchsorted(steps, steps, "left")
    last = np.searchsorted(steps, steps, "right")
    within = (np.arange(len(events)) - first + 0.5) / (last - first)
    return np.append(steps - 0.5 + within, steps[-1] + 0.5)


DASHED: dict[str, Any] = {"color": style.INK, "linewidth": 0.9, "linestyle": (0, (3, 2))}  # the ideal


def draw(axes: Axes, panel: PoolPanel, places: np.ndarray, unit: float, highest: float) -> None:
    """The pool as a grey box up to the first failure, and the blocks in it; bytes in units of `unit`."""
    shown, first = panel.shown, places[0]
    axes.add_patch(Rectangle((first, 0), places[shown] - first, panel.size / unit, facecolor=style.LINE, linewidth=0))
    ends = {event.block: at for at, event in enumerate(panel.events[:shown]) if not event.nbytes}
    shapes: dict[str, list[list[tuple[float, float]]]] = {}
    edges: dict[str, list[float]] = {}
    for at, event in enumerate(panel.events[:shown]):
        if event.nbytes:
            x0, x1 = places[at], places[ends.get(event.block, shown)]
            y0 = panel.addresses[event.block] / unit
            y1 = y0 + rounded(event.nbytes) / unit
            shapes.setdefault(look(event), []).append([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
            visible = len(ends) < 300 and event.nbytes > panel.size / 100
            edges.setdefault(look(event), []).append(0.4 if visible else 0.0)
    for name, corners in shapes.items():
        blocks = PolyCollection(corners, facecolors=LOOKS[name], edgecolors="white", linewidths=edges[name])
        blocks.set_rasterized(len(corners) > style.DETAIL)
        axes.add_collection(blocks)
    axes.plot([first, places[-1]], [panel.size / unit] * 2, color=style.INK, linewidth=1.0, zorder=4)
    if panel.ideal < panel.size:
        axes.plot([first, places[-1]], [panel.ideal / unit] * 2, zorder=4, **DASHED)
    if panel.misfit is not None:  # the request, on the hole that is too small for it
        left, width = places[shown], 0.045 * (places[-1] - first)
        asked = rounded(panel.misfit.event.nbytes) / unit
        axes.axvline(left, color=style.VERMILION, linewidth=0.8, linestyle=(0, (2, 2)), zorder=5)
        axes.add_patch(Rectangle((left, panel.hole / unit), width, asked, **REFUSED, zorder=6))
    axes.tick_params(length=2)
    axes.set(xlim=(first, places[-1]), ylim=(0, 1.04 * highest / unit))


# -- pictures ----------------------------------------------------------------------------------------------------------


def map_picture(program: Program, subtitle: str) -> Figure:
    """A column for each of some heuristics: above, a pool of the ideal size and its failure; below, the pool it takes.

    Planned addresses need no tries: above them are the bytes alive, whose peak is the ideal.
    """
    events = program.allocation_trace()
    least, places, depth = ideal(events), moments(events), program.network.depth
    found = {name: find_pool(events, HEURISTICS[name]) for name in SHOWN}
    upper = [replayed(name, events, HEURISTICS[name], least) for name in SHOWN]
    lower = [replayed(name, events, HEURISTICS[name], found[name].pool_bytes) for name in SHOWN]
    fixed = fix_addresses(events)
    lower.append(PoolPanel(PLANNED, events, fixed.pool_bytes, fixed.ideal_bytes, fixed.addresses))
    highest = max([1.2 * least, *(panel.size for panel in lower), *(panel.reach for panel in upper)])
    unit, name = style.byte_unit(highest)
    with style.page(13, 7.6, "One iteration's blocks in four pools: what is lost to holes", subtitle, HEAD) as figure:
        grid = figure.subplots(2, 4, sharex=True, sharey=True)
        for axes, panel in zip(grid[0], upper, strict=False):
            draw(axes, panel, places, unit, highest)
            axes.set_title(f"{panel.title} ({SHOWN[panel.title]}):\n{panel.outcome}", fontsize=9)
            _say_misfit(axes, panel, places, unit)
        _alive(grid[0][3], events, places, unit)
        for axes, panel in zip(grid[1], lower, strict=True):
            draw(axes, panel, places, unit, highest)
            tries = found[panel.title].tries if panel.title in found else 0
            counted = f", {tries} tries" if tries > 1 else ""
            more = f"+{100 * (panel.size / panel.ideal - 1):.3g} %" if panel.size > panel.ideal else "the ideal"
            how = "planned (fixed addresses)" if panel.title == PLANNED else panel.title
            axes.set_title(f"{how}: {size(panel.size)}, {more}{counted}", fontsize=9)
            axes.set_xlabel(f"step: forward to {depth}, then backward", fontsize=8)
        for axes, panel in zip(grid.flat, [*upper, lower[-1], *lower], strict=True):
            turn: dict[str, Any] = {"color": style.INK, "linewidth": 0.7, "linestyle": (0, (1, 2)), "zorder": 3}
            axes.plot([depth + 0.5] * 2, [0, panel.size / unit], **turn)
        grid[0][0].set_ylabel(f"a pool of the ideal size ({name})")
        grid[1][0].set_ylabel(f"the pool that it takes ({name})")
        _explain(figure, {look(event) for event in events if event.nbytes}, any(panel.misfit for panel in upper))
    return figure


def sizes_picture(
    events: Trace,
    allocator: Allocator,
    sizes: Iterable[int],
    title: str,
    subtitle: str,
    units: tuple[int, str] | None = None,
) -> Figure:
    """The same trace in pools of several sizes, side by side: a larger one can fail where a smaller one does not.

    `units`: bytes and a name, as in (512, "units"), where MiB say little.
    """
    sizes = list(sizes)
    unit, name = units or style.byte_unit(max(sizes))
    panels = [replayed(f"{nbytes / unit:.4g} {name}", events, allocator, nbytes) for nbytes in sizes]
    highest, places = max(panel.reach for panel in panels), moments(events)
    with style.page(2.6 * len(panels) + 0.6, 4.4, title, subtitle, HEAD) as figure:
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)
        for axes, panel in zip(grid[0], panels, strict=True):
            draw(axes, panel, places, unit, highest)
            axes.set_title(f"{panel.title}: {panel.outcome}", fontsize=9)
            axes.set_xlabel("step" if events[-1].step else "allocations and frees")
            _name_blocks(axes, panel, places, unit)
        grid[0][0].set_ylabel(f"address in the pool ({name})")
        _explain(figure, {look(event) for event in events if event.kind}, any(panel.misfit for panel in panels))
    return figure


def _say_misfit(axes: Axes, panel: PoolPanel, places: np.ndarray, unit: float) -> None:
    """Above the pool: the request, and the largest hole."""
    if panel.misfit is None:
        return
    asked, hole = panel.misfit.event.nbytes, panel.misfit.largest_hole
    name = panel.misfit.event.name
    gap = "\n" if len(name) > OWN_LINE else " "
    text = f"{name}{gap}asks {size(asked)},\nlargest hole {size(hole)}"
    span = places[-1] - places[0]
    late = places[panel.shown] - places[0] > 0.5 * span
    x, side = places[panel.shown] + (-0.01 if late else 0.06) * span, "right" if late else "left"
    look: dict[str, Any] = {"fontsize": 8, "color": style.VERMILION, "va": "bottom", "ha": side, "zorder": 7}
    axes.text(x, 1.02 * panel.size / unit, text, **look).set_in_layout(False)


def _name_blocks(axes: Axes, panel: PoolPanel, places: np.ndarray, unit: float) -> None:
    """Blocks' names on them, where there are few."""
    if len(panel.events) > 24:
        return
    for at, event in enumerate(panel.events[: panel.shown]):
        if event.nbytes:
            y = (panel.addresses[event.block] + rounded(event.nbytes) / 2) / unit
            axes.text(places[at] + 0.2, y, event.name, fontsize=8, color="white", va="center", fontweight="bold")


def _alive(axes: Axes, events: Trace, places: np.ndarray, unit: float) -> None:
    """Bytes alive, whatever their addresses; the peak is the ideal."""
    blocks = {event.block: rounded(event.nbytes) for event in events if event.nbytes}
    change = [blocks[event.block] if event.nbytes else -blocks[event.block] for event in events]
    held = np.append(np.cumsum(change), 0) / unit
    axes.fill_between(places, held, step="post", color="#9CA3AF", linewidth=0)
    at = int(held.argmax())
    axes.axhline(held[at], **DASHED)
    axes.set_title(f"alive: {size(int(max(np.cumsum(change))))} at most, the ideal", fontsize=9)


def _explain(figure: Figure, names: set[str], failed: bool) -> None:
    """The meaning of colours and lines."""
    handles: list[Any] = [Patch(facecolor=colour, label=name) for name, colour in LOOKS.items() if name in names]
    handles += [Patch(facecolor=style.LINE, label="free"), Line2D([], [], label="ideal", **DASHED)]
    if failed:
        handles.append(Patch(**REFUSED, label="the refused block, on the largest hole"))
    style.legend_row(figure, handles)


# -- every heuristic ---------------------------------------------------------------------------------------------------

FITS = {"best": style.BLUE, "first": style.ORANGE, "worst": style.GREEN, PLANNED: style.INK}


def bars_picture(rows: Sequence[PoolRow], subtitle: str) -> Figure:
    """The share of each pool beyond the ideal: a group of bars a policy, a panel an order."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    orders: list[Order | None] = [order for order in ORDERS if any(row.order == order for row in rows)]
    title = "What a pool has beyond the ideal, by heuristic, policy and order"
    marks = "S: best fit, prefetch first · R: all else"
    with style.page(11, 1.3 + 2.7 * max(len(orders), 1), title, f"{subtitle} · {marks}", HEAD) as figure:
        grid = figure.subplots(max(len(orders), 1), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, order in zip(grid, orders or [None], strict=True):
            series: dict[str, tuple[dict[str, Any], list[float | None]]] = {}
            for row in rows:
                if row.order in (order, None):
                    _, values = series.setdefault(row.heuristic, (_bar(row.heuristic), []))
                    values.append(100 * row.found.fragmentation)
            grouped_bars(axes, [f"policy {policy}" for policy in policies], series, percent)
            axes.set_title(ORDERS[order] if order else "nothing is prefetched", fontsize=9)
            axes.set_ylabel("beyond the ideal (%)")
        grid[-1].set_ylim(0, 1.12 * max(100 * row.found.fragmentation for row in rows) or 1)
        style.legend_row(figure, [Patch(**_bar(name), label=name) for name in (*HEURISTICS, PLANNED)])
    return figure


def _bar(heuristic: str) -> dict[str, Any]:
    """The fit's colour; right placement is hatched."""
    fit, _, side = heuristic.partition(" ")
    return {"facecolor": FITS[fit], "hatch": "////" if side == "right" else ""}


def percent(beyond: float) -> str:
    """Two digits, or as many as can be told apart on a bar."""
    if not beyond:
        return "0"
    return f"{beyond:.0f}" if beyond >= 9.95 else f"{beyond:.1f}" if beyond >= 0.095 else f"{beyond:.2f}"

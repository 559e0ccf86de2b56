"""Pictures of fragmentation: where blocks and holes lie in a pool over time, and what each heuristic wastes.

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

from refimpl.memory import Allocator
from refimpl.memory.fixed_addresses import fix_addresses
from refimpl.memory.trace import Event, Misfit, Trace, ideal, replay, rounded
from refimpl.planner import Program
from refimpl.report import style
from refimpl.reproduce.vdnnpp.fragmentation import HEURISTICS, ORDERS, PLANNED, Order, Row
from refimpl.text import size
from refimpl.vdnnpp.pool_search import find_pool

FREE = "#E5E7EB"
LOOKS: dict[str, tuple[str, str]] = {
    "stays": (style.BLUE, ""),
    "comes and goes": (style.SKY, ""),
    "gradient map": (style.ORANGE, ""),
    "weight gradient": (style.PURPLE, ""),
    "workspace": (style.GREEN, ""),
}
REFUSED: dict[str, Any] = {"edgecolor": style.VERMILION, "facecolor": "#D55E0040", "linewidth": 1.4}
LONG = 16  #: letters of a block's name that has a line of its own
SHOWN = ("best left", "best right", "first left")  #: beside `planned`
HEAD = 0.8  #: inches at the top


def look(event: Event) -> str:
    """One of the LOOKS: what a block is to the pool."""
    if event.kind in ("workspace", "weight gradient", "gradient map"):
        return event.kind
    return "stays" if event.stays else "comes and goes"


# -- one replay --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A trace in one pool; up to where it went."""

    title: str
    events: Trace
    size: int  #: of the pool, bytes
    ideal: int  #: bytes
    addresses: Mapping[int, int]  #: block → address
    misfit: Misfit | None = None
    hole: int = 0  #: where the hole lies that the misfit could have had

    @property
    def shown(self) -> int:
        """How many events there are to see."""
        return len(self.events) if self.misfit is None else self.events.index(self.misfit.event)


def replayed(title: str, events: Trace, allocator: Allocator, nbytes: int) -> Panel:
    """The trace in a pool of so many bytes."""
    pool, addresses = allocator.open(nbytes), dict[int, int]()
    misfit = replay(events, pool, addresses)
    hole = 0
    if misfit is not None:
        hole = next((at for at, free in reversed(pool.holes()) if free == misfit.largest_hole), pool.size)
    return Panel(title, events, nbytes, ideal(events), addresses, misfit, hole)


def planned_panel(events: Trace) -> Panel:
    """The trace at addresses that were fixed beforehand."""
    fixed = fix_addresses(events)
    return Panel(PLANNED, events, fixed.pool_bytes, fixed.ideal_bytes, fixed.addresses)


def moments(events: Trace) -> np.ndarray:
    """Event → where it stands on an axis of steps; without steps it counts events.  One entry more."""
    steps = np.array([event.step for event in events])
    if not steps.any():
        return np.arange(len(events) + 1, dtype=float)
    first = np.searchsorted(steps, steps, "left")
    last = np.searchsorted(steps, steps, "right")
    within = (np.arange(len(events)) - first + 0.5) / (last - first)
    return np.append(steps - 0.5 + within, steps[-1] + 0.5)


def draw(axes: Axes, panel: Panel, places: np.ndarray, unit: float) -> None:
    """The pool as a grey box, blocks on it, and what did not fit; bytes in units of `unit`."""
    axes.add_patch(
        Rectangle((places[0], 0), places[panel.shown] - places[0], panel.size / unit, facecolor=FREE, linewidth=0)
    )
    ends = {event.block: at for at, event in enumerate(panel.events[: panel.shown]) if not event.nbytes}
    shapes: dict[str, list[list[tuple[float, float]]]] = {}
    edges: dict[str, list[float]] = {}
    few = len(ends) < 300
    for at, event in enumerate(panel.events[: panel.shown]):
        if event.nbytes:
            x0, x1 = places[at], places[ends.get(event.block, panel.shown)]
            y0 = panel.addresses[event.block] / unit
            y1 = y0 + rounded(event.nbytes) / unit
            shapes.setdefault(look(event), []).append([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
            edges.setdefault(look(event), []).append(0.4 if few and event.nbytes > panel.size / 100 else 0.0)
    for name, corners in shapes.items():
        blocks = PolyCollection(corners, facecolors=LOOKS[name][0], edgecolors="white", linewidths=edges[name])
        blocks.set_rasterized(len(corners) > style.DETAIL)
        axes.add_collection(blocks)
    axes.plot([places[0], places[-1]], [panel.size / unit] * 2, color=style.INK, linewidth=1.0, zorder=4)
    if panel.ideal < panel.size:
        line: dict[str, Any] = {"color": style.INK, "linewidth": 0.9, "linestyle": (0, (3, 2)), "zorder": 4}
        axes.plot([places[0], places[-1]], [panel.ideal / unit] * 2, **line)
    if panel.misfit is not None:
        _misfit(axes, panel, panel.misfit, places, unit)


def _misfit(axes: Axes, panel: Panel, misfit: Misfit, places: np.ndarray, unit: float) -> None:
    """What was asked for, on the hole that is too small for it."""
    left = places[panel.shown]
    width = 0.045 * (places[-1] - places[0])
    asked = rounded(misfit.event.nbytes) / unit
    axes.axvline(left, color=style.VERMILION, linewidth=0.8, linestyle=(0, (2, 2)), zorder=5)
    axes.add_patch(Rectangle((left, panel.hole / unit), width, asked, **REFUSED, zorder=6))


# -- pictures ----------------------------------------------------------------------------------------------------------


def map_picture(program: Program, subtitle: str) -> Figure:
    """A column for each of some heuristics: above, the pool of the ideal size and where it fails; below, what it takes.

    Planned addresses need no tries: above them stands what is alive, whose peak is the ideal.
    """
    events = program.allocation_trace()
    least = ideal(events)
    found = {name: find_pool(events, HEURISTICS[name].allocator) for name in SHOWN}
    upper = [replayed(name, events, HEURISTICS[name].allocator, least) for name in SHOWN]
    lower = [replayed(name, events, HEURISTICS[name].allocator, found[name].pool_bytes) for name in SHOWN]
    lower.append(planned_panel(events))
    highest = max([1.2 * least, *(panel.size for panel in lower), *map(_reach, upper)])
    unit, name = style.byte_unit(highest)
    places = moments(events)
    with style.styled():
        title = "One iteration's blocks in four pools: what is lost to holes"
        figure = style.new_figure(13, 7.6, title, subtitle, HEAD)
        grid = figure.subplots(2, 4, sharex=True, sharey=True)
        for axes, panel in zip(grid[0], upper, strict=False):
            draw(axes, panel, places, unit)
            axes.set_title(f"{panel.title}: {_outcome(panel)}", fontsize=9)
            _say_misfit(axes, panel, places, unit)
        _alive(grid[0][3], events, places, unit)
        for axes, panel in zip(grid[1], lower, strict=True):
            draw(axes, panel, places, unit)
            tries = found[panel.title].tries if panel.title in found else 0
            counted = f", {tries} tries" if tries > 1 else ""
            more = f"+{100 * (panel.size / panel.ideal - 1):.3g} %" if panel.size > panel.ideal else "the ideal"
            axes.set_title(f"{panel.title}: {size(panel.size)}, {more}{counted}", fontsize=9)
        for axes in grid.flat:
            axes.tick_params(length=2)
            axes.set_xlim(places[0], places[-1])
            axes.set_ylim(0, 1.04 * highest / unit)
        for axes, panel in zip(grid.flat, [*upper, lower[-1], *lower], strict=True):
            turn: dict[str, Any] = {"color": style.INK, "linewidth": 0.7, "linestyle": (0, (1, 2)), "zorder": 3}
            axes.plot([program.network.depth + 0.5] * 2, [0, panel.size / unit], **turn)
        for axes in grid[1]:
            axes.set_xlabel(f"step: forward to {program.network.depth}, then backward", fontsize=8)
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
    highest = max(map(_reach, panels))
    places = moments(events)
    with style.styled():
        figure = style.new_figure(2.6 * len(panels) + 0.6, 4.4, title, subtitle, HEAD)
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)
        for axes, panel in zip(grid[0], panels, strict=True):
            draw(axes, panel, places, unit)
            axes.set_title(f"{panel.title}: {_outcome(panel)}", fontsize=9)
            axes.set_xlim(places[0], places[-1])
            axes.set_ylim(0, 1.04 * highest / unit)
            axes.set_xlabel("step" if events[-1].step else "allocations and frees")
            _name_blocks(axes, panel, places, unit)
        grid[0][0].set_ylabel(f"address in the pool ({name})")
        _explain(figure, {look(event) for event in events if event.kind}, any(panel.misfit for panel in panels))
    return figure


def _reach(panel: Panel) -> int:
    """Up to where a panel is drawn, bytes."""
    return panel.size if panel.misfit is None else max(panel.size, panel.hole + rounded(panel.misfit.event.nbytes))


def _outcome(panel: Panel) -> str:
    if panel.misfit is None:
        return "all of it fits"
    step = f" in step {panel.misfit.event.step}" if panel.misfit.event.step else ""
    return f"fails{step}"


def _say_misfit(axes: Axes, panel: Panel, places: np.ndarray, unit: float) -> None:
    """Above the pool: what was asked for, and what there was."""
    if panel.misfit is None:
        return
    asked, hole = panel.misfit.event.nbytes, panel.misfit.largest_hole
    name = panel.misfit.event.name
    gap = "\n" if len(name) > LONG else " "
    text = f"{name}{gap}asks {size(asked)},\nlargest hole {size(hole)}"
    span = places[-1] - places[0]
    late = places[panel.shown] - places[0] > 0.5 * span
    x, side = places[panel.shown] + (-0.01 if late else 0.06) * span, "right" if late else "left"
    look: dict[str, Any] = {"fontsize": 8, "color": style.VERMILION, "va": "bottom", "ha": side, "zorder": 7}
    axes.text(x, 1.02 * panel.size / unit, text, **look).set_in_layout(False)


def _name_blocks(axes: Axes, panel: Panel, places: np.ndarray, unit: float) -> None:
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
    axes.axhline(held[at], color=style.INK, linewidth=0.9, linestyle=(0, (3, 2)))
    axes.set_title(f"alive: {size(int(max(np.cumsum(change))))} at most, the ideal", fontsize=9)


def _explain(figure: Figure, names: set[str], failed: bool) -> None:
    """What colours and lines mean."""
    handles: list[Any] = [Patch(facecolor=LOOKS[name][0], label=name) for name in LOOKS if name in names]
    handles.append(Patch(facecolor=FREE, label="free"))
    handles.append(Line2D([], [], color=style.INK, linewidth=0.9, linestyle=(0, (3, 2)), label="ideal"))
    if failed:
        handles.append(Patch(**REFUSED, label="asked for, on the largest hole it could have had"))
    _legend(figure, handles)


def _legend(figure: Figure, handles: list[Any]) -> None:
    """A row below the subtitle."""
    place = 0.1 / figure.get_figwidth(), 1 - 0.58 / figure.get_figheight()
    row = figure.legend(handles=handles, loc="upper left", bbox_to_anchor=place, ncols=len(handles), **style.LEGEND)
    row.set_in_layout(False)


# -- every heuristic ---------------------------------------------------------------------------------------------------

FITS = {"best": style.BLUE, "first": style.ORANGE, "worst": style.GREEN, PLANNED: style.INK}


def bars_picture(rows: Sequence[Row], subtitle: str) -> Figure:
    """What pools have beyond the ideal: a group of bars a policy, a panel an order."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    panels: dict[str, Order | None] = {
        words: order for order, words in ORDERS.items() if any(row.order == order for row in rows)
    }
    panels = panels or {"nothing comes back": None}
    with style.styled():
        title = "What a pool has beyond the ideal, by heuristic, policy and order"
        marks = "S: best fit, prefetch first · R: all else"
        figure = style.new_figure(11, 1.3 + 2.7 * len(panels), title, f"{subtitle} · {marks}", HEAD)
        grid = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (words, order) in zip(grid, panels.items(), strict=True):
            for place, policy in enumerate(policies):
                _bars(axes, place, [row for row in rows if row.policy == policy and row.order in (order, None)])
            axes.set_ylabel("beyond the ideal (%)")
            axes.set_title(words, fontsize=9)
            axes.grid(axis="y", color="#E5E7EB", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.tick_params(axis="x", length=0)
        grid[-1].set_xlim(-0.5, len(policies) - 0.5)
        grid[-1].set_ylim(0, 1.12 * max(100 * row.found.fragmentation for row in rows) or 1)
        grid[-1].set_xticks(range(len(policies)), [f"policy {policy}" for policy in policies], fontsize=9)
        _legend(figure, [Patch(**_bar(name), label=name) for name in (*HEURISTICS, PLANNED)])
    return figure


def _bars(axes: Axes, place: int, group: Sequence[Row]) -> None:
    """One policy's heuristics, side by side."""
    for number, row in enumerate(group):
        beyond = 100 * row.found.fragmentation
        x = place + (number - (len(group) - 1) / 2) * 0.12
        axes.bar(x, beyond, 0.105, linewidth=0, **_bar(row.heuristic))
        axes.annotate(percent(beyond), (x, beyond), (0, 2), textcoords="offset points", fontsize=7, ha="center")


def _bar(heuristic: str) -> dict[str, Any]:
    """The fit's colour; right placement is hatched."""
    fit, _, side = heuristic.partition(" ")
    return {"facecolor": FITS[fit], "hatch": "////" if side == "right" else ""}


def percent(beyond: float) -> str:
    """Two digits, or as many as can be told apart on a bar."""
    if not beyond:
        return "0"
    return f"{beyond:.0f}" if beyond >= 9.95 else f"{beyond:.1f}" if beyond >= 0.095 else f"{beyond:.2f}"

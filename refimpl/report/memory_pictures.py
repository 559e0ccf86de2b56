"""Two pictures of device memory over the steps: bytes by kind, and the blocks in the pool by address."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from refimpl.planner import Program
from refimpl.report import style
from refimpl.report.figures import KINDS, Fragmentation, Layout, fragmentation, memory_curve, title
from refimpl.text import size

Corners = tuple[float, float, int, int]  #: of a rectangle: left, right, bottom, top

MOSTLY = 2 / 3  #: share of the peak: where resident tensors are more, pictures begin above them


# -- bytes by kind -----------------------------------------------------------------------------------------------------


def memory_picture(program: Program) -> Figure:
    """Bytes held by the pool, stacked by kind, over the steps of the iteration; budget and peak are marked.

    Where nearly all of it is resident tensors, these are left out, and the axis says so.
    """
    curve = memory_curve(program)
    total = curve.total
    places = style.step_axis(program)[np.maximum(curve.positions, 0)]
    base = int(curve.by_kind["resident"][0])
    base = base if MOSTLY * total.max() < base < total.max() else 0
    kinds = [kind for kind in KINDS if curve.by_kind[kind].any() and not (base and kind == "resident")]
    with style.page(11, 5.2, "What fills device memory, step by step", title(program)) as figure:
        axes = figure.add_subplot()
        end = len(program.network.steps) + 0.5
        x = np.append(places, end)
        lower = np.zeros(len(x))
        for kind in kinds:
            held = curve.by_kind[kind]
            upper = lower + np.append(held, held[-1])
            colour, hatch = style.KIND_STYLE[kind]
            area = axes.fill_between(x, lower, upper, step="post", facecolor=colour, hatch=hatch, linewidth=0)
            area.set_rasterized(len(x) > style.DETAIL)
            lower = upper
        peak = int(total.max()) - base
        label = f"held above {size(base)} of resident tensors" if base else "held by the pool"
        style.byte_axis(axes, max(peak, program.budget - base) if _near(program, base, peak) else peak * 1.08, label)
        middle = _marked_at(curve.positions, total, style.step_axis(program))
        _budget(axes, program, base, peak, left=middle > end / 2)
        style.label_steps(axes, program)
        style.mark_turn(axes, program)
        _mark_peak(axes, program, middle, base, peak, int(curve.steps[curve.peak]))
        style.legend(figure, style.KIND_STYLE, kinds)
    return figure


def _marked_at(positions: np.ndarray, held: np.ndarray, places: np.ndarray) -> float:
    """The middle of the time at the peak, as far as it is in one step, on the axis of steps."""
    peak = int(held.argmax())
    begin = places[max(positions[peak], 0)]
    after = peak + int((held[peak:] < held[peak]).argmax())  # itself, if it never falls
    end = places[positions[after]] if after > peak else places[-1]
    return float(begin + min(end, np.floor(begin + 0.5) + 0.5)) / 2


def _near(program: Program, base: int, peak: int) -> bool:
    """Whether the budget is in the picture."""
    return program.budget - base <= 1.6 * peak


def _budget(axes: Axes, program: Program, base: int, peak: int, left: bool) -> None:
    """The line that must not be crossed, or an arrow where it is far away; named on the side without the peak."""
    text = f"budget {size(program.budget)}"
    if _near(program, base, peak):
        line = program.budget - base
        style.limit(axes, line)
        x, ha = (0.6, "left") if left else (len(program.network.steps) + 0.4, "right")
        axes.text(x, line, text, color=style.VERMILION, va="bottom", ha=ha, fontsize=8)
    else:
        x, ha = (0.01, "left") if left else (0.99, "right")
        axes.text(x, 0.99, f"↑ {text}", transform=axes.transAxes, color=style.VERMILION, va="top", ha=ha, fontsize=8)


def _mark_peak(axes: Axes, program: Program, x: float, base: int, peak: int, number: int) -> None:
    """A dot, and words above it; above the budget's line too, where that is close."""
    step = program.network.steps[max(number, 1) - 1]
    text = f"{size(base + peak)} at most: step {step.number}, {step.title}"
    axes.plot([x], [peak], marker="o", markersize=5, color=style.INK, markeredgecolor="white", zorder=5)
    place = x / len(program.network.steps)
    side = "left" if place < 0.2 else "right" if place > 0.8 else "center"
    line = program.budget - base
    y = line if line - peak < 0.1 * peak else peak
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.9}
    where: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "ha": side, "va": "bottom"}
    axes.annotate(text, (x, y), fontsize=8, zorder=6, bbox=box, **where)


# -- addresses ---------------------------------------------------------------------------------------------------------


def pool_picture(program: Program) -> Figure:
    """The pool's addresses over the steps, every block in its kind's colour; its holes; and the pool at its peak.

    Where nearly all of it is resident tensors, it is drawn from the end of these.
    """
    pool = fragmentation(program)
    layout = pool.layout(pool.peak)
    places = style.step_axis(program)
    base = _resident_end(pool)
    base = base if MOSTLY * program.arena_bytes < base < program.arena_bytes else 0
    top = max(program.arena_bytes, 1) - base
    with style.page(11, 7.4, "Blocks in the pool by address, and the holes between them", title(program)) as figure:
        grid = figure.add_gridspec(2, 2, width_ratios=(14, 1), height_ratios=(3.4, 1))
        axes, column, below = (figure.add_subplot(cell) for cell in (grid[0, 0], grid[0, 1], grid[1, 0]))
        kinds = _blocks(axes, pool, places, base)
        style.byte_axis(axes, top, f"address above {size(base)} of resident tensors" if base else "address in the pool")
        axes.set_ylim(0, top)
        axes.grid(False)
        style.label_steps(axes, program)
        axes.set_xlabel("")
        axes.tick_params(axis="x", labelbottom=False)
        style.mark_turn(axes, program)
        x = _marked_at(pool.positions, -pool.hole_bytes, places)
        for panel in (axes, below):
            panel.axvline(x, color=style.INK, linewidth=0.8)
        _column(column, layout, base, top, int(program.instructions[max(pool.peak, 0)].step))
        _holes(below, program, pool, places)
        names = [kind for kind in KINDS if kind in kinds]
        style.legend(figure, style.KIND_STYLE, names)
    return figure


def _resident_end(pool: Fragmentation) -> int:
    """The end of the resident tensors that are in one piece from address 0, bytes."""
    end = 0
    for life in sorted((life for life in pool.lifetimes if life.kind == "resident"), key=lambda life: life.address):
        if life.address > end:
            break
        end = life.address + life.nbytes
    return end


def _blocks(axes: Axes, pool: Fragmentation, places: np.ndarray, base: int) -> set[str]:
    """A rectangle for every block above `base`, its draining part in another colour; the kinds there are."""
    corners: dict[str, list[Corners]] = {}
    for life in pool.lifetimes:
        bottom, top = life.address - base, life.address - base + life.nbytes
        if bottom < 0:
            continue
        begin, let_go, end = (places[max(position, 0)] for position in (life.begin, life.let_go, life.end))
        corners.setdefault(life.kind, []).append((begin, let_go, bottom, top))
        if let_go < end:
            corners.setdefault("draining", []).append((let_go, end, bottom, top))
    _draw(axes, corners)
    return set(corners)


def _draw(axes: Axes, corners: dict[str, list[Corners]]) -> None:
    """Rectangles in their kinds' colours."""
    corners = {kind: merged(found) if kind == "resident" else found for kind, found in corners.items()}
    count = sum(map(len, corners.values()))
    for kind, found in corners.items():
        x0, x1, y0, y1 = np.array(found, dtype=float).T
        shapes = np.stack([x0, y0, x1, y0, x1, y1, x0, y1], axis=1).reshape(-1, 4, 2)
        colour, hatch = style.KIND_STYLE[kind]
        edge = 0.3 if count < 400 else 0.0
        blocks = PolyCollection(list(shapes), facecolors=colour, edgecolors="white", linewidths=edge, hatch=hatch)
        blocks.set_rasterized(count > style.DETAIL)
        axes.add_collection(blocks)


def merged(found: list[Corners]) -> list[Corners]:
    """Rectangles one above the other, those that touch joined."""
    joined: list[Corners] = []
    for left, right, bottom, top in sorted(found, key=lambda corners: corners[2]):
        if joined and joined[-1][3] == bottom:
            joined[-1] = (left, right, joined[-1][2], top)
        else:
            joined.append((left, right, bottom, top))
    return joined


def _column(axes: Axes, layout: Layout, base: int, top: int, step: int) -> None:
    """The pool at its fullest, the largest blocks named."""
    corners: dict[str, list[Corners]] = {}
    for life in layout.blocks:
        address = life.address - base
        if address < 0:
            continue
        kind = "draining" if life.let_go <= layout.position else life.kind
        corners.setdefault(kind, []).append((0, 1, address, address + life.nbytes))
        if kind != "resident" and life.nbytes > 0.022 * top:
            axes.text(1.12, address + life.nbytes / 2, life.tensor.name, fontsize=6.5, va="center", ha="left")
    _draw(axes, corners)
    axes.set(xlim=(0, 1), ylim=(0, top), xticks=[], yticks=[])
    axes.set_title(f"at its fullest,\nstep {step}", fontsize=8, loc="center")
    for side in axes.spines.values():
        side.set_visible(True)


def _holes(axes: Axes, program: Program, pool: Fragmentation, places: np.ndarray) -> None:
    """Bytes in holes over the steps, and those of the largest hole."""
    x = np.append(places[np.maximum(pool.positions, 0)], len(program.network.steps) + 0.5)
    held, largest = (np.append(values, values[-1]) for values in (pool.hole_bytes, pool.largest_hole))
    axes.fill_between(x, 0, largest, step="post", color="#D1D5DB", linewidth=0, label="largest hole")
    axes.step(x, held, where="post", color=style.INK, linewidth=1.0, label="all holes")
    style.byte_axis(axes, float(held.max()), "holes")
    style.label_steps(axes, program)
    axes.legend(fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0, 0.97), borderaxespad=0)

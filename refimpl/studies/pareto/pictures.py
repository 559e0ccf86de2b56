"""A picture of slow-down over budget: setups as thin lines, the best of each group bold, a policy and a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from refimpl.report import style
from refimpl.studies.drawing import OTHER_COLOURS, PAPER_COLOURS

OTHERS = (*PAPER_COLOURS.values(), *OTHER_COLOURS)  #: of setups of --with, in their order
HIGHEST = 3.2  #: slow-down; lines go on above it
TICKS = 6  #: on the axis of budgets

Line = Sequence[float | None]  #: slow-downs; None where nothing fits


class CurveGroup(NamedTuple):
    """The setups of a paper, or others that belong together."""

    thin: Sequence[Line]
    bold: Line | None  #: the best of them at each budget; None: there is no best to look at


def pareto_picture(
    subtitle: str,
    budgets: Sequence[int],
    groups: Mapping[str, CurveGroup],
    policies: Mapping[str, Line],
    bound: Line | None,
    single_step: int,
) -> Figure:
    """Stepped lines: a program for one budget runs in every larger one.

    Args:
        subtitle: network, batch, machine, and that it is simulated.
        budgets: bytes, ascending.
        groups: name → its lines.
        policies: name → line, drawn above the groups'.
        bound: the lower bound, if it was solved.
        single_step: bytes without which no policy fits.
    """
    with style.page(9.5, 5.4, "Slow-down over budget", subtitle, head=0.55) as figure:
        axes: Axes = figure.subplots()
        right = budgets[-1] * (budgets[-1] / min(single_step, budgets[0])) ** 0.04
        draw = partial(steps, axes, budgets, right)
        for other, (name, group) in zip(OTHERS, groups.items(), strict=False):
            colour = PAPER_COLOURS.get(name, other)
            for number, line in enumerate(group.thin):
                label = name if group.bold is None and number == 0 else None
                width, alpha = (0.6, 0.45) if group.bold else (1.2, 1.0)
                draw(line, color=colour, linewidth=width, alpha=alpha, label=label)
            if group.bold:
                draw(group.bold, color=colour, linewidth=2.0, marker=".", label=f"best of {name}")
        for name, line in policies.items():
            draw(line, color=style.VERMILION, linewidth=2.6, marker="o", markersize=4, label=name)
        if bound:  # a bound holds for all smaller budgets, too
            seen = [np.nan if value is None else value for value in bound]
            look: Any = {"color": style.INK, "linewidth": 1.4, "linestyle": (0, (1, 1.2)), "marker": "."}
            axes.step(budgets, seen, where="pre", label="lower bound", **look)
        axes.axhline(1, color=style.PALE, linewidth=0.8, label="floor: fastest calls, no wait")
        style.limit(axes, single_step, across=False, label="least that one step needs", color=style.PALE)
        bold = [group.bold for group in groups.values() if group.bold]
        scales(axes, budgets, single_step, right, [*bold, *policies.values()])
        style.legend_above(axes, 5)
    return figure


def steps(axes: Axes, budgets: Sequence[int], right: float, line: Line, **look: Any) -> None:
    """A stepped line from the first budget that fits to the right end; a gap where nothing fits."""
    seen = [np.nan if value is None else value for value in line]
    if not np.all(np.isnan(seen)):
        axes.step([*budgets, right], [*seen, seen[-1]], where="post", markevery=slice(0, len(budgets)), **look)


def scales(axes: Axes, budgets: Sequence[int], single_step: int, right: float, lines: Sequence[Line]) -> None:
    """Budgets in geometric steps; slow-downs from a little below 1 to the highest of the lines, or to `HIGHEST`."""
    axes.set_xscale("log")
    left = min(single_step, budgets[0])
    axes.set_xlim(left * (left / right) ** 0.03, right)
    unit, name = style.byte_unit(budgets[-1])
    ticks = np.geomspace(left, budgets[-1], TICKS)
    axes.set_xticks(ticks, [f"{tick / unit:.3g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"budget ({name})")
    highest = max((value for line in lines for value in line if value is not None), default=1.0)
    top = min(HIGHEST, max(1.05, 1 + 1.08 * (highest - 1)))
    axes.set_ylim(1 - 0.03 * (top - 1), top)
    axes.set_ylabel("× the baseline with memory enough")
    style.grid(axes, "y")

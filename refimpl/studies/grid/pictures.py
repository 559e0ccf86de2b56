"""Pictures of any file of rows: setup by budget, slow-down over budget, performance profile, slow-down over memory.

A picture of one network alone, with the best of each paper, is in `over_budget`.

A *case* is a network with its batch on a machine.  A *point* is a case and a budget; each setup has a row for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import geometric_mean
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.names.presets import PAPERS
from refimpl.points.many_plans import Row, RowsError
from refimpl.report import style
from refimpl.studies.drawing import OTHER_COLOURS, PAPER_COLOURS
from refimpl.studies.grid.over_budget import Curves, picture
from refimpl.studies.grid.rows import is_bound
from refimpl.text import counted

PANELS = 20  #: cases that one picture shows, each in a panel
ACROSS = 4  #: panels side by side
HIGHEST = 4.0  #: times the best: the right end of a profile
#: Of a paper's setups.
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (1, 3)))
MARKS = ("o", "s", "^", "D", "v")
SIMULATED = "simulated; × the baseline with memory enough"

Case: TypeAlias = tuple[str, int, str]  #: network, batch, machine


def drawn(kind: str, rows: Sequence[Row]) -> Figure:
    """One of `KINDS` of the command; raises `RowsError` where the rows have nothing to draw."""
    asked = [row for row in rows if row.get("fits") is not None]
    if kind not in ("slow-down", "pareto"):  # the bound is no plan, and has no peak
        asked = [row for row in asked if not is_bound(row["setup"])]
    if not any(row["fits"] for row in asked):
        raise RowsError(f"none of {counted(len(rows), 'row')} fits its budget, so there is nothing to draw")
    pictures: dict[str, Callable[[Sequence[Row]], Figure]] = {
        "heat-map": heat_map, "slow-down": slow_down_picture, "profile": profile_picture, "memory": memory_front,
        "pareto": lambda rows: picture(Curves.of(rows)),
    }  # fmt: skip
    with style.styled():
        return pictures[kind](asked)


# -- what there is to draw ---------------------------------------------------------------------------------------------


def case_of(row: Row) -> Case:
    return row["network"], row["batch"], row["machine"]


def cases_of(rows: Iterable[Row]) -> list[Case]:
    return sorted({case_of(row) for row in rows})


def setups_of(rows: Iterable[Row]) -> list[str]:
    """The setups, whatever the order of the rows: the papers', in the papers' order, then others by name."""
    presets = [preset for those in PAPERS.values() for preset in those]

    def place(setup: str) -> tuple[int, str]:
        preset = preset_of(setup)
        return presets.index(preset) if preset in presets else len(presets), setup

    return sorted({row["setup"] for row in rows}, key=place)


def budgets_of(rows: Sequence[Row]) -> list[str]:
    """The budgets as they were written, by their mean in bytes."""
    of: dict[str, list[float]] = {}
    for row in rows:
        of.setdefault(row["budget"], []).append(row["budget_bytes"])
    return sorted(of, key=lambda budget: (geometric_mean(of[budget]), budget))


def preset_of(setup: str) -> str:
    """The first word of a setup's name."""
    return setup.replace(",", " ").split()[0]


def factors(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Setup → of each point that some setup fits, its slow-down over the least there; infinity: no fit."""
    points: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        where = points.setdefault((*case_of(row), row["budget"]), {})
        where[row["setup"]] = row["slow_down"] if row["fits"] else math.inf
    found: dict[str, list[float]] = {setup: [] for setup in setups_of(rows)}
    for point in points.values():
        best = min(point.values())
        for setup, value in point.items() if best < math.inf else ():
            found[setup].append(value / best)
    return found


def looks(setups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Setup → its look: the colour is its paper's; dashes and marks tell a paper's setups apart; one's own is bold."""
    papers = {preset: paper for paper, presets in PAPERS.items() for preset in presets}
    known: dict[str, list[str]] = {}
    for setup in setups:
        preset = preset_of(setup)
        known.setdefault(papers.get(preset, f"own {preset}"), []).append(setup)
    others = [paper for paper in known if paper not in PAPER_COLOURS]
    colours = {paper: OTHER_COLOURS[place % len(OTHER_COLOURS)] for place, paper in enumerate(others)}
    return {
        setup: {
            "color": (PAPER_COLOURS | colours)[paper],
            "linestyle": DASHES[place % len(DASHES)],
            "marker": MARKS[place % len(MARKS)],
            "linewidth": 2.8 if ":" in preset_of(setup) else 1.5,  # the reader's own
        }
        for paper, those in known.items()
        for place, setup in enumerate(those)
    }


# -- the pictures ------------------------------------------------------------------------------------------------------


def heat_map(rows: Sequence[Row]) -> Figure:
    """A row a setup, a column a budget: the geometric mean over the cases, and how many of them fit."""
    setups, budgets, cases = setups_of(rows), budgets_of(rows), cases_of(rows)
    cells = {
        (setup, budget): [row for row in rows if row["setup"] == setup and row["budget"] == budget]
        for setup in setups
        for budget in budgets
    }
    means = {
        at: geometric_mean([row["slow_down"] for row in here if row["fits"]])
        for at, here in cells.items()
        if any(row["fits"] for row in here)
    }
    subtitle = f"{where(cases)} · {SIMULATED}" + ", geometric mean of those that fit" * (len(cases) > 1)
    width, height = 2.6 + 0.85 * len(budgets), 1.3 + 0.34 * len(setups)
    figure = style.new_figure(max(width, 7.0), height, "Slow-down by setup and budget", subtitle, head=0.6)
    axes = figure.subplots()
    values = np.array([[means.get((setup, budget), np.nan) for budget in budgets] for setup in setups])
    top = max(1.05, min(HIGHEST, float(np.nanmax(values))))
    axes.imshow(np.log(values), cmap="Blues", vmin=0, vmax=1.25 * math.log(top), aspect="auto")
    for y, setup in enumerate(setups):
        for x, budget in enumerate(budgets):
            here = cells[setup, budget]
            fitting = sum(row["fits"] for row in here)
            text = f"{means[setup, budget]:.2f}" if fitting else "–" if here else ""
            if 0 < fitting < len(here):
                text += f"\n{fitting} of {len(here)}"
            dark = fitting and means[setup, budget] > top**0.75
            axes.text(x, y, text, ha="center", va="center", fontsize=7.5, color="white" if dark else style.INK)
    axes.set_xticks(range(len(budgets)), [budget or "all" for budget in budgets])
    axes.set_yticks(range(len(setups)), setups)
    axes.set_xlabel("budget, as the study has it  (–: does not fit)")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def slow_down_picture(rows: Sequence[Row]) -> Figure:
    """A panel a case: a line a setup over the budget in bytes, and its interval where the rows have one."""
    bands = any(row.get("slow_down_low") is not None for row in rows)
    note = "; bands: 5 to 95 % on machines that differ from the model" if bands else ""

    def draw(axes: Axes, here: Sequence[Row], look: dict[str, Any]) -> None:
        line = sorted((row for row in here if row["fits"]), key=lambda row: row["budget_bytes"])
        x = [row["budget_bytes"] for row in line]
        axes.plot(x, [row["slow_down"] for row in line], markersize=3, **look)
        if all(row.get("slow_down_low") is not None for row in line):
            low, high = ([row[name] for row in line] for name in ("slow_down_low", "slow_down_high"))
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)

    return panels(rows, "Slow-down over budget", f"{SIMULATED}{note}", "budget_bytes", "budget", draw)


def memory_front(rows: Sequence[Row]) -> Figure:
    """A panel a case: a mark a program at the memory that it uses; the line joins those that no other one beats."""

    def draw(axes: Axes, here: Sequence[Row], look: dict[str, Any]) -> None:
        fitting = [row for row in here if row["fits"]]
        x, y = ([row[name] for row in fitting] for name in ("peak_bytes", "slow_down"))
        axes.plot(x, y, markersize=4.5, **look | {"linestyle": "none"})

    figure = panels(rows, "Slow-down over memory", SIMULATED, "peak_bytes", "memory in use at most", draw)
    for axes, case in zip(figure.axes, cases_of(rows), strict=False):
        front = unbeaten(
            [(row["peak_bytes"], row["slow_down"]) for row in rows if case_of(row) == case and row["fits"]]
        )
        axes.step([x for x, _ in front], [y for _, y in front], where="post", color=style.INK, linewidth=0.9, zorder=1)
    return figure


def unbeaten(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other point beats in both numbers, by the first one."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if not front or y < front[-1][1]:
            front.append((x, y))
    return front


def profile_picture(rows: Sequence[Row]) -> Figure:
    """A line a setup: the share of the points at which it is within a factor of the best setup there."""
    found = factors(rows)
    number = max(map(len, found.values()))
    subtitle = f"{where(cases_of(rows))} · {counted(number, 'point')} that some setup fits · simulated"
    figure = style.new_figure(8.5, 4.8, "Performance profile", subtitle, head=0.55)
    axes = figure.subplots()
    ends = [value for values in found.values() for value in values if value < math.inf]
    right = min(HIGHEST, max(1.05, 1.02 * max(ends)))
    order = sorted(found, key=lambda setup: -sum(value <= math.sqrt(right) for value in found[setup]))
    for setup in order:
        x, y = profile_line(found[setup], right)
        axes.step(x, y, where="post", label=setup, **looks([*found])[setup] | {"marker": ""})
    axes.set_xlim(1, right)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("at most this many times the least slow-down of all setups at the point")
    axes.set_ylabel("share of the points")
    style.grid(axes)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), **style.LEGEND)
    return figure


def profile_line(values: Sequence[float], right: float) -> tuple[list[float], list[float]]:
    """The corners of a stepped line from 1 to the right end."""
    steps = sorted(value for value in values if value <= right)
    x = [1.0, *steps, right]
    return x, [sum(value <= at for value in steps) / len(values) for at in x]


# -- panels ------------------------------------------------------------------------------------------------------------


def panels(
    rows: Sequence[Row], title: str, note: str, across: str, label: str,
    draw: Callable[[Axes, Sequence[Row], dict[str, Any]], None],
) -> Figure:  # fmt: skip
    """A panel for each of the first cases, and one legend.

    Args:
        rows: of all cases.
        title: of the picture.
        note: what the subtitle says beside the cases.
        across: the field on the horizontal axis, in bytes.
        label: of that axis.
        draw: draws one setup's rows of a case.
    """
    cases, setups = cases_of(rows), setups_of(rows)
    shown = cases[:PANELS]
    some = f"the first {PANELS} of " if len(cases) > PANELS else ""
    columns = min(ACROSS, len(shown))
    lines = math.ceil(len(shown) / columns)
    width, height = max(7.0, 3.1 * columns + 1.6), 2.6 * lines + 0.9
    figure = style.new_figure(width, height, title, f"{some}{counted(len(cases), 'case')} · {note}", head=0.6)
    grid = figure.subplots(lines, columns, squeeze=False)
    look = looks(setups)
    for axes, case in zip(grid.flat, shown, strict=False):
        of_case = [row for row in rows if case_of(row) == case]
        for setup in setups:
            draw(axes, [row for row in of_case if row["setup"] == setup], look[setup] | {"label": setup})
        fitting = [row for row in of_case if row["fits"]]
        if fitting:
            name = byte_ticks(axes, [row[across] for row in fitting])
            axes.set_xlabel(f"{label} ({name})")
        axes.set_title("{}({}), {}".format(*case), fontsize=9)
        axes.axhline(1, color=style.PALE, linewidth=0.8, zorder=0)
        highest = max((row["slow_down"] for row in fitting), default=1.0)
        axes.set_ylim(min(0.98, 1 - 0.03 * (highest - 1)), min(HIGHEST, max(1.05, 1 + 1.1 * (highest - 1))))
        style.grid(axes, "y")
    for axes in grid.flat[len(shown) :]:
        axes.remove()
    names = {
        text: handle for axes in figure.axes for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(names.values(), names.keys(), loc="outside right center", **style.LEGEND)
    return figure


def byte_ticks(axes: Axes, values: Sequence[int]) -> str:
    """The horizontal axis counts bytes, in few round numbers; their unit."""
    unit, name = style.byte_unit(max(values))
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.06 * high
    axes.set_xlim(low - margin, high + margin)
    step = style.nice_step((high - low + 2 * margin) / unit, 3) * unit
    axes.set_xticks(np.arange(math.ceil((low - margin) / step) * step, high + margin, step))
    style.in_units(axes.xaxis, unit)
    return name


def where(cases: Sequence[Case]) -> str:
    """The case, or how many there are."""
    return "{}({}), {}".format(*cases[0]) if len(cases) == 1 else counted(len(cases), "case")

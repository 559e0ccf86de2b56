"""Slow-down over budget, of one network on one machine: the best of each paper, the combined policy, and the bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from refimpl.names.machines import named
from refimpl.network.seams import with_seams
from refimpl.planner.heading import heading
from refimpl.points.many_plans import Row, RowsError
from refimpl.report.tables import Column, Table
from refimpl.studies.grid.rows import BOUND, may_cut, network_of, of_papers
from refimpl.studies.optimum.bound import single_step_bytes, steps_of
from refimpl.text import counted, size

if TYPE_CHECKING:  # drawing takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMBINED = "combined"
WHOLE = "whole steps"
ROUNDING = 1e-6  #: of 1
HIGHEST = 3.2  #: slow-down; lines go on above it
LINES = 8  #: in a picture, at most
FEWEST_TICKS = 4  #: on the axis of budgets

Line = Sequence[float | None]  #: a slow-down at each budget; None where nothing fits


def budgets_between(least: int, most: int, points: int, memory: int = 0) -> list[int]:
    """Budgets in geometric steps, both ends among them; bytes.

    The step nearest to `memory`, the GPU's own, is moved to it, if it is between the ends.
    """
    if points < 2 or most <= least:
        return [least]
    found = [round(least * (most / least) ** (place / (points - 1))) for place in range(points)]
    if least < memory < most and points > 2:
        nearest = min(range(1, points - 1), key=lambda place: abs(math.log(found[place] / memory)))
        found[nearest] = memory
    return found


@dataclass(frozen=True)
class Curves:
    """Slow-downs of one network on one machine, as lines over the budget."""

    title: str
    budgets: Sequence[int]  #: bytes, ascending
    single_step: int  #: bytes without which no policy fits
    groups: Mapping[str, Sequence[Line]]  #: paper, or a setup that is of none → its lines
    searched: Line = ()  #: of the combined policy
    bound: Line = ()
    steps: str = WHOLE  #: or whole or cut at their seams, where those of a row may be cut

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Curves:
        """Of rows; budgets that depend on the setup (`least`) are left out.  Raises `RowsError`."""
        given = [*rows]
        rows = [row for row in given if row["budget_bytes"] and not row["budget"].startswith("least")]
        if not rows and (refused := next((row["why"] for row in given if row["why"]), None)):
            raise RowsError(f"no row has a budget in bytes: {refused}")
        cases = {(row["network"], row["batch"], row["machine"]) for row in rows}
        if len(cases) != 1:
            raise RowsError(f"pareto draws one network on one machine; these rows have {counted(len(cases), 'case')}")
        (name, batch, on), *_ = cases
        network, machine = network_of(name, batch), named(on)
        if any(may_cut(row["setup"]) for row in rows) and not network.conventions.as_pytorch:
            network = with_seams(network)
        budgets: list[int] = sorted({row["budget_bytes"] for row in rows})
        found = {(row["setup"], row["budget_bytes"]): row["slow_down"] for row in rows}
        lines: dict[str, Line] = {
            setup: [found.get((setup, at)) for at in budgets] for setup in dict.fromkeys(row["setup"] for row in rows)
        }
        words = {setup.partition(" ")[0]: setup for setup in lines}
        searched, bound = (lines.pop(words[word], ()) if word in words else () for word in (COMBINED, BOUND))
        groups: dict[str, list[Line]] = {}
        for setup, line in lines.items():
            groups.setdefault(paper_of(setup), []).append(line)
        title = f"{heading(network, machine)} · {machine.name} (simulated, {machine.catalogue})"
        return cls(title, budgets, single_step_bytes(network, machine), groups, searched, bound, steps_of(network))

    @property
    def best(self) -> dict[str, Line]:
        """Of each group the least at the budget and all smaller ones, as a program for less memory runs in more."""
        return {paper: with_smaller(best(those)) for paper, those in self.groups.items()}

    @property
    def combined(self) -> Line:
        return with_smaller(self.searched)

    @property
    def shown(self) -> dict[str, Line]:
        """The columns of the table, after the budget."""
        more = {COMBINED: self.combined, BOUND: self.bound}
        return self.best | {name: line for name, line in more.items() if line}


def paper_of(setup: str) -> str:
    return of_papers()[setup].paper if setup in of_papers() else setup


def best(lines: Sequence[Line]) -> Line:
    """The least of several lines at each budget."""
    return [least(column) for column in zip(*lines, strict=True)]


def with_smaller(line: Line) -> Line:
    """The least at each budget and all smaller ones."""
    return [least(line[: place + 1]) for place in range(len(line))]


def least(values: Iterable[float | None]) -> float | None:
    return min((one for one in values if one is not None), default=None)


@dataclass(frozen=True)
class Gain:
    """A policy against the best of all setups, over the budgets at which some setup fits and none is at the floor."""

    open: int  #: such budgets
    better: int  #: at which the policy is faster by more than rounding
    worse: int
    mean: float  #: the geometric mean of the best setup's slow-down over the policy's
    largest: float


def gain(policy: Line, others: Line) -> Gain | None:
    """None where no budget is open."""
    pairs = zip(others, policy, strict=True)
    ratios = [other / (own or math.inf) for other, own in pairs if other and other > 1 + ROUNDING]
    if not ratios:
        return None
    return Gain(
        len(ratios),
        sum(ratio > 1 + ROUNDING for ratio in ratios),
        sum(ratio < 1 - ROUNDING for ratio in ratios),
        math.exp(sum(math.log(max(ratio, 1e-9)) for ratio in ratios) / len(ratios)),
        max(ratios),
    )


def distance(policy: Line, bound: Line) -> float | None:
    """The mean of slow-downs over the bound's, where the policy fits and is not at the floor; None: nowhere."""
    ratios = [own / low for own, low in zip(policy, bound, strict=True) if own and low and own > 1 + ROUNDING]
    return sum(ratios) / len(ratios) if ratios else None


# -- for people --------------------------------------------------------------------------------------------------------

NOTE = (
    "Seconds of an iteration over the baseline's with memory enough: of each the best setup within the budget or a "
    "smaller one, whose program runs in more memory too."
)


def table(curves: Curves) -> Table:
    """A line a budget."""
    rows = [*zip(curves.budgets, *curves.shown.values(), strict=True)]
    columns = [Column("budget", itemgetter(0), size)]
    columns += [Column(name, itemgetter(place), "{:.3f}".format) for place, name in enumerate(curves.shown, 1)]
    return Table.of(curves.title, rows, columns, NOTE)


def beside(rows: Sequence[Row]) -> Table:
    """A line a budget of every network, a column a setup or paper.  Raises `RowsError`."""
    lines = [line for of_case in cases(rows) for line in of_case]
    names = dict.fromkeys(name for line in lines for name in line.slow_down)
    columns = [Column("case", lambda line: line.case), Column("budget", lambda line: line.budget, size)]
    columns += [Column(name, partial(slow_down, name), "{:.3f}".format) for name in names]
    found = [against(other, next(iter(names)), lines) for other in [*names][1:] if other != BOUND]
    return Table.of("", lines, columns, "  ".join([NOTE, *found]))


class Beside(NamedTuple):
    """A line of the table."""

    case: str
    budget: int  #: bytes
    slow_down: dict[str, float | None]  #: setup or paper → seconds over the baseline's


def slow_down(name: str, line: Beside) -> float | None:
    return line.slow_down.get(name)


def cases(rows: Sequence[Row]) -> Iterator[list[Beside]]:
    """The lines of each network, batch and machine."""
    of: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        of.setdefault((row["network"], row["batch"], row["machine"]), []).append(row)
    for (network, batch, machine), those in of.items():
        curves = Curves.of(those)
        columns = zip(*curves.shown.values(), strict=True)
        case = f"{network}/{batch} {machine}"
        yield [
            Beside(case, at, dict(zip(curves.shown, column, strict=True)))
            for at, column in zip(curves.budgets, columns, strict=True)
        ]


def against(own: str, other: str, lines: Sequence[Beside]) -> str:
    """Where a setup is slower than another one; where it does not fit and the other does, it is slower."""
    pairs = [(line.slow_down.get(own), line.slow_down.get(other)) for line in lines]
    ratios = [(one or math.inf) / (two or math.inf) for one, two in pairs if one or two]
    alone, lost = sum(ratio == 0 for ratio in ratios), sum(ratio == math.inf for ratio in ratios)
    most = max((ratio for ratio in ratios if ratio < math.inf), default=0.0)
    slower = sum(ratio > 1 + ROUNDING for ratio in ratios)
    return (
        f"{own} beside {other}: of {counted(len(pairs), 'point')} it is faster at "
        f"{sum(ratio < 1 - ROUNDING for ratio in ratios)} (fits alone at {alone}), slower at {slower} (does not fit at "
        f"{lost}); at most {most:.3f} ×; neither fits at {len(pairs) - len(ratios)}."
    )


def findings(curves: Curves) -> list[str]:
    lines = [f"One step alone needs {size(curves.single_step)}: no policy with {curves.steps} fits in less."]
    others = best([*curves.best.values()]) or [None] * len(curves.budgets)
    if curves.searched and (found := gain(curves.combined, others)):
        lines.append(
            f"At {counted(found.open, 'budget')} the best setup is above the floor.  There combined is faster at "
            f"{found.better} and slower at {found.worse}: {found.mean:.3f} × as fast (geometric mean), at most "
            f"{found.largest:.3f} ×."
        )
    pairs = zip(curves.searched, curves.combined, strict=True)
    if slower := sum(own != shown for own, shown in pairs):
        lines.append(f"At {counted(slower, 'budget')} combined's search ends above its program for a smaller budget.")
    if curves.bound:
        shown = {"best setup": others, COMBINED: curves.combined} if curves.searched else {"best setup": others}
        away = {name: distance(line, curves.bound) for name, line in shown.items()}
        text = ", ".join(f"{name} {value:.3f} ×" for name, value in away.items() if value)
        lines += [f"Mean distance to the bound, where a curve is above the floor: {text}."] if text else []
    return lines


# -- the picture -------------------------------------------------------------------------------------------------------


def picture(curves: Curves) -> Figure:
    """A stepped line a paper, its best setup, for a program for one budget runs in every larger one.

    At most `LINES` lines, each with its name where it begins.  The table is in the picture's file, as its description.
    """
    from refimpl.report import style
    from refimpl.studies.drawing import OTHER_COLOURS, PAPER_COLOURS

    budgets, step, whole = curves.budgets, curves.single_step, curves.steps == WHOLE
    room = LINES - bool(curves.searched) - bool(curves.bound)
    lines, more = [*curves.best.items()][:room], [*curves.best][room:]
    left_out = f" · in the table alone: {', '.join(more)}" if more else ""
    with style.page(9.5, 5.4, "Slow-down at each budget", curves.title + left_out, head=0.55) as figure:
        figure.set_label(table(curves).text())
        axes: Axes = figure.subplots()
        right = budgets[-1] * (budgets[-1] / min(step, budgets[0])) ** 0.04
        seen = [value for name, line in (*lines, (COMBINED, curves.combined)) if name != "baseline" for value in line]
        scales(axes, budgets, step, right, max(filter(None, seen), default=1.0))
        others = (*PAPER_COLOURS.values(), *OTHER_COLOURS)
        look: Any = {"linewidth": 2.0, "marker": "."}
        for number, (name, line) in enumerate(lines):
            colour = PAPER_COLOURS.get(name, others[number % len(others)])
            steps(axes, budgets, right, line, label=name, color=colour, **look)
        if curves.searched:
            look = {"color": style.VERMILION, "linewidth": 2.6, "marker": "o", "markersize": 4}
            steps(axes, budgets, right, curves.combined, label=COMBINED, **look)
        if curves.bound:  # it holds for all smaller budgets, too
            values = [math.nan if value is None else value for value in curves.bound]
            look = {"color": style.INK, "linewidth": 1.4, "linestyle": (0, (1, 1.2)), "marker": "."}
            label = "lower bound" if whole else "lower bound\n(cut steps, too)"
            axes.step(budgets, values, where="pre", label=label, **look)
        name_lines(axes)
        style.limit(axes, step, across=False, color=style.PALE)
        needs = f"the least that {'one step' if whole else 'a part of a step'} needs"
        top: Any = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(needs, (step, 1), (4, -9), color=style.PALE, fontsize=8, **top)
    return figure


def name_lines(axes: Axes) -> None:
    """Each line's name to the left of where it begins; above it on the floor, which all lines come to."""
    low, top = axes.get_ylim()
    ends: list[tuple[float, float, Any]] = []
    for line in axes.get_lines():
        points: Iterable[Any] = zip(line.get_xdata(), line.get_ydata(), strict=True)  # type: ignore[arg-type]
        if begin := next(((y, x) for x, y in points if y <= top), None):  # NaN is not
            ends.append((*begin, line))
    put: list[tuple[float, float]] = []  #: where names are
    for y, x, line in sorted(ends, key=lambda end: end[:2]):
        height = y + (0.03 * (top - low) if y < 1 + ROUNDING else 0)
        while any(abs(height - other) < 0.042 * (top - low) and x < 1.2 * at for at, other in put):
            height += 0.01 * (top - low)
        put.append((x, height))
        place: Any = {"ha": "right", "va": "center", "textcoords": "offset points", "fontweight": "bold"}
        axes.annotate(str(line.get_label()), (x, height), (-6, 0), color=line.get_color(), **place)
    left, right = axes.get_xlim()
    first = min((x for _, x, _ in ends), default=right)
    axes.set_xlim(min(left, first * (first / right) ** 0.2), right)  # room for a name


def steps(axes: Axes, budgets: Sequence[int], right: float, line: Line, **look: Any) -> None:
    """A stepped line from the first budget that fits to the right end; a gap where nothing fits."""
    seen = [math.nan if value is None else value for value in line]
    if not all(map(math.isnan, seen)):
        axes.step([*budgets, right], [*seen, seen[-1]], where="post", markevery=slice(0, len(budgets)), **look)


def scales(axes: Axes, budgets: Sequence[int], step: int, right: float, highest: float) -> None:
    """Budgets in geometric steps, at round ticks; slow-downs from a little below 1 to the highest, or to `HIGHEST`."""
    from matplotlib.ticker import NullLocator

    from refimpl.report import style

    axes.set_xscale("log")
    left = min(step, budgets[0])
    axes.set_xlim(left * (left / right) ** 0.03, right)
    unit, name = style.byte_unit(budgets[-1])
    ticks = round_ticks(left / unit, right / unit)
    axes.set_xticks([tick * unit for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"budget ({name})")
    top = min(HIGHEST, max(1.05, 1 + 1.08 * (highest - 1)))
    axes.set_ylim(1 - 0.03 * (top - 1), top)
    axes.set_ylabel("time, × baseline with enough memory")
    style.grid(axes, "y")


def round_ticks(low: float, high: float) -> list[float]:
    """4, 6, 8, 12, 16, 24 and their like; where these are few, 10, 14 and 20, too."""
    for parts in ((1, 1.5), (1, 1.25, 1.5, 1.75)):
        powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
        found = [part * 2.0**power for power in powers for part in parts if low <= part * 2.0**power <= high]
        if len(found) >= FEWEST_TICKS:
            break
    return found

"""The two kinds of pictures in the papers' evaluations: bars in groups, and points joined by lines.

A part of an evaluation gives `Marks` a function from its rows to the marks that are drawn.  A small white point is a
published figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.studies.drawing import PUBLISHED, grouped_bars

COLOURS = (
    style.BLUE, style.ORANGE, style.GREEN, style.SKY, style.VERMILION, style.PURPLE, style.YELLOW, style.GREY,
    style.BROWN,
)  # fmt: skip


class Datum(NamedTuple):
    """A bar, or a point."""

    group: str | float  #: of bars; or the point's place on the horizontal axis
    label: str  #: what has a colour
    value: float | None  #: None: does not fit, a ×
    published: float | None = None
    panel: str = ""


@dataclass(frozen=True)
class Marks:
    """A picture with a panel or several, each with its own groups; called with the rows of a part, it draws them.

    Args:
        title: of the picture.
        subtitle: what is drawn, and how it was found.
        axis: the vertical axis, with its unit.
        marks: from the rows of the part.
        kind: bars in groups, or points.
        text: writes the value of a bar; empty for none.
        lines: values with a dashed line across every panel.
        columns: of panels.
        size: inches of a line of panels: width and height.
        base: where the vertical axis begins.
    """

    title: str
    subtitle: str
    axis: str
    marks: Callable[[Sequence[Any]], Iterable[Datum]]
    kind: Literal["bars", "points"] = "bars"
    text: Callable[[float], str] = "{:.1f}".format
    lines: Sequence[float] = ()
    columns: int = 1
    size: tuple[float, float] = (11, 3.4)
    base: float = 0.0

    def __call__(self, rows: Sequence[Any]) -> Figure:
        found = [*self.marks(rows)]
        panels = [*dict.fromkeys(mark.panel for mark in found)]
        colours = dict(zip(dict.fromkeys(mark.label for mark in found), COLOURS, strict=False))
        down = -(-len(panels) // self.columns)
        with style.page(self.size[0], 1 + self.size[1] * down, self.title, self.subtitle) as figure:
            grid = figure.subplots(down, self.columns, squeeze=False)
            for axes, panel in zip(grid.flat, panels, strict=False):
                mine = [mark for mark in found if mark.panel == panel]
                (self._bars if self.kind == "bars" else self._points)(axes, mine, colours)
                if self.base or self.kind == "points":
                    axes.set_ylim(bottom=self.base)
                axes.set_title(panel, fontsize=9)
                for value in self.lines:
                    style.limit(axes, value)
            for line in grid:
                line[0].set_ylabel(self.axis)
            for axes in grid.flat[len(panels) :]:
                axes.set_visible(False)
            named = {label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels())}  # noqa: B905
            style.legend_row(figure, [*named.values()])
        return figure

    def _bars(self, axes: Axes, marks: Sequence[Datum], colours: dict[str, str]) -> None:
        groups = [*dict.fromkeys(str(mark.group) for mark in marks)]
        of = {(str(mark.group), mark.label): mark for mark in marks}
        labels = [label for label in colours if any(mark.label == label for mark in marks)]
        series = {label: (colours[label], [of[group, label].value for group in groups]) for label in labels}
        places = grouped_bars(axes, groups, series, self.text)
        points = [
            (places[label][place], theirs)
            for label in labels
            for place, group in enumerate(groups)
            if (theirs := of[group, label].published) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), **PUBLISHED | {"markersize": 5}, label="published")

    def _points(self, axes: Axes, marks: Sequence[Datum], colours: dict[str, str]) -> None:
        for label, colour in colours.items():
            mine = [(m.group, m.value) for m in marks if m.label == label and m.value is not None]
            axes.plot(*zip(*mine, strict=True), "o-", color=colour, label=label, markersize=4)
        known = [(mark.group, mark.published) for mark in marks if mark.published is not None]
        if known:
            axes.plot(*zip(*known, strict=True), **PUBLISHED | {"markersize": 2.5}, label="published")
        style.grid(axes, "y")
        if any(isinstance(mark.group, str) for mark in marks):
            axes.tick_params(axis="x", rotation=90, labelsize=7)

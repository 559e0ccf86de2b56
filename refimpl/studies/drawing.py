"""Shared by the evaluations' pictures: colours, and bars in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from refimpl.report import style

#: A paper has one colour, wherever papers are told apart; others have the colours that are left.  Lines have them too:
#: each is at least three times as dark as the paper, which a projector shows.
PAPER_COLOURS = {
    "baseline": style.PALE, "vDNN": style.BLUE, "vDNN++": style.GREEN, "SuperNeurons": style.AMBER,
    "AccUDNN": style.PURPLE, "combined": style.VERMILION,
}  # fmt: skip
OTHER_COLOURS = (style.INDIGO, style.BROWN, style.INK, style.TEAL)

#: How a published figure is drawn on ours.
PUBLISHED: dict[str, Any] = {
    "marker": "o", "color": style.INK, "markerfacecolor": "white", "markersize": 7, "linestyle": "none", "zorder": 6,
}  # fmt: skip

#: Label → a colour or another look, and a value a group.
Series = Mapping[str, tuple[str | Mapping[str, Any], Sequence[float | None]]]


def grouped_bars(
    axes: Axes, groups: Sequence[str], series: Series, text: Callable[[float], str]
) -> dict[str, list[float]]:
    """A group of bars a name, a bar a series, with its value above it.

    Args:
        axes: where to draw.
        groups: the names of the groups.
        series: label → look and values; a group without the value (None) has a ×.
        text: writes a value; an empty text writes nothing.

    Returns:
        label → where its bars are on the horizontal axis.
    """
    width = 0.82 / len(series)
    look_of_text: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 7}
    places = {label: [group + (i + 0.5) * width - 0.41 for group in range(len(groups))]
              for i, label in enumerate(series)}  # fmt: skip
    for label, (look, values) in series.items():
        found = [(x, value) for x, value in zip(places[label], values, strict=True) if value is not None]
        bars = {"color": look} if isinstance(look, str) else look
        axes.bar([x for x, _ in found], [value for _, value in found], 0.9 * width, label=label, linewidth=0, **bars)
        for x, value in zip(places[label], values, strict=True):
            if value is None:
                axes.text(x, 0, "×", fontsize=8, color=style.PALE, ha="center", va="bottom")
            elif said := text(value):
                axes.annotate(said, (x, max(value, 0)), (0, 1), textcoords="offset points", **look_of_text)
    axes.set_xticks(range(len(groups)), groups, fontsize=8)
    axes.tick_params(axis="x", length=0)
    style.grid(axes, "y")
    return places

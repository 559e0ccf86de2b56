"""What a picture or a document holds, as text: every axis, bar, line, word and legend, with its place and its look.

The text needs no drawing, and so no fonts: it is the same wherever the picture is made.  Many shapes of one kind are
counted, with the sum of their places and the looks that they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from zlib import crc32

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Annotation, Text

FEW = 12  #: numbers that are written one by one
LONG = 240  #: characters beyond which words are cut


def number(value: float, digits: int = 4) -> str:
    return f"{float(value) + 0.0:.{digits}g}"


def numbers(values: Iterable[Any], digits: int = 4) -> str:
    """All of a few; of more the first ones, the last one, how many, and their sum weighted by place."""
    found = np.asarray([float(value) for value in values])
    if len(found) <= FEW:
        return " ".join(number(value, digits) for value in found)
    known = np.nan_to_num(found)
    first, second, third, last, whole, weighted = (
        number(value, digits) for value in (*found[:3], found[-1], known.sum(), known @ np.arange(len(known)))
    )
    return f"{first} {second} {third} … {last} ({len(found)}: {whole}, {weighted})"


def colour(value: Any) -> str:
    try:
        return to_hex(value, keep_alpha=True)
    except ValueError:
        return str(value)


def shape(patch: Patch) -> tuple[str, list[float]]:
    """Its look, and its place."""
    look = (
        f"{type(patch).__name__} {colour(patch.get_facecolor())} {colour(patch.get_edgecolor())} "
        f"{patch.get_hatch() or '-'} {number(patch.get_linewidth())} {number(patch.get_zorder())}"
    )
    if isinstance(patch, Rectangle):
        return look, [patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()]
    return look, [*np.asarray(patch.get_path().vertices).ravel()]


def shapes(patches: Iterable[Patch]) -> Iterator[str]:
    """A line a look, in the order in which they were drawn."""
    found: dict[str, list[float]] = {}
    for patch in patches:
        look, place = shape(patch)
        found.setdefault(look, []).extend(place)
    for look, places in found.items():
        yield f"{look}: {numbers(places)}"


def line(drawn: Line2D) -> str:
    dashes = getattr(drawn, "_unscaled_dash_pattern", ("", None))  # what is given as offset and lengths has no name
    dashed = f"({dashes[0]:g}: {numbers(dashes[1])})" if dashes[1] else str(drawn.get_linestyle())
    look = [colour(drawn.get_color()), dashed, number(drawn.get_linewidth()), str(drawn.get_marker())]
    look += [number(drawn.get_markersize()), colour(drawn.get_markerfacecolor()), number(drawn.get_markeredgewidth())]
    look += [number(drawn.get_alpha() or 1), number(drawn.get_zorder()), str(drawn.get_drawstyle())]
    x, y = (np.atleast_1d(drawn.get_data()[axis]) for axis in (0, 1))
    return f"Line {' '.join(look)}: {numbers(x)} | {numbers(y)}"


def words(text: Text) -> str:
    place = [*text.get_position()]
    if isinstance(text, Annotation):
        place += [*text.xy]
    places = f"{text.get_horizontalalignment()} {text.get_verticalalignment()}"
    look = f"{number(float(text.get_fontsize()))} {colour(text.get_color())} {places}"
    return f"{text.get_text()!r} at {numbers(place)}, {look} {number(text.get_rotation())} {text.get_fontweight()}"


def collection(drawn: Collection) -> str:
    faces = [colour(face) for face in dict.fromkeys(map(tuple, np.atleast_2d(drawn.get_facecolor())))]
    edges = [colour(edge) for edge in dict.fromkeys(map(tuple, np.atleast_2d(drawn.get_edgecolor())))]
    paths = [value for path in drawn.get_paths() for value in np.asarray(path.vertices).ravel()]
    values = drawn.get_array()
    of = "" if values is None else f" of {numbers(np.ma.filled(np.ma.asarray(values), np.nan).ravel())}"
    offsets: np.ndarray = np.ma.filled(np.ma.asarray(drawn.get_offsets()), np.nan).ravel()
    look = f"{' '.join(faces[:FEW])} / {' '.join(edges[:FEW])} {numbers(np.atleast_1d(drawn.get_linewidth()))}"
    return f"{type(drawn).__name__} {look}{of}: {numbers(paths)} | {numbers(offsets)}"


def picture(drawn: AxesImage) -> str:
    values: np.ndarray = np.ma.filled(np.ma.asarray(drawn.get_array()), np.nan).ravel()
    return f"Image {numbers(values)} {numbers(drawn.get_extent())}"


def legend(drawn: Legend) -> str:
    names = [text.get_text() for text in drawn.get_texts()]
    looks = [shape(one)[0] if isinstance(one, Patch) else "" for one in drawn.legend_handles]
    return f"Legend {names} {looks} {getattr(drawn, '_ncols', '')}"


def axis(axes: Axes, name: str) -> str:
    """Its limits, scale, label and ticks."""
    one = getattr(axes, f"{name}axis")
    limits = numbers(getattr(axes, f"get_{name}lim")())
    low, high = sorted(getattr(axes, f"get_{name}lim")())
    ticks = [tick for tick in one.get_ticklocs() if low <= tick <= high]
    labels = one.get_major_formatter().format_ticks(ticks)
    style = ""
    if one.get_major_ticks():
        tick = one.get_major_ticks()[0]
        size = [tick.label1.get_fontsize(), tick.tick1line.get_markersize(), tick.label1.get_rotation()]
        style = f" {numbers(size)} {'grid' if tick.gridline.get_visible() else 'no grid'}"
    said = " ".join(labels) if len(labels) <= FEW else f"{labels[0]} … {labels[-1]}"
    return f"{name}: {limits} {one.get_scale()} {one.get_label_text()!r}{style} at {numbers(ticks)}: {said}"


def held(figure: Figure) -> str:
    """Everything in the picture, a line a thing."""
    found = [f"Figure {numbers(figure.get_size_inches())}"]
    found += [words(text) for text in figure.texts]
    found += [legend(one) for one in figure.legends]
    for axes in figure.axes:
        spines = "".join(name[0] for name, spine in axes.spines.items() if spine.get_visible())
        seen = "" if axes.get_visible() else " hidden"
        found.append(f"Axes {axes.get_title(loc='left') or axes.get_title()!r} [{spines}]{seen}")
        found += [axis(axes, name) for name in "xy"]
        found += shapes(axes.patches)
        found += map(line, axes.lines)
        found += map(collection, axes.collections)
        found += map(picture, axes.images)
        found += map(words, axes.texts)
        if (one := axes.get_legend()) is not None:
            found.append(legend(one))
    return "\n".join(found) + "\n"


# -- documents ---------------------------------------------------------------------------------------------------------


def shortened(text: str) -> str:
    """A long text's beginning, its length and its checksum."""
    return text if len(text) <= LONG else f"{text[: LONG // 2]} … ({len(text)}, {crc32(text.encode()):08x})"


def columns(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Field → what the rows have in it: numbers as in a picture, and each word once."""
    known = list(rows)
    for name in dict.fromkeys(name for row in known for name in row):
        values = [row[name] for row in known if row.get(name) is not None]
        if all(isinstance(value, int | float) for value in values):
            yield name, numbers(values, 6) + (f" of {len(known)}" if len(values) < len(known) else "")
        elif all(isinstance(value, dict) for value in values):
            yield from ((f"{name}.{inner}", text) for inner, text in columns(values))
        else:
            yield name, shortened(", ".join(dict.fromkeys(map(str, values))))


def facts(value: Any, name: str = "") -> Iterator[str]:
    """A line a field of a document for programs; of many numbers as in a picture."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from facts(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and value and all(isinstance(one, int | float) for one in value):
        yield f"{name}: {numbers(value, 6)}\n"
    elif isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) for one in value):
        yield f"{name}: {len(value)}\n"
        yield from (f"{name}.{key}: {text}\n" for key, text in columns(value))
    elif isinstance(value, list | tuple) and value and all(isinstance(one, list | tuple) for one in value):
        yield from facts([one for inner in value for one in inner], name)
    else:
        yield f"{name}: {number(value, 6) if isinstance(value, float) else shortened(str(value))}\n"

"""Formulas as pictures in the page itself: no script, no font and no network is needed to read one."""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any

from matplotlib import mathtext, rc_context
from matplotlib.font_manager import FontProperties

#: What a page may write and matplotlib knows by another name.
SAME = (
    (r"\\text\{([^}]*)\}", lambda found: r"\mathrm{" + found[1].replace(" ", r"\ ") + "}"),
    (r"\\underbrace\{((?:[^{}]|\{[^}]*\})*)\}_\{([^}]*)\}", lambda found: rf"\underset{{{found[2]}}}{{{found[1]}}}"),
    (r"\\sqrt (\w)", lambda found: rf"\sqrt{{{found[1]}}}"),
    (r"\\([lg]e)\b", lambda found: rf"\{found[1]}q"),
    (r"\\Big[lr]", lambda found: ""),
)
POINTS = 12  #: as large as the page's text


def svg(tex: str, points: float = POINTS) -> str:
    """The formula as an inline SVG in the page's own colour, on its baseline; it is read aloud as TeX."""
    text = " ".join(tex.split())
    for pattern, other in SAME:
        text = re.sub(pattern, other, text)
    out = io.StringIO()
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": tex, "mathtext.fontset": "cm"}):
        depth = mathtext.math_to_image(f"${text}$", out, prop=FontProperties(size=points), dpi=72, format="svg")
    picture = out.getvalue()
    picture = picture[picture.index("<svg ") :]
    picture = re.sub(r"<metadata>.*?</metadata>", "", picture, flags=re.DOTALL)
    picture = picture.replace('style="fill: none"', "").replace("#000000", "currentColor")
    picture = re.sub(r"<g id=\"patch_1\">.*?</g>", "", picture, flags=re.DOTALL)  # the background
    label, place = escape(" ".join(tex.split()), quote=True), f"vertical-align: {-depth:.2f}pt"
    return picture.replace("<svg ", f'<svg role="img" aria-label="{label}" fill="currentColor" style="{place}" ', 1)


def visit_inline(translator: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    translator.body.append(f'<span class="math">{svg(node.astext())}</span>')
    raise SkipNode


def visit_block(translator: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    translator.body.append(f'<div class="math block">{svg(node.astext(), 1.25 * POINTS)}</div>\n')
    raise SkipNode

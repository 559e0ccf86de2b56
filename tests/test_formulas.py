"""Every formula of the documentation and of the notebooks is drawn, without the network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: no notebook can be read")

from tests.test_docs import script  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\\w$])\$(?![\s$])([^$\n]+?)(?<!\s)\$(?!\d)", re.DOTALL)


def formulas() -> Iterator[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
        texts += [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"]
    for text in texts:
        for block, inline in FORMULA.findall(CODE.sub("", text)):
            yield block or inline


@pytest.mark.slow
def test_every_formula_is_a_picture_with_its_words() -> None:
    svg = script("formulas").svg
    found = [*formulas()]
    assert len(found) > 40
    for tex in {*found}:
        picture = ElementTree.fromstring(svg(tex).replace("xlink:href", "href"))
        assert picture.get("aria-label") == " ".join(tex.split()) and picture.get("fill") == "currentColor"


def test_what_matplotlib_has_another_name_for() -> None:
    svg = script("formulas").svg
    assert svg(r"a \le b").count("<use") == svg(r"a \leq b").count("<use") == 3
    assert svg(r"\text{a b}") and svg(r"\underbrace{y}_{k \times n}")

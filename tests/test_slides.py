"""Figures for slides: each is SVG for any viewer, with a licence line.  Decks: lectures whose numbers are on pages."""

from __future__ import annotations

import base64
import functools
import json
import re
import subprocess
import sys
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.test_docs import ROOT, script

slides = script("slides")


def test_every_figure_has_the_line_and_no_colour_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slides, "COMMANDS", {"timeline-vdnn": slides.COMMANDS["timeline-vdnn"]})
    monkeypatch.setattr(slides, "DECKS", [])
    assert slides.main(tmp_path) == 0
    paths = sorted(tmp_path.glob("*.svg"))
    assert [path.stem for path in paths] == ["clocks", "flow", "house", "round-trip", "timeline-vdnn"]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert slides.LICENCE in text and "var(" not in text
        found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
        at = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"', text)[-1]
        assert found and float(at[0]) < float(found[1]) and float(at[1]) < float(found[2])


# -- decks -------------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w.,-])\d+(?:[.,]\d+)*(?!\w)")  #: not a part of a name, as in VGG-16 or conv1_2
LINK = re.compile(r"\[([^]]*)\]\((\S+?)\)")
OTHER = re.compile(r"[Nn]otebooks? [\d, and]*\d")  #: the number of a notebook is on no page


@functools.cache
def said_by(path: Path) -> tuple[str, frozenset[str]]:
    """What a page says, or a notebook's cells and what they printed, its white space single spaces; and its numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        printed = (output.get("text", ()) for cell in cells for output in cell.get("outputs", ()))
        text = "\n".join("".join(lines) for lines in (*(cell["source"] for cell in cells), *printed))
    return " ".join(text.split()), frozenset(NUMBER.findall(text))


def problems(deck: Path) -> list[str]:
    """What is wrong with a deck: its form, and what no page says that a slide's notes link to."""
    found, lecture = [], slides.slides_of(deck)
    begins = [0, *accumulate(slide.minutes for slide in lecture)]
    asks = [begin for begin, slide in zip(begins, lecture, strict=False) if slide.kind == "predict"]
    if not (15 <= len(lecture) <= 20 and 40 <= begins[-1] <= 45 and len(asks) >= 4):
        found.append(f"{len(lecture)} slides, {begins[-1]} minutes, {len(asks)} predictions")
    found += [f"no prediction from minute {a} to {b}" for a, b in pairwise([*asks, begins[-1]]) if b - a > 12]
    for number, (slide, after) in enumerate(zip(lecture, [*lecture[1:], None], strict=True), 1):
        if slide.kind == "predict" and not (after and after.kind == "answer" and NUMBER.search(after.face)):
            found.append(f"slide {number}: no number answers it")
        found += [f"slide {number}: {each}" for each in (*too_long(slide.face), *unfounded(slide, deck.parent))]
    return found


def too_long(face: str) -> list[str]:
    """Lines of code that the slide cuts off, and words that are too many to read while someone speaks."""
    words = re.sub(r"^```.*?^```$|^[|>][^\n]*$|^!\[[^\n]*$", "", face, flags=re.MULTILINE | re.DOTALL)
    count = len(re.findall(r"[^\W\d]{2,}", words))
    code = [
        line
        for block in re.findall(r"^```\w+$(.*?)^```$", face, re.MULTILINE | re.DOTALL)
        for line in block.split("\n")
    ]
    return [line for line in code if len(line) > 75] + ([f"{count} words"] if count > 45 else [])


def unfounded(slide: Any, folder: Path) -> list[str]:
    """Numbers, code and messages that no page says."""
    pages = [said_by((folder / link.partition("#")[0]).resolve()) for _, link in LINK.findall(slide.notes)]
    blocks = re.findall(r"^```\w+$(.*?)^```$", slide.face, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(
        r"^> (.*)$", slide.face, re.MULTILINE
    )
    quoted = [" ".join(line.split()) for line in lines if line != "…"]
    text = OTHER.sub("", LINK.sub("", f"{slide.face} {slide.notes.partition('.')[2]}"))
    numbers = [each for each in NUMBER.findall(text) if not any(each in known for _, known in pages)]
    return numbers + [line for line in quoted if not any(line in said for said, _ in pages)]


@pytest.mark.parametrize("deck", slides.DECKS, ids=lambda deck: deck.stem)
def test_a_deck_is_a_lecture_whose_numbers_are_those_of_its_pages(deck: Path) -> None:
    assert problems(deck) == []


DECK = """# A lecture

VGG-16 has 138.4 million weights, and {number}.

Notes: 30 minutes. From [notebook 01](01_where_the_memory_goes.ipynb).

---

## Predict: what is it?

```python
{code}
```

Notes: 13 minutes. From [notebook 01](01_where_the_memory_goes.ipynb).
"""


def test_what_is_wrong_with_a_deck_is_found(tmp_path: Path) -> None:
    notebook = ROOT / "tutorials" / "01_where_the_memory_goes.ipynb"
    (tmp_path / notebook.name).write_bytes(notebook.read_bytes())
    (tmp_path / "deck.md").write_text(DECK.format(number="14.35 GiB", code="layered =\n" + "x" * 76), encoding="utf-8")
    assert problems(tmp_path / "deck.md") == [
        "2 slides, 43 minutes, 1 predictions",
        "no prediction from minute 30 to 43",
        "slide 1: 14.35",
        "slide 2: no number answers it",
        f"slide 2: {'x' * 76}",
        f"slide 2: {'x' * 76}",
    ]


def test_a_deck_is_one_file_with_its_pictures() -> None:
    for deck in slides.DECKS:
        html = slides.html_of(deck)
        assert len(slides.pictures(deck)) == html.count('<img src="data:image/') == html.count("<figure>")
        assert html.count("<section>") == html.count("<aside>") == len(slides.slides_of(deck))
        assert not re.search(r'(?:src|href)="(?!data:)', html)
    with pytest.raises(LookupError, match="no picture with this description: a cat"):
        slides.stored(ROOT / "tutorials" / "03_vdnn.ipynb", "a cat")


def test_a_picture_of_a_notebook_is_drawn_again_with_larger_text(tmp_path: Path) -> None:
    source = """import matplotlib.pyplot as plt
from refimpl.report.notebook import show
for alt in ("wanted", "another"):
    figure, axes = plt.subplots(figsize=(8, 4))
    axes.set_title(alt)
    show(figure, alt)
"""
    cells = [{"cell_type": "code", "source": text} for text in (source, "raise AssertionError('it is not needed')")]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    ((named, url),) = slides.redrawn(tmp_path / "a.ipynb", {"wanted"}).items()
    svg = base64.b64decode(url.removeprefix("data:image/svg+xml;base64,")).decode()
    assert named == (tmp_path / "a.ipynb", "wanted") and ">wanted</text>" in svg
    assert 'width="432pt" height="216pt"' in svg  # 6 by 3 inches


@pytest.mark.slow
@pytest.mark.matrix
def test_the_command_draws_every_picture_of_a_notebook_again(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "slides.py", tmp_path], check=True, capture_output=True)
    for deck in slides.DECKS:
        svg = [path for path, _ in slides.pictures(deck) if path.suffix != ".png"]
        assert (tmp_path / f"{deck.stem}.html").read_text(encoding="utf-8").count("data:image/svg+xml") == len(svg)

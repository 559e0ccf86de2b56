"""Figures for slides: each is SVG for any viewer, with a licence line."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.test_docs import script

slides = script("slides")


def test_every_figure_has_the_line_and_no_colour_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slides, "COMMANDS", {"timeline-vdnn": slides.COMMANDS["timeline-vdnn"]})
    assert slides.main(tmp_path) == 0
    paths = sorted(tmp_path.glob("*.svg"))
    assert [path.stem for path in paths] == ["flow", "house", "timeline-vdnn"]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert slides.LICENCE in text and "var(" not in text
        found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
        at = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"', text)[-1]
        assert found and float(at[0]) < float(found[1]) and float(at[1]) < float(found[2])

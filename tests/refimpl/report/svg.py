"""Words in a picture's SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from matplotlib.figure import Figure

from refimpl.report import style


def missing(draw: Callable[[], Figure], words: Iterable[str], folder: Path) -> list[str]:
    """The words that are not in the picture, which is the same file when it is drawn again."""
    first, again = folder / "first.svg", folder / "again.svg"
    for path in (first, again):
        style.save(draw(), path)
    text = first.read_text(encoding="utf-8")
    assert again.read_text(encoding="utf-8") == text and "<dc:date>" not in text
    assert 10_000 < len(text) < 3_000_000
    said = " ".join(re.findall(r">([^<>]+)</(?:text|tspan)>", text)).replace("&#x27;", "'")
    return [word for word in words if word not in said]

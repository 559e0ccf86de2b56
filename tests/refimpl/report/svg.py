"""Words in a picture's SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from matplotlib.figure import Figure

from refimpl.report import style


def written(figure: Figure, path: Path) -> str:
    """The picture's file as text."""
    style.save(figure, path)
    return path.read_text(encoding="utf-8")


def missing(draw: Callable[[], Figure], words: Iterable[str], folder: Path) -> list[str]:
    """The words that are not in the picture."""
    text = written(draw(), folder / "picture.svg")
    assert 10_000 < len(text) < 3_000_000 and "<dc:date>" not in text
    said = " ".join(re.findall(r">([^<>]+)</(?:text|tspan)>", text)).replace("&#x27;", "'")
    return [word for word in words if word not in said]

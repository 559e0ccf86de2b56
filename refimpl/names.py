"""What is said of a name that there is not: the nearest one, and all there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ALIKE = 0.55  #: of 1: names less alike are no slip of the finger


def offer(name: str, names: Iterable[str]) -> str:
    """To be put behind what is wrong: `; did you mean best-fit? There are: best-fit, first-fit.`"""
    names = list(names)
    close = get_close_matches(name, names, 1, ALIKE)
    return (f"; did you mean {close[0]}?" if close else ".") + f" There are: {', '.join(names)}."

"""Sizes, durations, counts and names as text, the same in every message, table and picture."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

UNITS = ((1 << 60, "EiB"), (1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
ALIKE = 0.55  #: of 1: names less alike than this are not offered as a correction


def size(nbytes: int) -> str:
    """Bytes for people: 12.3 MiB."""
    for unit, name in UNITS:
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} bytes"


def duration(seconds: float) -> str:
    """Seconds for people: 1.23 s, 45.6 ms, 7.89 µs."""
    unit, name = next(((unit, name) for unit, name in ((1.0, "s"), (1e-3, "ms")) if seconds >= unit), (1e-6, "µs"))
    value = seconds / unit
    return f"{value:.3g} {name}" if value < 999.5 else f"{value:.0f} {name}"


def counted(number: int, what: str) -> str:
    """`1 step`, `2 steps`, `5,000 copies`."""
    ending = "es" if what.endswith(("ch", "ss")) and what != "epoch" else "s"
    plural = what[:-1] + "ies" if what.endswith("y") else what + ending
    return f"{number:,} {what if number == 1 else plural}"


def one_line(text: str) -> str:
    """At most 200 characters of a text from a file, on one line, and nothing that a terminal obeys."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def shown(value: object) -> str:
    """A value from a file in a message: quoted, at most 60 characters of it, nothing that a terminal obeys."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None.  resnet18 is not a slip of resnet152's, but h10 is one of h100's."""
    for near in get_close_matches(name, names, 3, ALIKE):
        if without_numbers(near) != without_numbers(name) or one_less(near, name):
            return near
    return None


def without_numbers(name: str) -> str:
    return re.sub(r"[0-9]+", "0", name)


def one_less(one: str, other: str) -> bool:
    """Whether one of the names is the other with a letter or digit left out."""
    shorter, longer = sorted((one, other), key=len)
    return any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))


def offer(name: str, names: Iterable[str]) -> str:
    """Error text for an unknown name: the closest match, then all valid names.

    It follows the message: `; did you mean best-fit? There are: best-fit, first-fit.`
    """
    names = list(names)
    near = closest(name, names)
    return (f"; did you mean {near}?" if near else ".") + f" There are: {', '.join(names)}."


def refuse_device(path: str | Path) -> None:
    """Raise an OSError if what is to be read is a device: /dev/zero has no end."""
    mode = os.stat(path).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(0, "it is a device; give the name of a file", str(path))

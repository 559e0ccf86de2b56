"""Sizes, durations, counts and names as text, the same in every message, table and picture; the errors' base class."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

UNITS = ((1 << 60, "EiB"), (1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
MOST_BYTES = 256 << 20  #: of a text file that is read
SIMILARITY = 0.55  #: of 1: names less alike than this are not offered as a correction


class RefimplError(Exception):
    """An error whose text is one line that says what to do: the base class of this project's."""

    #: What the command ends with; None: a fault of this project, which keeps its traceback.
    exit_status: ClassVar[int | None] = 2


def size(nbytes: int) -> str:
    """Bytes for people: 12.3 MiB."""
    for unit, name in UNITS:
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} {noun(nbytes, 'byte')}"


def duration(seconds: float) -> str:
    """Seconds for people: 1.23 s, 45.6 ms, 7.89 µs."""
    unit, name = next(((unit, name) for unit, name in ((1.0, "s"), (1e-3, "ms")) if seconds >= unit), (1e-6, "µs"))
    value = seconds / unit
    return f"{value:.3g} {name}" if value < 999.5 else f"{value:.0f} {name}"


def counted(number: int, what: str) -> str:
    """`1 step`, `2 steps`, `5,000 copies`."""
    return f"{number:,} {noun(number, what)}"


def noun(number: int, what: str) -> str:
    """`step` after a 1, `steps` after any other number."""
    if number == 1:
        return what
    if what.endswith(("y", "is")):
        return what[:-1] + "ies" if what.endswith("y") else what[:-2] + "es"
    return what + ("es" if what.endswith(("ch", "ss")) and what != "epoch" else "s")


def one_line(text: str, most: int = 400) -> str:
    """A text from a file on one line, with nothing that a terminal obeys; of a longer one its first letters and `…`."""
    text = harmless(text[: most + 1], keep="")
    return text if len(text) <= most else f"{text[:most]}…"


def harmless(text: str, keep: str = "\n\t") -> str:
    """A text with what a terminal obeys escaped, as in `\\x1b`: everything that is written to one goes through here."""
    if text.isprintable():
        return text
    escaped = (letter if letter.isprintable() or letter in keep else ascii(letter)[1:-1] for letter in text)
    return "".join(escaped)


def shown(value: object) -> str:
    """A value from a file in a message: quoted, at most 60 characters of it, nothing that a terminal obeys."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None.  resnet18 is not a slip of resnet152's, but h10 is one of h100's."""
    for near in get_close_matches(name, names, 3, SIMILARITY):
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


def opened(path: str | Path, most: int = MOST_BYTES) -> BinaryIO:
    """A file to read from: every file that a user names is opened here, whatever it is.

    OSError, of one line, for what has no end or may never begin (/dev/zero, a pipe that is not written), for a folder,
    and for more than `most` bytes.
    """
    if "\0" in str(path):
        raise FileNotFoundError(0, "it is not a name that a file can have", str(path))
    waits_not = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for its writer
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | waits_not)
    about = os.fstat(descriptor)
    why = ""
    if stat.S_ISDIR(about.st_mode):
        why = "it is a folder; give the name of a file"
    elif not stat.S_ISREG(about.st_mode):
        why = "it is a device, a pipe or a socket; give the name of a regular file"
    elif about.st_size > most:
        why = f"it has {size(about.st_size)}; at most {size(most)} are read"
    if why:
        os.close(descriptor)
        raise OSError(0, why, str(path))
    return open(descriptor, "rb")


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """An OSError of the block that names no file, as that of a full disk, names this one."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def contents(path: str | Path) -> str:
    """The text of such a file; raises a UnicodeDecodeError for other bytes."""
    with opened(path) as file:
        return file.read().decode("utf-8")


def toml_tables(path: str | Path, error: type[RefimplError]) -> dict[str, Any]:
    """The tables of a TOML file; raises an `error`, one line that says what is wrong with it."""
    tomllib = None
    for reader in ("tomllib", "tomli"):  # Python 3.10 has none of its own
        with suppress(ImportError):
            tomllib = tomllib or import_module(reader)
    if tomllib is None:
        raise error(f"to read {path}, Python 3.10 needs tomli (pip install tomli); Python 3.11 has a reader of TOML")
    try:
        found: dict[str, Any] = tomllib.loads(contents(path))
    except FileNotFoundError:
        raise error(f"there is no file {path}") from None
    except (ValueError, OSError, RecursionError) as why:
        raise error(f"{path} cannot be read as TOML: {one_line(' '.join(str(why).split()))}") from None
    return found


class MachineError(RefimplError, ValueError):
    """A machine, a catalogue or a profile that cannot be used as asked; the message says what would do."""

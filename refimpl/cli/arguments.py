"""What all commands share in reading arguments: one-line errors that offer the nearest name, and exit statuses."""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from refimpl.machine.files import refuse_unwritable
from refimpl.text import offer

DONE, WRONG, WRONG_USE, DOES_NOT_FIT, DEVICE_FAILED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class Fail(Exception):
    """Ends the command with one line and an exit status."""

    def __init__(self, message: str, status: int = WRONG_USE) -> None:
        super().__init__(message)
        self.status = status


def pick(value: str, names: Iterable[str], what: str) -> str:
    """`value` if it is one of the names; else an error that offers the nearest."""
    names = list(names)
    if value in names:
        return value
    raise Fail(f"there is no {what} {value!r}{offer(value, names)}")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and what was probably meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)  # examples keep their lines
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        choice = r"argument (?P<what>\S+): invalid choice: '(?P<value>[^']*)' \(choose from (?P<names>.*)\)"
        found = re.match(choice, message)
        if found:
            names = re.findall(r"[\w-]+", found["names"])
            try:
                pick(found["value"], names, found["what"].strip("-").lower())
            except Fail as better:
                message = str(better)
        elif message.startswith("unrecognized arguments: "):
            options = [option for action in self._actions for option in action.option_strings]
            first = message.removeprefix("unrecognized arguments: ").split()[0]
            near = difflib.get_close_matches(first, options, 1, 0.5)
            message = f"{first} is not understood here" + (f"; did you mean {near[0]}?" if near else "")
        self.exit(WRONG_USE, f"{self.prog}: {message}\n")

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        found, rest = self.parse_known_args(*args, **kwargs)
        if rest:
            getattr(found, "parser", self).error("unrecognized arguments: " + " ".join(rest))
        return found


def add_command(commands: Any, name: str, short: str, long: str, examples: Sequence[str] = ()) -> Parser:
    """A command's parser: one line for the list of commands, a description and examples for its own help."""
    epilog = "examples:\n" + "\n".join(f"  {example}" for example in examples) if examples else None
    parser: Parser = commands.add_parser(name, help=short, description=textwrap.fill(long, 98), epilog=epilog)
    parser.set_defaults(parser=parser)
    return parser


def writable(option: str, path: str) -> Path:
    """The path of a file to be written.  One that cannot be written is refused before the work that it is to hold."""
    try:
        refuse_unwritable(path)
    except OSError as error:
        raise Fail(f"{option} {path}: {error.strerror or error}") from None
    return Path(path)


def completed_by(action: argparse.Action, kind: str) -> None:
    """Completion offers names of this kind for the argument; see `refimpl.cli.completion`."""
    action.completed_by = kind  # type: ignore[attr-defined]

"""Writing to the terminal: lines, tables and progress, by every command in the same way.

Rich is imported when something is written, so that completion and `--json` need not wait for it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from refimpl.text import duration, harmless

if TYPE_CHECKING:
    from rich.console import Console

    from refimpl.report.tables import Table as Report

UNPRINTABLE = re.compile(r"[^\n -~]")  #: what may be a control character
WIDTH = 100  #: columns where the output is not a terminal


def console(to_stderr: bool = False) -> Console:
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(harmless(text), **how)  # every title, line and cell, whatever it was read from

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # the command knows what to do; Rich would end it with a failure

    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else WIDTH
    return Plain(stderr=to_stderr, width=width, markup=False, highlight=False, force_jupyter=False)


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], wraps: Sequence[str] = ()) -> None:
    """Print a table; columns named in `wraps` break their lines first."""
    from refimpl.report.tables import Table

    headings = any(row[0].startswith(" ") for row in rows)
    show_table(Table(title, [*head], [*map(list, rows)], wraps=tuple(wraps), headings=headings, hyphens=False))


def show_table(table: Report) -> None:
    """Print a table and an empty line; one that is wider than the terminal says so."""
    terminal = console()
    terminal.print(table.title, style="bold", soft_wrap=True)
    if (least := table.least_width) > terminal.width:
        wrapped(f"This table is {least} columns wide, and the terminal has {terminal.width}: make it wider.")
    terminal.print(table, "", crop=False)
    if table.note:
        wrapped(table.note)


def say(text: str) -> None:
    console().print(text, soft_wrap=True)


def tell(text: str) -> None:
    """A line on standard error: why something is not done, or what was probably not meant."""
    print(harmless(text), file=sys.stderr)


def wrapped(text: str) -> None:
    """A line of any length, broken between words."""
    console().print(text)


def print_json(document: Any) -> None:
    """Print a JSON document; NaN and infinity, which JSON does not have, become null."""
    plain = json.loads(json.dumps(document), parse_constant=lambda _: None)
    print(UNPRINTABLE.sub(escaped, json.dumps(plain, indent=1, ensure_ascii=False)))


def escaped(found: re.Match[str]) -> str:
    """A character as JSON has it where a terminal would obey it."""
    return json.dumps(found[0])[1:-1] if not found[0].isprintable() else found[0]


class Advance(Protocol):
    """Says what is done now; `by` things have begun since the last call."""

    def __call__(self, name: str, by: int = 1) -> None: ...


def silent(name: str, by: int = 1) -> None:
    """No bar."""


@contextmanager
def progress(doing: str, total: int, completed: int = -1) -> Iterator[Advance]:
    """A bar on standard error, if that is a terminal; call what is given with the name of each thing that begins."""
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
        console=console(to_stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(doing, total=total, completed=completed)
        yield lambda name, by=1: bar.update(
            task, description=escape(f"{doing} {harmless(name):<32.32}".strip()), advance=by
        )


def search_progress() -> Callable[[int, int, float], None]:
    """A progress callback for searches: a line on standard error, if that is a terminal."""

    def show_plan(plans: int, most: int, seconds: float) -> None:
        best = f"best {duration(seconds)}" if seconds < float("inf") else "nothing fits yet"
        line = f"searching, plan {plans} of {most}: {best}; Ctrl-C takes the best   "
        print("\r\033[K" if plans >= most else f"\r{line}", end="", file=sys.stderr, flush=True)

    return show_plan if sys.stderr.isatty() else lambda plans, most, seconds: None


@contextmanager
def waiting(for_what: str) -> Iterator[None]:
    """Something turns on standard error, if that is a terminal, while it takes as long as it takes."""
    from rich.markup import escape

    if not sys.stderr.isatty():
        yield
        return
    with console(to_stderr=True).status(escape(for_what)):
        yield

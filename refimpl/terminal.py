"""Writing to the terminal: lines, tables and progress, by every command in the same way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

WIDTH = 100  #: columns where the output is not a terminal


def console(to_stderr: bool = False) -> Console:
    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else WIDTH
    return Console(stderr=to_stderr, width=width, highlight=False, force_jupyter=False)


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], wraps: Sequence[str] = ()) -> None:
    """Print a table and an empty line; columns named in `wraps` may break their lines, the others stay whole."""
    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(escape(name), no_wrap=name not in wraps, overflow="fold")
    headings = any(row[0].startswith(" ") for row in rows)  # lines that others, indented, belong to
    for row in rows:
        style = "bold" if headings and not row[0].startswith(" ") else ""
        table.add_row(*(escape(cell) for cell in row), style=style)
    console().print(f"[bold]{escape(title)}[/]", soft_wrap=True)
    console().print(table, "")


def say(text: str) -> None:
    console().print(escape(text), soft_wrap=True)


@contextmanager
def progress(doing: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, if that is a terminal; call what is given with the name of each thing that begins."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        console=console(to_stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(doing, total=total, completed=-1)
        yield lambda name: bar.update(task, description=escape(f"{doing} {name:<32.32}".strip()), advance=1)

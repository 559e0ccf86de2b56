"""Many plans: each question is answered once, in several processes, and a file keeps the answers as they come.

All of `refimpl study` plans by it.  Answers do not depend on the number of processes.

A file has one JSON object a line, a row, with the `key` of its question.  Work that was stopped goes on from its file:
questions whose rows are there are not asked again, rows of other questions stay.  One process writes a file at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from refimpl.files import refuse_unwritable
from refimpl.points import workers
from refimpl.text import RefimplError, naming, opened

Row = dict[str, Any]  #: field → value; `key`, the first one, is the question's
BEGINS = b'{"key": '  #: every line


class RowsError(RefimplError, ValueError):
    """A file of rows that cannot be used: one line that says what to do."""


class Keyed(Hashable, Protocol):
    @property
    def key(self) -> str:
        """A hash of all that the answer depends on."""
        ...

    def fault(self, row: Row) -> str:
        """What is wrong with the row that a file has for it: a field and its value; empty: nothing."""
        ...


Asked = TypeVar("Asked", bound=Keyed)


def answers(
    work: Callable[[Asked], Row],
    questions: Sequence[Asked],
    jobs: int | Executor = 1,
    out: str | Path | None = None,
    watch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """The row of each question, in their order.

    Args:
        work: makes a question's row; it is sent to the other processes, so it is no function inside a function.
        questions: none is asked twice; each says what is wrong with a row of the file for it.
        jobs: processes (1: this one), or an executor.
        out: the file of rows; None: nothing is kept.
        watch: called with each row when it is there, known ones first.

    A row whose key has changed meanwhile is returned, and not kept: a file of the user's own is another one now.

    Raises:
        RowsError: the file holds something else, or another process writes it.
        workers.WorkerKilled: a process is gone; the rows that were there are in the file.
    """
    keys = {one: one.key for one in questions}
    asked = {key: one for one, key in keys.items()}

    def fault(row: Row) -> str:
        return asked[row["key"]].fault(row) if row["key"] in asked else ""

    with kept(Path(out) if out else None, fault) as (known, keep):
        found = {one: known[key] for one, key in keys.items() if key in known}
        for row in found.values():
            watch(row)
        for one, row in workers.results(work, [one for one in keys if one not in found], jobs):
            found[one] = row
            if one.key == keys[one]:  # else the user has changed a file meanwhile: the row may be of either text
                keep(row)
            watch(row)
    return [found[one] for one in questions]


@contextmanager
def kept(
    path: Path | None, fault: Callable[[Row], str] = lambda row: ""
) -> Iterator[tuple[Mapping[str, Row], Callable[[Row], None]]]:
    """The rows of a file by their keys, and what adds one; a line without an end, of a killed process, is cut off."""
    if path is None:
        yield {}, lambda row: None
        return
    with naming(path):
        refuse_unwritable(path)
        file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed below)
    with file:
        with naming(path):
            lock(file, path)
            rows, length = read(path, fault)
            file.truncate(length)

        def keep(row: Row) -> None:
            line = f"{json.dumps(row)}\n".encode()
            with naming(path):
                while line:
                    line = line[file.write(line) :]

        yield rows, keep


def lock(file: IO[bytes], path: Path) -> None:
    """Keep other processes from writing the file until it is closed, or this process ends; raises `RowsError`."""
    with suppress(ImportError, OSError):  # Windows has no such locks, nor have some file systems
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RowsError(f"another process writes {path}; wait until it has ended, or name another file") from None


def read(path: Path, fault: Callable[[Row], str] = lambda row: "") -> tuple[dict[str, Row], int]:
    """The rows of a file by their keys, and the bytes of its complete lines; raises `RowsError`.

    Args:
        path: of the file.
        fault: what is wrong with a row, a field and its value; empty: nothing.
    """
    with opened(path) as file:
        text = file.read()
    complete = text[: text.rfind(b"\n") + 1]
    rows: dict[str, Row] = {}
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            one = json.loads(line)
            rows["" + one["key"]] = one
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RowsError(f"{path}, line {number} is no row of a study; name another file, or remove it") from None
        if wrong := fault(one):
            raise RowsError(f"{path}, line {number}: {wrong}; remove the line, or name another file")
    if not complete and text[: len(BEGINS)] != BEGINS[: len(text)]:
        raise RowsError(f"{path} holds no rows of a study; name another file")
    return rows, len(complete)

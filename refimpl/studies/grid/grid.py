"""Every network under every setup, on every machine, within every budget: rows on disk as they come.

A file of rows has one JSON object a line.  A study that was stopped goes on from its file: rows that are there are not
planned again, those of other points stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from refimpl.machine.files import refuse_unwritable
from refimpl.studies import workers
from refimpl.studies.grid.rows import GridPoint, Row, row
from refimpl.text import RefimplError, naming, opened

Texts = Sequence[str | float | int]
Batches = Sequence[int | str | None]


class StudyError(RefimplError, ValueError):
    """A study that cannot be made, or a file of something else: one line that says what to write."""


def points(
    networks: Sequence[str], setups: Sequence[str], machines: Sequence[str] = ("titan-x",), budgets: Texts = ("",),
    batches: Batches = (None,),
) -> list[GridPoint]:  # fmt: skip
    """The product, network by network."""
    for what, given in (("networks", networks), ("setups", setups), ("machines", machines), ("budgets", budgets)):
        if isinstance(given, str) or not given:
            raise StudyError(f"{what} is {given!r}; give a list of one or more")
    return [
        GridPoint(network, setup, machine, str(budget), batch)
        for network, batch, machine, budget, setup in product(networks, batches, machines, budgets, setups)
    ]


def study(
    networks: Sequence[str] = (), setups: Sequence[str] = (), machines: Sequence[str] = ("titan-x",),
    budgets: Texts = ("",), batches: Batches = (None,), wanted: Sequence[GridPoint] = (), jobs: int = 1,
    out: str | Path | None = None, watch: Callable[[Row], None] = lambda row: None,
    work: Callable[[GridPoint], Row] | None = None,
) -> list[Row]:  # fmt: skip
    """The rows of the product, and of the points `wanted` beside it, in this order.

    Args:
        networks: names, as `refimpl plan` takes them; MODULE.py:FUNCTION for one of your own.
        setups: names, as `refimpl compare --with` takes them.
        machines: names, or files of profiles.
        budgets: bytes, "12GiB", 0.5 of what the baseline needs, "least+50%" of the way to that from the setup's least.
        batches: images an iteration; None: the network's own number; "largest": the largest that fits.
        wanted: points beside the product.
        jobs: processes.
        out: the file of rows; None: nothing is kept.
        watch: called with each row when it is there, known ones first.
        work: what makes a point's row; None: `refimpl.studies.grid.rows.row`.

    Raises:
        StudyError: says what to write.
    """
    every = [*(points(networks, setups, machines, budgets, batches) if networks or not wanted else ()), *wanted]
    every = list(dict.fromkeys(every))
    with kept(Path(out) if out else None) as (known, keep):
        found = {point: known[point.key] for point in every if point.key in known}
        for one in found.values():
            watch(one)
        for point, made in workers.results(work or row, [point for point in every if point not in found], jobs):
            found[point] = made
            keep(made)
            watch(made)
    return [found[point] for point in every]


@contextmanager
def kept(path: Path | None) -> Iterator[tuple[Mapping[str, Row], Callable[[Row], None]]]:
    """The rows of a file by their keys, and what adds one; a line without an end, of a killed process, is cut off."""
    if path is None:
        yield {}, lambda row: None
        return
    refuse_unwritable(path)
    rows, length = read(path) if path.exists() else ({}, 0)
    with naming(path), open(path, "r+" if length else "w", encoding="utf-8") as file:
        file.truncate(length)
        file.seek(length)

        def keep(row: Row) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        yield rows, keep


def read(path: Path) -> tuple[dict[str, Row], int]:
    """The rows of a file by their keys, and the bytes of its complete lines; raises `StudyError`."""
    with opened(path) as file:
        text = file.read()
    complete = text[: text.rfind(b"\n") + 1]
    rows: dict[str, Row] = {}
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            one = json.loads(line)
            rows[str(one["key"])] = one
        except (ValueError, TypeError, KeyError, RecursionError):
            raise StudyError(f"{path}, line {number} is no row of a study; name another file, or remove it") from None
    if text and not complete:
        raise StudyError(f"{path} holds no rows of a study; name another file")
    return rows, len(complete)

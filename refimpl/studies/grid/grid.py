"""Every network under every setup, on every machine, within every budget: a row for each point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import product
from pathlib import Path

from refimpl.points.many_plans import Row, answers
from refimpl.studies.grid.rows import LARGEST, GridPoint, row
from refimpl.text import RefimplError, shown

Texts = Sequence[str | float | int]
Batches = Sequence[int | str | None]


class StudyError(RefimplError, ValueError):
    """A study that cannot be made: one line that says what to write."""


def points(
    networks: Sequence[str], setups: Sequence[str], machines: Sequence[str] = ("titan-x",), budgets: Texts = ("",),
    batches: Batches = (None,), least: bool = False, spread: bool = False,
) -> list[GridPoint]:  # fmt: skip
    """The product, network by network."""
    given_lists = {
        "networks": networks, "setups": setups, "machines": machines, "budgets": budgets, "batches": batches,
    }  # fmt: skip
    for what, given in given_lists.items():
        if isinstance(given, str) or not given:
            raise StudyError(f"{what} is {given!r}; give a list of one or more")
    return [
        point_of(network, setup, machine, budget, batch, least, spread)
        for network, batch, machine, budget, setup in product(networks, batches, machines, budgets, setups)
    ]


def point_of(
    network: str, setup: str, machine: str, budget: str | float = "", batch: int | str | None = None,
    least: bool = False, spread: bool = False,
) -> GridPoint:  # fmt: skip
    """A point, of values of any type; raises `StudyError`."""
    for what, value in (("network", network), ("setup", setup), ("machine", machine)):
        if not isinstance(value, str):
            raise StudyError(f"a {what} is {shown(value)}; give its name")
    if isinstance(budget, bool) or not isinstance(budget, str | int | float):
        raise StudyError(f"a budget is {shown(budget)}; give bytes or a share, as in 12GiB or 0.4")
    if batch != LARGEST and batch is not None and type(batch) is not int:
        raise StudyError(f"a batch is {shown(batch)}; give a whole number, or {LARGEST!r}")
    return GridPoint(network, setup, machine, str(budget), batch, least, spread)


def study(
    networks: Sequence[str] = (), setups: Sequence[str] = (), machines: Sequence[str] = ("titan-x",),
    budgets: Texts = ("",), batches: Batches = (None,), least: bool = False, spread: bool = False,
    wanted: Sequence[GridPoint] = (), jobs: int | Executor = 1, out: str | Path | None = None,
    watch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:  # fmt: skip
    """The rows of the product, and of the points `wanted` beside it, in this order.

    Args:
        networks: names, as `refimpl plan` takes them; MODULE.py:FUNCTION for one of your own.
        setups: names, as `refimpl compare --with` takes them.
        machines: names, or files of profiles.
        budgets: bytes, "12GiB", 0.5 of what the baseline needs, "least+50%" of the way to that from the setup's least,
            or "least*1.05".
        batches: images an iteration; None: the network's own number; "largest": the largest that fits.
        least: whether each row of the product says the setup's least budget, too.
        spread: whether it says an interval of its slow-down, on machines that differ from the model.
        wanted: points beside the product.
        jobs: processes; or an executor, as mpi4py.futures.MPIPoolExecutor() or Dask's client.get_executor().
        out: the file of rows; None: nothing is kept.
        watch: called with each row when it is there, known ones first.

    Raises:
        StudyError: says what to write.
        RowsError: the file holds something else, or another study writes it.
    """
    every = [
        *(points(networks, setups, machines, budgets, batches, least, spread) if networks or not wanted else ()),
        *wanted,
    ]
    return answers(row, list(dict.fromkeys(every)), jobs, out, watch)

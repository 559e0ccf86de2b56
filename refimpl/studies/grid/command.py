"""`refimpl study FILE`: a grid of plans, in several processes, a row on disk for each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import get_type_hints

from kernels.targets.cpu.threads import cores
from refimpl.cli import shared_options
from refimpl.cli.parser import DONE, Parser, whole
from refimpl.cli.stopped import stopped
from refimpl.cli.terminal import print_json, progress, say, show_table
from refimpl.fit.many_plans import Row
from refimpl.report.tables import Column, Table
from refimpl.studies.grid.grid import StudyError, points, study
from refimpl.studies.grid.rows import GridPoint
from refimpl.text import closest, size, toml_tables

PRODUCT = (
    "networks",
    "setups",
    "machines",
    "budgets",
    "batches",
)  #: keys of a study's file, each a list; `least` is true or false
EXAMPLE = 'networks = ["vgg16"]; setups = ["vdnn-dyn", "accudnn"]; machines = ["titan-x"]; budgets = [0.4, "8GiB"]'


def add(parser: Parser) -> None:
    parser.describe(
        "Plan every network of a file under every setup, on every machine, within every budget, and keep a flat row "
        f"for each, a JSON object a line.  The file is TOML, as in {EXAMPLE}; single points are tables [[points]] "
        "with network, setup, machine, budget, batch.  The same command goes on where it was stopped.  All times are "
        "simulated.",
        ["refimpl study grid.toml", "refimpl study grid.toml --jobs 8 --out rows.jsonl"],
    )
    parser.add_argument("file", metavar="FILE", help="what is planned, in TOML")
    parser.add_argument("--out", metavar="FILE", help="the rows (default: beside FILE, named .jsonl)")
    parser.add_argument("--jobs", type=whole(1, 1024), metavar="N", help="processes (default: one for each core)")
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    every = points_of(options.file)
    out = Path(options.out) if options.out else Path(options.file).with_suffix(".jsonl")
    with stopped(out), progress("planning", len(every)) as advance:
        rows = study(
            wanted=every, jobs=options.jobs or cores(), out=out, watch=lambda row: advance(str(row["network"]))
        )
    if options.json:
        print_json(rows)
        return DONE
    show_table(table(rows))
    for why in dict.fromkeys(row["why"] for row in rows if row["fits"] is None):
        say(f"refused: {why}")
    say(f"Rows: {out}")
    return DONE


def points_of(path: str) -> list[GridPoint]:
    """The points of a study's file; raises `StudyError`."""
    given = toml_tables(path, StudyError)
    for name, value in given.items():
        if name not in (*PRODUCT, "least", "points"):
            near = closest(name, [*PRODUCT, "least", "points"])
            raise StudyError(f"{path}: there is no {name!r}; did you mean {near}?")
        if name in PRODUCT and not isinstance(value, list):
            raise StudyError(f"{path}: {name} is {value!r}; give a list")
    least = given.get("least", False)
    if not isinstance(least, bool):
        raise StudyError(f"{path}: least is {least!r}; give true or false")
    product = {name: given[name] for name in PRODUCT if name in given}
    found = points(**{"setups": []} | product, least=least) if "networks" in product else []
    fields = set(get_type_hints(GridPoint)) - {"with_least"}
    for one in given.get("points", []):
        if not isinstance(one, Mapping) or not {"network", "setup", "machine"} <= set(one) <= fields:
            raise StudyError(f"{path}: a point is {one!r}; give network, setup, machine, and perhaps budget and batch")
        found.append(GridPoint(**{**one, "budget": str(one.get("budget", "")), "with_least": least}))
    if not found:
        raise StudyError(f"{path} names no networks; write, for instance, {EXAMPLE}")
    return found


def table(rows: list[Row]) -> Table:
    """What people look at first; the file has all."""
    columns = (
        Column("network", lambda row: f"{row['network']}({row['batch']})"), Column("setup", lambda row: row["setup"]),
        Column("machine", lambda row: row["machine"]), Column("budget", lambda row: row["budget_bytes"], size),
        Column("fits", lambda row: {True: "yes", False: "no", None: "refused"}[row["fits"]]),
        Column("slow-down", lambda row: row["slow_down"], "{:.3f}".format),
        Column("peak", lambda row: row["peak_bytes"], size),
        Column("moved", lambda row: moved(row), size), Column("again", lambda row: row["again"], str),
    )  # fmt: skip
    return Table.of("", rows, columns)


def moved(row: Row) -> int | None:
    """Bytes copied both ways."""
    names = ("offloaded_bytes", "prefetched_bytes", "on_demand_bytes", "evicted_bytes")
    return sum(row[name] for name in names) if row["fits"] else None

"""`refimpl study FILE`: a grid of plans, in several processes, a row on disk for each."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import get_type_hints

from kernels.targets.cpu.threads import cores
from refimpl.cli import shared_options
from refimpl.cli.parser import DONE, Parser, whole
from refimpl.cli.picture_option import checked, save
from refimpl.cli.stopped import stopped
from refimpl.cli.terminal import print_json, progress, say, show_table
from refimpl.points.many_plans import Row, read
from refimpl.report.tables import Column, Table
from refimpl.studies.grid.grid import StudyError, point_of, points, study
from refimpl.studies.grid.rows import GridPoint
from refimpl.text import closest, counted, harmless, size, toml_tables

PRODUCT = ("networks", "setups", "machines", "budgets", "batches")  #: keys of a study's file, each a list
FLAGS = ("least", "spread")  #: and these, each true or false
KINDS = ("heat-map", "slow-down", "profile", "pareto")  #: of pictures
MOST_SHOWN = 60  #: rows in the table; the file has all
EXAMPLE = 'networks = ["vgg16"]; setups = ["vdnn-dyn", "accudnn"]; machines = ["titan-x"]; budgets = [0.4, "8GiB"]'


def add(parser: Parser) -> None:
    parser.describe(
        "Plan every network of a file under every setup, on every machine, within every budget, and keep a flat row "
        f"for each, a JSON object a line.  The file is TOML, as in {EXAMPLE}; single points are tables [[points]] "
        "with network, setup, machine, budget, batch.  The same command goes on where it was stopped.  All times are "
        "simulated.",
        [
            "refimpl study grid.toml",
            "refimpl study grid.toml --jobs 8 --out rows.jsonl",
            "refimpl study rows.jsonl --draw profile --picture profile.png",
            "refimpl study rows.jsonl --csv",
        ],
    )
    parser.add_argument("file", metavar="FILE", help="what is planned, in TOML; or, to draw them, rows that are there")
    parser.add_argument("--out", metavar="FILE", help="the rows (default: beside FILE, named .jsonl)")
    parser.add_argument("--jobs", type=whole(1, 1024), metavar="N", help="processes (default: one for each core)")
    shared_options.picture(parser, kinds=False)
    parser.add_argument(
        "--draw", choices=KINDS, default=KINDS[0],
        help="what --picture draws: setup by budget; slow-down over budget, with the intervals of spread = true; the "
        f"share of points within a factor of the best; slow-down over memory (default: {KINDS[0]})",
    )  # fmt: skip
    parser.add_argument("--csv", action="store_true", help="the rows for a spreadsheet, on standard output")
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    picture = checked(options.picture)
    out = Path(options.file)
    if out.suffix == ".jsonl":
        rows = [*read(out)[0].values()]
    else:
        every = points_of(options.file)
        out = Path(options.out) if options.out else out.with_suffix(".jsonl")
        with stopped(out), progress("planning", len(every)) as advance:
            rows = study(
                wanted=every, jobs=options.jobs or cores(), out=out, watch=lambda row: advance(str(row["network"]))
            )
    if picture:
        from refimpl.studies.grid.pictures import drawn

        save(drawn(options.draw, rows), picture)
    if options.json:
        print_json(rows)
        return DONE
    if options.csv:
        print(harmless(as_csv(rows)), end="")
        return DONE
    try:
        show_table(table(rows[:MOST_SHOWN]))
    except KeyError as error:
        raise StudyError(f"{out} has rows without {error}, of another command or version; --csv prints them") from None
    if len(rows) > MOST_SHOWN:
        say(f"and {counted(len(rows) - MOST_SHOWN, 'row')} more, in the file")
    for why in dict.fromkeys(row["why"] for row in rows if row["fits"] is None):
        say(f"refused: {why}")
    say(f"Rows: {out}")
    if picture:
        say(f"Picture: {picture}")
    return DONE


def points_of(path: str) -> list[GridPoint]:
    """The points of a study's file; raises `StudyError`."""
    given = toml_tables(path, StudyError)
    for name, value in given.items():
        if name not in (*PRODUCT, *FLAGS, "points"):
            near = closest(name, [*PRODUCT, *FLAGS, "points"])
            raise StudyError(f"{path}: there is no {name!r}; did you mean {near}?")
        if name in PRODUCT and not isinstance(value, list):
            raise StudyError(f"{path}: {name} is {value!r}; give a list")
        if name in FLAGS and not isinstance(value, bool):
            raise StudyError(f"{path}: {name} is {value!r}; give true or false")
    flags = {name: given.get(name, False) for name in FLAGS}
    product = {name: given[name] for name in PRODUCT if name in given}
    found = points(**{"setups": []} | product, **flags) if "networks" in product else []
    single = given.get("points", [])
    fields = set(get_type_hints(GridPoint)) - {f"with_{name}" for name in FLAGS}
    for one in single if isinstance(single, list) else [single]:
        if not isinstance(one, Mapping) or not {"network", "setup", "machine"} <= set(one) <= fields:
            raise StudyError(f"{path}: a point is {one!r}; give network, setup, machine, and perhaps budget and batch")
        found.append(point_of(**one, **flags))
    if not found:
        raise StudyError(f"{path} names no networks; write, for instance, {EXAMPLE}")
    return found


def as_csv(rows: list[Row]) -> str:
    """A line a row, below the names of the fields."""
    text = StringIO()
    lines = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)
    return text.getvalue()


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

"""`refimpl study`: many points, in several processes, a row on disk for each, as a table or a picture."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, get_type_hints

from refimpl.cli import shared_options
from refimpl.cli.parser import DOES_NOT_FIT, DONE, Fail, Parser, real, whole
from refimpl.cli.picture_option import checked, save
from refimpl.cli.terminal import print_json, say, show_table, waiting, wrapped
from refimpl.machine import here
from refimpl.names import presets
from refimpl.names.budgets import several
from refimpl.names.machines import named
from refimpl.points.many_plans import Row, read
from refimpl.report.tables import Column, Table
from refimpl.studies.grid import over_budget
from refimpl.studies.grid.grid import StudyError, point_of, points
from refimpl.studies.grid.many_points import add as add_many_points
from refimpl.studies.grid.many_points import planned
from refimpl.studies.grid.over_budget import Curves
from refimpl.studies.grid.rows import BOUND, CUT, GridPoint, fault, may_cut, moved, network_of, of_papers
from refimpl.studies.optimum.bound import silent_solver
from refimpl.text import closest, counted, harmless, size, toml_tables

PRODUCT = ("networks", "setups", "machines", "budgets", "batches")  #: keys of a study's file, each a list
FLAGS = ("least", "spread")  #: and these, each true or false
CASES = "cases"  #: tables of the product's keys, each in place of the file's
#: Picture → what it draws.
KINDS = {
    "heat-map": "setup by budget",
    "slow-down": "slow-down over budget, with the intervals of spread = true",
    "profile": "the share of points within a factor of the best",
    "memory": "slow-down over memory",
    "pareto": "one network: slow-down at each budget, the best of each paper, and the bound",
}
FORMULA = ("=", "+", "-", "@", "\t", "\r")  #: first letters of what a spreadsheet computes
MOST_SHOWN = 60  #: rows in the table; the file has all
BUDGETS = 12  #: of a network, where none are given
EXAMPLE = 'networks = ["vgg16"]; setups = ["vdnn-dyn", "accudnn"]; machines = ["titan-x"]; budgets = [0.4, "8GiB"]'


def add(parser: Parser) -> None:
    parser.describe(
        "Plan every network of a file under every setup, on every machine, within every budget, and keep a flat row "
        f"for each, a JSON object a line.  The file is TOML, as in {EXAMPLE}; single points are tables [[points]] "
        "with network, setup, machine, budget, batch.  Of a NETWORK every setup of the papers is planned, and the "
        "policy that combines them, within a dozen budgets, from the least that one of them fits in to the "
        "baseline's, the machine's own memory among them.  The same command goes on where it was stopped.  All times "
        "are simulated.",
        [
            "refimpl study grid.toml --jobs 8 --out rows.jsonl",
            "refimpl study rows.jsonl --draw profile --picture profile.png",
            "refimpl study rows.jsonl --csv",
            "refimpl study vgg16 --batch 256 --machine titan-x --bound --out vgg16.jsonl --picture pareto",
            'refimpl study lenet --budget 40%,60%,80% --with vdnn-dyn --with "superneurons algorithms=memory"',
            "refimpl study transformers --help",
        ],
    )
    parser.add_argument(
        "file", metavar="FILE",
        help="what is planned, in TOML; rows that are there (.jsonl), to draw them; or a network; named studies are "
        "transformers, challenge and fragmentation",
    )  # fmt: skip
    add_many_points(parser, "the rows (default: beside FILE, named .jsonl; of a network, none are kept)")
    parser.add_argument(
        "--picture", metavar="FILE", help="draw it into a .png or .svg file; or a kind, as in pareto: into pareto.png"
    )
    meant = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    parser.add_argument("--draw", choices=tuple(KINDS), help=f"{meant} (default: heat-map; of a network pareto)")
    parser.add_argument("--beside", action="store_true", help="a column for each setup, and which one is slower where")
    parser.add_argument("--csv", action="store_true", help="the rows for a spreadsheet, on standard output")
    group = parser.add_argument_group("of a network")
    group.add_argument("--batch", type=whole(), metavar="N", help="images in a batch (default: as its paper has it)")
    group.add_argument("--machine", metavar="NAME", help="or a profile (default: the GPU at hand, titan-x without one)")
    group.add_argument("--with", action="append", metavar="SETUP", dest="setups", default=[],
                       help="this setup in place of all the papers', or of the file's; repeatable")  # fmt: skip
    group.add_argument("--budget", metavar="SIZE,SIZE", help="these budgets, as in 8GiB,12GiB or 0.4,0.8")
    group.add_argument("--points", type=whole(2, 1000), metavar="N", default=BUDGETS,
                       help=f"how many budgets there are, without --budget (default: {BUDGETS})")  # fmt: skip
    group.add_argument("--bound", action="store_true", help="the lower bound, too; it needs refimpl[optimum]")
    group.add_argument("--time-limit", type=real(above=0), metavar="S", default=60.0,
                       help="seconds for the bound's solver at each budget (default: 60)")  # fmt: skip
    group.add_argument("--effort", type=whole(), metavar="N", help="plans of combined's search at each budget, at most")


def run(options: argparse.Namespace) -> int:
    path = Path(options.file)
    of_network = path.suffix == ".onnx" or (path.suffix not in (".jsonl", ".toml") and not path.is_file())
    named_kind = options.picture if options.picture in KINDS else None
    kind = options.draw or named_kind or ("pareto" if of_network else "heat-map")
    picture = checked(f"{named_kind}.png" if named_kind else options.picture)
    if of_network:
        rows = of_one_network(options)
    elif options.file.endswith(".jsonl"):
        options.out = options.file
        rows = [*read(path, fault)[0].values()]
    else:
        options.out = options.out or str(path.with_suffix(".jsonl"))
        rows = planned(options, points_of(options.file, options.setups))
    if picture:
        from refimpl.studies.grid.pictures import drawn

        save(drawn(kind, rows), picture)
    if options.json:
        print_json(rows)
        return DONE
    if options.csv:
        print(harmless(as_csv(rows)), end="")
        return DONE
    if options.beside:
        show_table(over_budget.beside(rows))
    elif of_network:
        curves = Curves.of(rows)
        show_table(over_budget.table(curves))
        for line in over_budget.findings(curves):
            wrapped(line)
    else:
        show_table(table(rows[:MOST_SHOWN]))
        if len(rows) > MOST_SHOWN:
            say(f"and {counted(len(rows) - MOST_SHOWN, 'row')} more, in the file")
    for why in dict.fromkeys(row["why"] for row in rows if row["fits"] is None):
        say(f"refused: {why}")
    if options.out:
        say(f"Rows: {options.out}")
    if picture:
        say(f"Picture: {picture}")
    return DONE


# -- a network ---------------------------------------------------------------------------------------------------------


def of_one_network(options: argparse.Namespace) -> list[Row]:
    """The rows of one network: every setup of the papers, or those of --with, the combined policy and the bound."""
    if options.bound:
        silent_solver()  # raises before anything is planned, where HiGHS is missing
    for setup in options.setups:
        presets.setup(setup)  # a slip is a line here, and not a row for each budget
    with waiting("building the network"):
        network = network_of(options.file, options.batch)
    machine = options.machine or ("here" if here.gpu_at_hand() else shared_options.VDNNS_MACHINE)
    named(machine)
    setups = list(dict.fromkeys(options.setups)) or [*of_papers()]
    combined = f"combined effort={options.effort}" if options.effort else "combined"
    every = [*setups, *[combined] * (combined not in setups)]
    cut = f" {CUT}" * (any(map(may_cut, every)) and not network.conventions.as_pytorch)
    every = [*[f"{BOUND} {options.time_limit:g}{cut}"] * options.bound, *every]
    given = [budget or "" for budget in several(options.budget)]
    budgets: Sequence[str | int] = given if options.budget else budgets_of(options, machine, network.batch, setups)
    return planned(options, points([options.file], every, [machine], budgets, [network.batch]))


def budgets_of(options: argparse.Namespace, machine: str, batch: int, setups: Sequence[str]) -> Sequence[str | int]:
    """Geometric steps from the least budget that some setup fits in to the baseline's; the machine's memory is one."""
    rows = planned(options, points([options.file], [*setups, "baseline"], [machine], ["least"], [batch]))
    *least, most = [row["least_bytes"] for row in rows]
    fitting = [one for one in least if one]
    if not fitting:
        raise Fail(next(row["why"] for row in rows), DOES_NOT_FIT)
    memory = named(machine).memory_bytes
    return over_budget.budgets_between(min(fitting), most or memory, options.points, memory)


# -- a file ------------------------------------------------------------------------------------------------------------


def points_of(path: str, setups: Sequence[str] = ()) -> list[GridPoint]:
    """The points of a study's file; `setups` are in place of its own.  Raises `StudyError`."""
    given = toml_tables(path, StudyError)
    refuse_unknown(path, given, (*PRODUCT, *FLAGS, "points", CASES))
    flags = {name: given.get(name, False) for name in FLAGS}
    product = {name: given[name] for name in PRODUCT if name in given}
    found: list[GridPoint] = []
    for case in given.get(CASES, [{}]):
        refuse_unknown(path, case, PRODUCT)
        merged = {"setups": []} | product | case | ({"setups": [*setups]} if setups else {})
        found += points(**merged, **flags) if "networks" in merged else []
    single = given.get("points", [])
    fields = set(get_type_hints(GridPoint)) - {f"with_{name}" for name in FLAGS}
    for one in single if isinstance(single, list) else [single]:
        if not isinstance(one, Mapping) or not {"network", "setup", "machine"} <= set(one) <= fields:
            raise StudyError(f"{path}: a point is {one!r}; give network, setup, machine, and perhaps budget and batch")
        found.append(point_of(**one, **flags))
    if not found:
        raise StudyError(f"{path} names no networks; write, for instance, {EXAMPLE}")
    return found


def refuse_unknown(path: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise `StudyError` where a table has a key that is not known, or a value of another type."""
    if not isinstance(given, Mapping):
        raise StudyError(f"{path}: a case is {given!r}; give a table [[{CASES}]]")
    for name, value in given.items():
        if name not in known:
            raise StudyError(f"{path}: there is no {name!r}; did you mean {closest(name, [*known])}?")
        if name in (*PRODUCT, CASES) and not isinstance(value, list):
            raise StudyError(f"{path}: {name} is {value!r}; give a list")
        if name in FLAGS and not isinstance(value, bool):
            raise StudyError(f"{path}: {name} is {value!r}; give true or false")


def as_csv(rows: list[Row]) -> str:
    """A line a row, below the names of the fields."""
    text = StringIO()
    lines = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    lines.writeheader()
    lines.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def cell(value: object) -> object:
    """A field's value; a text that a spreadsheet would take for a formula, and is no number, begins with a quote."""
    if not isinstance(value, str) or value[:1] not in FORMULA:
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def table(rows: Sequence[Row]) -> Table:
    """What people look at first; the file has all."""
    columns = (
        Column("network", lambda row: f"{row['network']}({row['batch']})"), Column("setup", lambda row: row["setup"]),
        Column("machine", lambda row: row["machine"]), Column("budget", lambda row: row["budget_bytes"], size),
        Column("fits", lambda row: {True: "yes", False: "no", None: "refused"}[row["fits"]]),
        Column("slow-down", lambda row: row["slow_down"], "{:.3f}".format),
        Column("peak", lambda row: row["peak_bytes"], size),
        Column("moved", moved, size), Column("again", lambda row: row["again"], str),
    )  # fmt: skip
    return Table.of("", rows, columns)

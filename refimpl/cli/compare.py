"""`refimpl compare`: setups side by side, on one network or several."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from refimpl.cli.arguments import DONE, Fail, add_command, completed_by
from refimpl.cli.lists import print_json
from refimpl.cli.options import (
    add_budget,
    add_cluster,
    add_json,
    add_machine,
    add_network,
    add_setup,
    assigned,
    data_parallel,
    machine_of,
    say_share,
    setup_named,
)
from refimpl.cli.pictures import add_picture, checked, save
from refimpl.cli.plan import least, proved
from refimpl.cli.terminal import progress, say, show_table

if TYPE_CHECKING:
    from refimpl.machine import Machine
    from refimpl.network import Network
    from refimpl.planner import Setup
    from refimpl.report.comparison import Compared
    from refimpl.report.tables import Table

MAY_AGREE = ("out", "in", "rebuilt")  #: columns left out where all setups agree
DEAR = ("fits", "stalled")  #: columns left out where a line would be too long: `least` says who fits, time who waits
NAME = 13  #: letters of a setup's name that stay in one line
SAYS_NOTHING = ("=none", "=yes", "=no")  #: a row is called by slot and module, where the module's name says nothing
LEFT_OUT = ("steps", "fates")  #: of a plan's document, where many stand side by side


def add(commands: Any) -> None:
    parser = add_command(
        commands, "compare", "setups side by side",
        "Plan several setups for the same networks, machine and budget, and lay them side by side. "
        'A setup is a preset and slot=module words, in quotes, as in "vdnn-all, join=no".  Without --with: the '
        "baseline, with both kinds of liveness and with every allocator.  --set, --algorithms and --recompute hold for "
        "every row that does not say otherwise.",
        [
            "refimpl compare vgg16 --batch 64",
            'refimpl compare vgg16 resnet50 --with baseline --with "liveness=layer-wise algorithms=memory"',
            'refimpl compare alexnet --budget 2GiB --with "liveness=layer-wise allocator=first-fit" --least',
            "refimpl compare resnet50:superneurons --with vdnn-dyn --with superneurons",
            "refimpl compare vgg16 --budget 8GiB,12GiB --with vdnn-dyn --with superneurons",
            'refimpl compare vdnnpp-demo --with vdnn-conv --with "vdnn-conv join=no" --with vdnnpp-conv',
        ],
    )  # fmt: skip
    add_network(parser, several=True)
    action = parser.add_argument(
        "--with", action="append", metavar="SETUP", dest="setups", default=[],
        help='one row, as in "baseline liveness=layer-wise"; repeatable',
    )  # fmt: skip
    completed_by(action, "setups")
    action = parser.add_argument(
        "--fates", metavar="FILE", action="append", dest="setups", type="fates={}".format,
        help="one row, whose maps have the fates in FILE; repeatable",
    )  # fmt: skip
    completed_by(action, "files")
    add_setup(parser, preset=False)
    add_machine(parser)
    add_budget(parser, several=True)
    parser.add_argument("--least", action="store_true", help="the least budget that each setup fits in, too")
    parser.add_argument("--no-verify", action="store_false", dest="verify", help="do not prove the programs")
    add_picture(parser, kinds=False)
    add_cluster(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from refimpl.network.zoo import build
    from refimpl.registry.budgets import several
    from refimpl.registry.planning import budget_bytes
    from refimpl.report.tables import compare_table
    from refimpl.text import size

    picture = checked(options.picture)
    wanted = several(options.budget)
    if picture and len(options.networks) * len(wanted) > 1:
        raise Fail("--picture draws the setups of one network within one budget; name one of each")
    setups, machine = setups_of(options), machine_of(options)
    common = [
        f"{slot.replace('_', '-')}={module}"
        for slot, module in assigned(options).items()
        if all(setup.shown(slot) == module for setup in setups)
    ]
    networks = [data_parallel(options, build(name, options.batch), options.workers) for name in options.networks]
    cases = [(network, budget_bytes(budget, network, machine)) for network in networks for budget in wanted]
    found: list[list[tuple[Compared, dict[str, Any]]]] = []
    with progress("planning", len(setups) * len(cases)) as advance:
        for network, budget in cases:
            found.append([])
            for setup in setups:
                advance(f"{network.name} {setup.name}")
                found[-1].append(one(short(setup, common), network, setup, machine, budget, options))
    how = f"{machine.name} (simulated, {machine.catalogue})"
    titles = [
        " · ".join([f"{network.name}, batch {network.batch}", how, f"budget {size(budget)}", *common])
        for network, budget in cases
    ]
    if picture:
        from refimpl.report.comparison_picture import comparison_picture

        save(comparison_picture(titles[0], [row for row, _ in found[0]]), picture)
    if options.json:
        print_json([document for rows in found for _, document in rows])
        return DONE
    for number, (title, rows) in enumerate(zip(titles, found, strict=True)):
        if number:
            say("")
        table = compare_table(title, [row for row, _ in rows])
        if options.least:
            table = with_least(table, [document["least_budget_bytes"] for _, document in rows])
        show_table(narrowed(without_agreement(table)))
    for network in networks:
        say_share(options, network, machine)
    if picture:
        say(f"Picture: {picture}")
    return DONE


def with_least(table: Table, least_bytes: list[int | None]) -> Table:
    """The table with one column more."""
    from refimpl.text import size

    rows = zip(table.rows, least_bytes, strict=True)
    cells = [[*row[:2], size(nbytes) if nbytes else "", *row[2:]] for row, nbytes in rows]
    note = f"{table.note}  least: the smallest budget tried that fits."
    head = [*table.head[:2], "least", *table.head[2:]]
    return replace(table, head=head, rows=cells, numbers=table.numbers | {"least"}, note=note)


def without_agreement(table: Table) -> Table:
    """The table without the columns in which all rows that fit say the same; these are named once, below it."""
    fitting = [row for row in table.rows if row[1] == "yes"]
    values = {name: {row[i] for row in fitting} for i, name in enumerate(table.head) if name in MAY_AGREE}
    agreed = {name: found.pop() for name, found in values.items() if len(found) == 1}
    if not agreed or len(table.rows) < 2:
        return table
    same = ", ".join(f"{name} {value}" for name, value in agreed.items() if value != "–")
    note = f"{table.note}  The same for all: {same}." if same else table.note
    return replace(without(table, agreed), note=note)


def narrowed(table: Table) -> Table:
    """The table, if it has a column `least`, without those that can be done without, until it fits the width."""
    from refimpl.report.tables import GAP, WIDTH

    for name in DEAR:
        widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
        if "least" not in table.head or NAME + sum(widths[1:]) + len(GAP) * len(widths[1:]) <= WIDTH:
            break
        table = without(table, {name})
    return table


def without(table: Table, names: Collection[str]) -> Table:
    """The table without these columns."""
    kept = [i for i, name in enumerate(table.head) if name not in names]
    return replace(table, head=[table.head[i] for i in kept], rows=[[row[i] for i in kept] for row in table.rows])


def one(
    label: str, network: Network, setup: Setup, machine: Machine, budget: int, options: argparse.Namespace
) -> tuple[Compared, dict[str, Any]]:
    """One row: for the table and for the document."""
    from refimpl.planner import DoesNotFit, plan
    from refimpl.registry.planning import unlimited_baseline
    from refimpl.report.comparison import compared, misfit
    from refimpl.report.json import misfit_json, plan_json

    try:
        program = plan(network, setup, machine, budget)
    except DoesNotFit as error:
        row, document = misfit(label, budget, error), misfit_json(network, setup, machine, budget, error)
    else:
        if options.verify:
            proved(program)
        timeline = program.simulate()
        row = compared(label, program, timeline)
        baseline = unlimited_baseline(network, machine).planned_seconds if options.json else None
        document = plan_json(program, timeline, baseline) if options.json else {}
    if options.least:
        document["least_budget_bytes"] = least(network, setup, machine)
    return row, {"setup": setup.name} | {key: value for key, value in document.items() if key not in LEFT_OUT}


def setups_of(options: argparse.Namespace) -> list[Setup]:
    """Every row's setup; what --set and its like say holds where the row says nothing else."""
    from refimpl.registry.presets import parse

    rows = (parse(text) for text in options.setups or default_rows())
    return [setup_named(options, preset, own) for preset, own in rows]


def short(setup: Setup, common: Collection[str] = ()) -> str:
    """A row's name: the setup's, without `baseline`, without what all rows share, and mostly without slots' names."""
    preset, *changed = setup.name.split(", ")
    own = (word for word in changed if word not in common)
    words = [word if word.endswith(SAYS_NOTHING) else word.partition("=")[2] for word in own]
    return ", ".join([preset] * (preset != "baseline" or not words) + words)


def default_rows() -> list[str]:
    """The baseline with both kinds of liveness, and with every allocator."""
    from refimpl.registry.modules import MODULES

    others = list(MODULES["allocator"])[1:]
    rows = ["baseline", "baseline, liveness=layer-wise"]
    return [*rows, *(f"{rows[-1]}, allocator={name}" for name in others)]

"""`refimpl compare`: setups side by side, or the best policy of every paper, on one network or several."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from refimpl.cli import declare, resolve
from refimpl.cli.arguments import DONE, Fail, Parser
from refimpl.cli.pictures import checked, save
from refimpl.cli.plan import least
from refimpl.cli.terminal import Advance, print_json, progress, say, show_table, wrapped
from refimpl.combined import Combined
from refimpl.machine import Machine
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Setup, SetupError, plan
from refimpl.registry.budgets import several
from refimpl.registry.planning import budget_bytes, unlimited_baseline
from refimpl.registry.presets import PAPERS, parse
from refimpl.report.comparison import Compared, compared, misfit
from refimpl.report.json import misfit_json, plan_json
from refimpl.report.tables import GAP, WIDTH, Table, compare_table
from refimpl.text import size

MAY_AGREE = ("out", "in", "rebuilt")  #: columns left out where all setups agree
DEAR = ("fits", "stalled")  #: columns left out where a line would be too long: `least` says who fits, time who waits
NAME = 13  #: letters of a setup's name that stay in one line
EFFORT = 200  #: plans that the search of the preset combined makes without --effort, where every paper has a row
SAYS_NOTHING = ("=none", "=yes", "=no")  #: a row is called by slot and module, where the module's name says nothing
LEFT_OUT = ("steps", "fates")  #: of a plan's document, where there are many in one document


@dataclass(frozen=True)
class Group:
    """The setups of which one row shows the best: a paper's policies, or one setup."""

    setups: list[tuple[str, Setup | SetupError]]  #: a name, and the setup, or why --set and its like are refused
    paper: str = ""


@dataclass(frozen=True)
class Planned:
    """A setup's row, and its program or the error."""

    setup: Setup | None
    row: Compared
    outcome: Program | DoesNotFit | SetupError


def add(parser: Parser) -> None:
    parser.describe(
        "Plan several setups for the same networks, machine and budget, and show them side by side. "
        'A setup is a preset and slot=module words, in quotes, as in "vdnn-all, join=no".  Without --with: the '
        "fastest policy of every paper that fits, and why its other policies are not the row.  --set, --algorithms and "
        "--recompute hold for every row that does not say otherwise.",
        [
            "refimpl compare vgg16 --batch 64 --machine rtx-3060 --budget 6GiB",
            'refimpl compare vgg16 resnet50 --with baseline --with "liveness=layer-wise algorithms=memory"',
            'refimpl compare alexnet --budget 2GiB --with "liveness=layer-wise allocator=first-fit" --least',
            "refimpl compare resnet50:superneurons --with vdnn-dyn --with superneurons",
            "refimpl compare vgg16 --budget 8GiB,12GiB --with vdnn-dyn --with superneurons",
            'refimpl compare vdnnpp-demo --with vdnn-conv --with "vdnn-conv join=no" --with vdnnpp-conv',
        ],
    )  # fmt: skip
    declare.network(parser, several=True)
    parser.add_argument(
        "--with", action="append", metavar="SETUP", dest="setups", default=[],
        help='one row, as in "baseline liveness=layer-wise"; repeatable',
    )  # fmt: skip
    parser.add_argument(
        "--fates", metavar="FILE", action="append", dest="setups", type="fates={}".format,
        help="one row, whose maps have the fates in FILE; repeatable",
    )  # fmt: skip
    declare.setup(parser, preset=False)
    declare.machine(parser)
    declare.budget(parser, several=True)
    parser.add_argument("--least", action="store_true", help="the least budget that each setup fits in, too")
    parser.add_argument("--no-verify", action="store_false", dest="verify", help="do not prove the programs")
    declare.picture(parser, kinds=False)
    declare.cluster(parser)
    declare.json(parser)


def run(options: argparse.Namespace) -> int:
    picture = checked(options.picture)
    wanted = several(options.budget)
    if picture and len(options.networks) * len(wanted) > 1:
        raise Fail("--picture draws the setups of one network within one budget; name one of each")
    groups, machine = groups_of(options), resolve.machine(options)
    setups = [setup for group in groups for _, setup in group.setups]
    common = [
        f"{slot.replace('_', '-')}={module}"
        for slot, module in resolve.assigned(options).items()
        if all(isinstance(setup, Exception) or setup.shown(slot) == module for setup in setups)
    ]
    networks = [resolve.network(options, name) for name in options.networks]
    cases = [(network, budget_bytes(budget, network, machine)) for network in networks for budget in wanted]
    found: list[list[tuple[Compared, dict[str, Any]]]] = []
    with progress("planning", len(setups) * len(cases)) as advance:
        for network, budget in cases:
            found.append([])
            for group in groups:
                tried = []
                for name, setup in group.setups:
                    advance(f"{network.name} {name}")
                    tried.append(planned(name, watched(setup, advance), common, network, machine, budget))
                found[-1].append(shown(group, tried, network, machine, options))
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
    for number, (title, rows, (network, _)) in enumerate(zip(titles, found, cases, strict=True)):
        if number:
            say("")
        baseline = None if options.setups else unlimited_baseline(network, machine).planned_seconds
        table = compare_table(title, [row for row, _ in rows], baseline)
        if options.least:
            table = with_least(table, [document.get("least_budget_bytes") for _, document in rows])
        show_table(narrowed(without_agreement(table)))
    if not options.setups and not options.effort:
        wrapped(f"combined: the fastest of at most {EFFORT} plans; --effort N makes N, and can find a faster one.")
    for network in networks:
        resolve.say_share(options, network, machine)
    if picture:
        say(f"Picture: {picture}")
    return DONE


def with_least(table: Table, least_bytes: list[int | None]) -> Table:
    """The table with one column more."""
    at = table.head.index("pool")
    rows = zip(table.rows, least_bytes, strict=True)
    cells = [[*row[:at], size(nbytes) if nbytes else "", *row[at:]] for row, nbytes in rows]
    note = f"{table.note}  least: the smallest budget tried that fits."
    head = [*table.head[:at], "least", *table.head[at:]]
    return replace(table, head=head, rows=cells, numbers=table.numbers | {"least"}, note=note)


def without_agreement(table: Table) -> Table:
    """The table without the columns in which all rows that fit say the same; these are named once, below it."""
    fitting = [row for row in table.rows if row[table.head.index("pool")] != "–"]
    values = {name: {row[i] for row in fitting} for i, name in enumerate(table.head) if name in MAY_AGREE}
    agreed = {name: found.pop() for name, found in values.items() if len(found) == 1}
    if not agreed or len(table.rows) < 2:
        return table
    same = ", ".join(f"{name} {value}" for name, value in agreed.items() if value != "–")
    note = f"{table.note}  The same for all: {same}." if same else table.note
    return replace(without(table, agreed), note=note)


def narrowed(table: Table) -> Table:
    """The table, if it has a column `least`, without those that can be done without, until it fits the width."""
    for name in DEAR:
        columns = zip(table.head, *table.rows, strict=True)
        widths = [NAME if cells[0] in table.wraps else max(map(len, cells)) for cells in columns]
        if "least" not in table.head or sum(widths) + len(GAP) * (len(widths) - 1) <= WIDTH:
            break
        table = without(table, {name})
    return table


def without(table: Table, names: Collection[str]) -> Table:
    """The table without these columns."""
    kept = [i for i, name in enumerate(table.head) if name not in names]
    return replace(table, head=[table.head[i] for i in kept], rows=[[row[i] for i in kept] for row in table.rows])


def planned(
    name: str, setup: Setup | SetupError, common: Collection[str], network: Network, machine: Machine, budget: int
) -> Planned:
    """One setup's program and its row."""
    if isinstance(setup, SetupError):
        return Planned(None, Compared(name, budget, misfit=f"is refused: {setup}"), setup)
    label = short(setup, common)
    try:
        program = plan(network, setup, machine, budget)
    except DoesNotFit as error:
        return Planned(setup, misfit(label, budget, error), error)
    return Planned(setup, compared(label, program, program.simulate()), program)


def shown(
    group: Group, tried: list[Planned], network: Network, machine: Machine, options: argparse.Namespace
) -> tuple[Compared, dict[str, Any]]:
    """The row of a group and its document: those of the fastest setup that fits, which is proved."""
    best = min(tried, key=lambda one: (not one.row.fits, one.row.seconds, one.row.pool_bytes))
    others = [one for one in tried if one is not best]
    if options.verify and isinstance(best.outcome, Program):
        resolve.proved(best.outcome)
    document = document_of(best, network, machine) if options.json else {}
    if options.least:
        chosen = [best] if best.row.fits else tried
        needs = [least(network, one.setup, machine) for one in chosen if one.setup]
        document["least_budget_bytes"] = min((nbytes for nbytes in needs if nbytes), default=None)
    if group.paper:
        document["paper"] = group.paper
        document["others"] = [brief(one) for one in others]
    return replace(best.row, paper=group.paper, others=tuple(one.row for one in others)), document


def watched(setup: Setup | SetupError, advance: Advance) -> Setup | SetupError:
    """The setup; a long search says in the bar how far it is."""
    if not isinstance(setup, Combined):
        return setup
    return replace(setup, watch=lambda plans, most, seconds: advance(f"{setup.name}, plan {plans} of {most}", by=0))


def document_of(one: Planned, network: Network, machine: Machine) -> dict[str, Any]:
    """What JSON says of a row."""
    if isinstance(one.outcome, Program):
        baseline = unlimited_baseline(network, machine).planned_seconds
        document = plan_json(one.outcome, one.outcome.simulate(), baseline)
    elif one.setup and isinstance(one.outcome, DoesNotFit):
        document = misfit_json(network, one.setup, machine, one.row.budget, one.outcome)
    else:
        return brief(one)
    name = one.setup.name if one.setup else one.row.name
    return {"setup": name} | {key: value for key, value in document.items() if key not in LEFT_OUT}


def brief(one: Planned) -> dict[str, Any]:
    """What JSON says of a policy that is not the row of its paper."""
    how = {"seconds": one.row.seconds} if one.row.fits else {"why": one.row.misfit}
    return {"setup": one.row.name, "fits": one.row.fits} | how


def groups_of(options: argparse.Namespace) -> list[Group]:
    """Every row's setups; what --set and its like say holds where the row says nothing else."""
    if options.setups:
        setups = [resolve.setup_named(options, preset, own) for preset, own in map(parse, options.setups)]
        return [Group([(setup.name, setup)]) for setup in setups]

    def of_preset(name: str) -> Setup | SetupError:
        try:
            setup = resolve.setup_named(options, name, {})
        except SetupError as error:
            return error
        return replace(setup, effort=options.effort or EFFORT) if isinstance(setup, Combined) else setup

    return [Group([(name, of_preset(name)) for name in names], paper) for paper, names in PAPERS.items()]


def short(setup: Setup, common: Collection[str] = ()) -> str:
    """A row's name: the setup's, without `baseline`, without what all rows share, and mostly without slots' names."""
    preset, *changed = setup.name.split(", ")
    own = (word for word in changed if word not in common)
    words = [word if word.endswith(SAYS_NOTHING) else word.partition("=")[2] for word in own]
    return ", ".join([preset] * (preset != "baseline" or not words) + words)

"""`refimpl compare`: setups side by side, or the best policy of every paper, on one network or several."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DONE, Fail, Parser, whole
from refimpl.cli.picture_option import checked, save
from refimpl.cli.plan import least
from refimpl.cli.terminal import Advance, print_json, progress, say, show_table, silent, wrapped
from refimpl.combined import Combined
from refimpl.combined.papers import Tried, best_of
from refimpl.combined.search import unwatched
from refimpl.machine import Machine
from refimpl.machine.possible import PossibleMachines
from refimpl.names.budgets import several
from refimpl.names.by_name import budget_bytes
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.modules import modules
from refimpl.names.presets import PAPERS, combinations, parse
from refimpl.network import Network
from refimpl.planner import BASELINE, DoesNotFit, Program, Setup, SetupError
from refimpl.planner.heading import heading
from refimpl.points import workers
from refimpl.report.attribution import attributions
from refimpl.report.comparison import Compared, Spread, compared, misfit
from refimpl.report.json import misfit_json, plan_json
from refimpl.report.tables import GAP, WIDTH, Table, compare_table
from refimpl.slots.setup import FIELDS
from refimpl.text import size

MAY_AGREE = ("out", "in", "rebuilt")  #: columns left out where all setups agree
#: Columns left out where a line would be too long; `least` says who fits, too.
WIDE = ("stalled", "live")
NAME = 13  #: letters of a setup's name that stay in one line
EFFORT = 200  #: plans that the search of the preset combined makes at most, where every paper has a row
SOLVER_SECONDS = 60.0  #: for the bound; what is proved at the limit is a bound
UNSPECIFIC = ("=none", "=yes", "=no")  #: a row is called by slot and module, where the module's name says nothing
LEFT_OUT = ("steps", "fates")  #: of a plan's document, where there are many in one document
ASKED = ("verify", "spread", "least", "json")  #: options that a row depends on

CompareRow = tuple[Compared, dict[str, Any]]  #: and its document


@dataclass(frozen=True)
class PaperGroup:
    """The setups of which one row shows the best: a paper's, or one."""

    setups: list[Setup]
    paper: str = ""
    refused: tuple[tuple[str, SetupError], ...] = ()  #: presets, and why --set and its like are refused


def add(parser: Parser) -> None:
    parser.describe(
        "Plan several setups for the same networks, machine and budget, and show them side by side. "
        'A setup is a preset and slot=module words, in quotes, as in "vdnn-all, join=no".  Without --with: of every '
        "paper the fastest setup that fits, over all combinations of its own modules, and why its other policies are "
        "not the row.  The last lines say what each row loses its time to.  "
        "--set holds for every row that does not say otherwise.",
        [
            "refimpl compare vgg16 --batch 64 --machine rtx-3060 --budget 6GiB",
            'refimpl compare vgg16 resnet50 --with baseline --with "liveness=layer-wise algorithms=memory"',
            'refimpl compare alexnet --budget 2GiB --with "liveness=layer-wise allocator=first-fit" --least',
            "refimpl compare resnet50:superneurons --with vdnn-dyn --with superneurons",
            "refimpl compare vgg16 --budget 8GiB,12GiB --with vdnn-dyn --with superneurons",
            "refimpl compare vgg16 --batch 256 --budget 12GiB --spread",
            "refimpl compare alexnet --batch 256 --machine titan-x --budget 1.37GiB --bound",
            'refimpl compare vdnnpp-demo --with vdnn-conv --with "vdnn-conv join=no" --with vdnnpp-conv',
        ],
    )  # fmt: skip
    shared_options.network(parser, several=True)
    parser.add_argument(
        "--with", action="append", metavar="SETUP", dest="setups", default=[],
        help='one row, as in "baseline liveness=layer-wise", or fates=FILE; repeatable',
    )  # fmt: skip
    shared_options.setup(parser, preset=False)
    shared_options.machine(parser)
    shared_options.budget(parser, several=True)
    parser.add_argument("--least", action="store_true", help="the least budget that each setup fits in, too")
    parser.add_argument(
        "--spread", action="store_true",
        help="each × on 64 machines that differ from the model, from 5 to 95 %%, and on how many the order holds",
    )  # fmt: skip
    parser.add_argument("--jobs", type=whole(1, 1024), default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--no-verify", action="store_false", dest="verify", help="do not prove the programs")
    shared_options.picture(parser, kinds=False)
    bound = parser.add_argument_group("how fast it could be")
    bound.add_argument(
        "--bound", action="store_true",
        help="the floor; a lower bound, which the solver HiGHS proves (refimpl[optimum]); of a small network the best "
        "of all fates; of a chain Rotor's optimum",
    )  # fmt: skip
    bound.add_argument(
        "--enumerate", type=whole(0, 10), metavar="N", dest="most",
        help="try every fate of the N largest maps, the others kept (default: of all maps, if there are at most 8)",
    )  # fmt: skip
    shared_options.optimiser(parser)
    shared_options.cluster(parser)
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    picture = checked(options.picture)
    wanted = several(options.budget)
    if picture and len(options.networks) * len(wanted) > 1:
        raise Fail("--picture draws the setups of one network within one budget; name one of each")
    groups, machine = groups_of(options), resolve.machine(options)
    setups = [setup for group in groups for setup in group.setups]
    common = [
        f"{slot.replace('_', '-')}={module}"
        for slot, module in resolve.assigned(options).items()
        if slot in FIELDS and all(setup.shown(slot) == module for setup in setups)
    ]
    networks = [resolve.network(options, name) for name in options.networks]
    cases = [(network, budget_bytes(budget, network, machine)) for network in networks for budget in wanted]
    could_be = []
    if options.bound:
        from refimpl.studies.optimum.limits import limits

        cut = next((setup.cut for setup in setups if setup.seams), BASELINE.cut)  # a bound of the freest setup
        could_be = [limits(cut(network), machine, budget, SOLVER_SECONDS, options.most) for network, budget in cases]
    with progress("planning", len(setups) * len(cases)) as advance:
        asked = argparse.Namespace(**{name: getattr(options, name) for name in ASKED})
        found = planned(RowMaker(groups, cases, common, machine, asked), options.jobs, advance)
    spreads = [
        with_spread(rows, network, machine, bool(options.setups)) if options.spread else None
        for rows, (network, _) in zip(found, cases, strict=True)
    ]
    titles = [title_of(network, machine, budget, common) for network, budget in cases]
    if picture:
        from refimpl.report.comparison_picture import comparison_picture

        save(comparison_picture(titles[0], [row for row, _ in found[0]], spreads[0]), picture)
    if options.json:
        print_json([document for rows in found for _, document in rows] + [one.document for one in could_be])
        return DONE
    for number, (title, rows, spread, (network, _)) in enumerate(zip(titles, found, spreads, cases, strict=True)):
        if number:
            say("")
        baseline = None if options.setups else unlimited_baseline(network, machine).planned_seconds
        table = compare_table(title, [row for row, _ in rows], baseline, spread)
        show_table(fit_to_width(without_agreement(table)))
        if spent := attributions([(row.paper or row.name, row.attribution) for row, _ in rows]):
            wrapped(spent)
        if could_be:
            for own in could_be[number].tables([row for row, _ in rows]):
                say("")
                show_table(own)
    if not options.setups and "effort" not in resolve.searched(options):
        wrapped(f"combined: the fastest of at most {EFFORT} plans; --set effort=N makes N, and can find a faster one.")
    for network in networks:
        resolve.say_share(options, network, machine)
    if picture:
        say(f"Picture: {picture}")
    return DONE


@dataclass(frozen=True)
class RowMaker:
    """Makes any row, in any process."""

    groups: list[PaperGroup]
    cases: list[tuple[Network, int]]  #: and their budgets, bytes
    common: Collection[str]
    machine: Machine
    options: argparse.Namespace
    advance: Advance = silent

    def __call__(self, where: tuple[int, int]) -> CompareRow:
        """The row of a case and a group, by their places."""
        (network, budget), group = self.cases[where[0]], self.groups[where[1]]
        return row(group, self.common, network, self.machine, budget, self.options, self.advance)[:2]

    def name(self, where: tuple[int, int]) -> str:
        (network, budget), group = self.cases[where[0]], self.groups[where[1]]
        return f"{network.name} under {group.paper or group.setups[0].name} within {size(budget)}"


def planned(make: RowMaker, jobs: int, advance: Advance) -> list[list[CompareRow]]:
    """The rows of each case, planned in as many processes; within one alone, a long search says how far it is."""
    places = [(case, group) for case in range(len(make.cases)) for group in range(len(make.groups))]
    found: dict[tuple[int, int], CompareRow] = {}
    work = replace(make, advance=advance) if jobs == 1 else replace(make, groups=[*map(unwatched_group, make.groups)])
    for place, made in workers.results(work, places, jobs, make.name):
        found[place] = made
        if jobs > 1:
            advance(made[0].name, by=len(make.groups[place[1]].setups))
    return [[found[case, group] for group in range(len(make.groups))] for case in range(len(make.cases))]


def with_spread(rows: list[CompareRow], network: Network, machine: Machine, setups: bool) -> Spread | None:
    """Give each document its interval.

    Args:
        rows: of one network within one budget.
        network, machine: what was planned.
        setups: whether rows are compared with the fastest of them, and not with the baseline.
    """
    baseline = None if setups else unlimited_baseline(network, machine)
    against = (baseline.possible_seconds(PossibleMachines(machine)), baseline.planned_seconds) if baseline else None
    spread = Spread.of([one for one, _ in rows], against)
    if spread:
        faster = {first: (second.name, number) for first, second, number in spread.orders()}
        for one, document in rows:
            if ends := spread.interval(one):
                document["spread"] = {"machines": spread.machines, "slow_down": list(ends)}
                if one in faster:
                    document["spread"] |= {"faster_than": faster[one][0], "on": faster[one][1]}
    return spread


def title_of(network: Network, machine: Machine, budget: int, common: Sequence[str] = ()) -> str:
    """What all rows of a table share."""
    how = f"{machine.name} (simulated, {machine.catalogue})"
    return " · ".join([heading(network, machine), how, f"budget {size(budget)}", *common])


def without_agreement(table: Table) -> Table:
    """The table without the columns in which all rows that fit say the same; these are named once, below it."""
    fitting = [row for row in table.rows if row[table.head.index("peak")] != "–"]
    values = {name: {row[i] for row in fitting} for i, name in enumerate(table.head) if name in MAY_AGREE}
    agreed = {name: found.pop() for name, found in values.items() if len(found) == 1}
    if not agreed or len(table.rows) < 2:
        return table
    same = ", ".join(f"{name} {value}" for name, value in agreed.items() if value != "–")
    note = f"{table.note}  The same for all: {same}." if same else table.note
    return replace(without_columns(table, agreed), note=note)


def fit_to_width(table: Table) -> Table:
    """The table without the columns that can be done without, until it fits the width."""
    for name in ("fits", *WIDE) if "least" in table.head else WIDE:
        columns = zip(table.head, *table.rows, strict=True)
        widths = [NAME if cells[0] in table.wraps else max(map(len, cells)) for cells in columns]
        if sum(widths) + len(GAP) * (len(widths) - 1) <= WIDTH:
            break
        table = without_columns(table, {name})
    return table


def without_columns(table: Table, names: Collection[str]) -> Table:
    """The table without these columns."""
    kept = [i for i, name in enumerate(table.head) if name not in names]
    return replace(table, head=[table.head[i] for i in kept], rows=[[row[i] for i in kept] for row in table.rows])


def row(
    group: PaperGroup,
    common: Collection[str],
    network: Network,
    machine: Machine,
    budget: int,
    options: argparse.Namespace,
    advance: Advance,
) -> tuple[Compared, dict[str, Any], Program | None]:
    """The row of a group, its document and its program: those of the fastest setup that fits, which is proved."""
    own = [with_progress(setup, advance) for setup in group.setups]
    best = best_of(own, network, machine, budget, watch=lambda name: advance(f"{network.name} {name}"))
    shown = by_preset(best.tried, group.paper)
    rows = [row_of(one, common, budget) for one in shown]
    rows += [Compared(name, budget, misfit=f"is refused: {error}") for name, error in group.refused]
    names = [*(one.setup.name for one in shown), *(name for name, _ in group.refused)]
    document: dict[str, Any] = {"setup": names[0]}
    if best.program:
        timeline = best.program.simulate()
        rows[0] = compared(rows[0].name, best.program, timeline)
        if options.spread:
            rows[0] = replace(rows[0], possible=best.program.possible_seconds(PossibleMachines(machine)))
        if options.verify:
            resolve.proved(best.program)
        if options.json:
            document |= plan_json(best.program, timeline, unlimited_baseline(network, machine).planned_seconds)
    elif best.tried and isinstance(error := best.tried[0].failure, DoesNotFit):
        document |= misfit_json(network, best.tried[0].setup, machine, budget, error)
    else:
        document |= short_json(names[0], rows[0])
    if rows[0].attribution:
        document["attribution"] = rows[0].attribution.document
    document = {name: value for name, value in document.items() if name not in LEFT_OUT}
    if options.least:
        needs = [least(network, one.setup, machine) for one in (best.tried[:1] if best.program else best.tried)]
        document["least_budget_bytes"] = min((nbytes for nbytes in needs if nbytes), default=None)
        rows[0] = replace(rows[0], least_bytes=document["least_budget_bytes"])
    if group.paper:
        document["paper"] = group.paper
        document["others"] = [short_json(name, other) for name, other in zip(names[1:], rows[1:], strict=True)]
    return replace(rows[0], paper=group.paper, others=tuple(rows[1:])), document, best.program


def by_preset(tried: Sequence[Tried], paper: str) -> list[Tried]:
    """The best of all, then that of each other preset of the paper."""
    best: dict[str, Tried] = {}
    for one in tried:
        if not best or one.setup.preset in PAPERS.get(paper, ()):
            best.setdefault(one.setup.preset, one)
    return [*best.values()]


def row_of(one: Tried, common: Collection[str], budget: int) -> Compared:
    """A setup's seconds, or why it has none."""
    name = short_name(one.setup, common)
    if isinstance(one.failure, DoesNotFit):
        return misfit(name, budget, one.failure)
    return Compared(name, budget, seconds=one.seconds, misfit=f"is refused: {one.failure}" if one.failure else "")


def unwatched_group(group: PaperGroup) -> PaperGroup:
    """The group without progress callbacks, which cannot go to other processes."""
    setups = [replace(one, watch=unwatched) if isinstance(one, Combined) else one for one in group.setups]
    return replace(group, setups=setups)


def with_progress(setup: Setup, advance: Advance) -> Setup:
    """The setup; a long search says in the bar how far it is."""
    if not isinstance(setup, Combined):
        return setup
    return replace(setup, watch=lambda plans, most, seconds: advance(f"{setup.name}, plan {plans} of {most}", by=0))


def short_json(name: str, row: Compared) -> dict[str, Any]:
    """What JSON says of a setup that is not the row of its paper."""
    how = {"seconds": row.seconds} if row.fits else {"why": row.misfit}
    return {"setup": name, "fits": row.fits} | how


def groups_of(options: argparse.Namespace) -> list[PaperGroup]:
    """Every row's setups; what --set and its like say holds where the row says nothing else."""
    if options.setups:
        setups = [resolve.setup_named(options, preset, own) for preset, own in map(parse, options.setups)]
        return [PaperGroup([setup]) for setup in setups]
    return [group_of(paper, options) for paper in PAPERS]


def group_of(paper: str, options: argparse.Namespace) -> PaperGroup:
    """A paper's presets, then all combinations of its modules; what --set and its like say holds for each."""
    made: list[Setup] = []
    refused: list[tuple[str, SetupError]] = []
    for name in PAPERS[paper]:
        try:
            setup = resolve.setup_named(options, name, {})
        except SetupError as error:
            refused.append((name, error))
            continue
        made.append(with_effort(setup, options))
    given = modules(resolve.assigned(options))
    for setup in combinations(paper):
        with suppress(SetupError):
            made.append(setup.replace(**given))
    return PaperGroup(made, paper, tuple(refused))


def with_effort(setup: Setup, options: argparse.Namespace) -> Setup:
    """The setup; combined's search makes `EFFORT` plans where --set does not say how many."""
    if not isinstance(setup, Combined) or "effort" in resolve.searched(options):
        return setup
    return replace(setup, effort=EFFORT)


def short_name(setup: Setup, common: Collection[str] = ()) -> str:
    """A row's name: the setup's, without `baseline`, without what all rows share, and mostly without slots' names."""
    preset, *changed = setup.name.split(", ")
    own = (word for word in changed if word not in common)
    words = [word if word.endswith(UNSPECIFIC) else word.partition("=")[2] for word in own]
    return ", ".join([preset] * (preset != "baseline" or not words) + words)

"""`refimpl pareto`: slow-down over budget, of every setup of the papers, of their combination, and of the bound."""

from __future__ import annotations

import argparse
from operator import itemgetter
from typing import Any

from kernels.targets.cpu.threads import cores
from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DOES_NOT_FIT, DONE, Fail, Parser, real, whole
from refimpl.cli.picture_option import checked, save
from refimpl.cli.stopped import stopped
from refimpl.cli.terminal import print_json, progress, say, show_table, wrapped
from refimpl.combined import COMBINED, Combined
from refimpl.machine import Machine
from refimpl.names.budgets import several
from refimpl.names.by_name import budget_bytes
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.least_budget import least_budget
from refimpl.names.networks import build
from refimpl.names.presets import baseline, parse
from refimpl.network import Network
from refimpl.planner.heading import heading
from refimpl.report.tables import Column, Table
from refimpl.studies.optimum.bound import silent_solver, single_step_bytes
from refimpl.studies.optimum.setups import Named, of_papers
from refimpl.studies.pareto import points as pareto
from refimpl.studies.pareto.points import Curve, ParetoCase, Points, Task
from refimpl.text import counted, size

POINTS = 12


def add(parser: Parser) -> None:
    parser.describe(
        "Plan every setup of the papers within a dozen budgets, from the least that one of them fits in to the "
        "baseline's; search with the policy that combines them; solve the lower bound; and show the best of each.  A "
        "file keeps the points that are done, and the same command goes on where it was stopped.  All times are "
        "simulated.",
        [
            "refimpl pareto vgg16 --batch 256 --machine titan-x --out vgg16.points --picture vgg16.png",
            "refimpl pareto alexnet --batch 256 --points 6 --jobs 2",
            'refimpl pareto lenet --budget 40%,60%,80% --with vdnn-dyn --with "superneurons algorithms=memory"',
        ],
    )  # fmt: skip
    shared_options.network(parser)
    parser.add_argument(
        "--with", action="append", metavar="SETUP", dest="setups", default=[],
        help="this setup in place of all the papers'; repeatable",
    )  # fmt: skip
    shared_options.setup(parser, preset=False)
    shared_options.machine(parser)
    parser.add_argument("--budget", metavar="SIZE,SIZE", help="these budgets, as in 8GiB,12GiB or 0.4,0.8")
    parser.add_argument("--points", type=whole(2, 1000), metavar="N", default=POINTS,
                        help=f"how many budgets there are, without --budget (default: {POINTS})")  # fmt: skip
    parser.add_argument("--no-bound", action="store_false", dest="bound", help="leave the lower bound out")
    parser.add_argument("--time-limit", type=real(above=0), metavar="S", default=60.0,
                        help="seconds for the bound's solver at each budget (default: 60)")  # fmt: skip
    parser.add_argument("--jobs", type=whole(1, 1024), metavar="N", help="processes (default: one for each core)")
    parser.add_argument("--out", metavar="FILE", help="keep the points that are done in this file, and go on from it")
    shared_options.picture(parser, kinds=False)
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    picture = checked(options.picture)
    if options.bound:
        silent_solver()  # raises before anything is planned, where HiGHS is missing
    machine, setups = resolve.machine(options), setups_of(options)
    seed = COMBINED.seed
    network = build(options.network, options.batch)
    case = pareto.ParetoCase(options.network, network.batch, machine, setups, options.time_limit, options.effort, seed)
    with stopped(options.out):
        budgets = budgets_of(options, case, network)
        tasks = [pareto.Task(pareto.BOUND, budget) for budget in budgets if options.bound]
        tasks += [pareto.Task(name, budget) for name in setups for budget in budgets]
        tasks += [pareto.Task(pareto.COMBINED, budget) for budget in budgets]
        points = solve(options, case, tasks, "planning")
    found = ParetoFound(
        case, network, budgets, points, unlimited_baseline(network, machine).planned_seconds, options.bound
    )
    if picture:
        save(drawn(found), picture)
    if options.json:
        print_json(document(found))
        return DONE
    show_table(table(found))
    for line in findings(found):
        wrapped(line)
    if picture:
        say(f"Picture: {picture}")
    return DONE


def setups_of(options: argparse.Namespace) -> dict[str, Named]:
    """The setups that --with names, or all of the papers."""
    if not options.setups:
        if resolve.assigned(options):
            raise Fail("--set changes the setups of --with; give one")
        return of_papers()
    made = [resolve.setup_named(options, *parse(text)) for text in options.setups]
    return {one.name: Named(one.name, one.name, one) for one in made if not isinstance(one, Combined)}


def solve(options: argparse.Namespace, case: ParetoCase, tasks: list[Task], doing: str) -> Points:
    """The points of the tasks, with a bar."""
    with progress(doing, len(tasks)) as advance:
        return pareto.solve(case, tasks, options.jobs or cores(), options.out, lambda row: advance(row["curve"]))


def budgets_of(options: argparse.Namespace, case: ParetoCase, network: Network) -> list[int]:
    """The budgets of --budget; else geometric steps from the least that some setup fits in to the baseline's."""
    if options.budget is not None:
        return sorted({budget_bytes(budget, network, case.machine) for budget in several(options.budget)})
    points = solve(options, case, [pareto.Task(name, None) for name in case.setups], "least budgets")
    least = pareto.least(points.values())
    if least is None:
        raise Fail("no setup fits in any budget: pinned memory is too small for each of them", DOES_NOT_FIT)
    most = least_budget(network, baseline(), case.machine) or case.machine.memory_bytes
    return pareto.budgets_between(int(least), most, options.points)


class ParetoFound:
    """The curves, of all points."""

    def __init__(
        self, case: ParetoCase, network: Network, budgets: list[int], points: Points, floor: float, bound: bool
    ) -> None:
        self.case, self.network, self.budgets, self.floor = case, network, budgets, floor
        self.single_step = single_step_bytes(network, case.machine)
        self.curves = [pareto.curve(one.paper, one.name, budgets, points) for one in case.setups.values()]
        papers = dict.fromkeys(one.paper for one in self.curves)
        best = [pareto.best([one for one in self.curves if one.paper == paper]) for paper in papers]
        self.best = [pareto.with_smaller(one) for one in best]
        self.searched = pareto.curve(pareto.COMBINED, pareto.COMBINED, budgets, points)
        self.combined = pareto.with_smaller(self.searched)
        self.bound = pareto.curve(pareto.BOUND, pareto.BOUND, budgets, points) if bound else None

    def slowdowns(self, curve: Curve) -> list[float | None]:
        return [seconds and seconds / self.floor for seconds in curve.seconds]

    @property
    def title(self) -> str:
        machine: Machine = self.case.machine
        return f"{heading(self.network, machine)} · {machine.name} (simulated, {machine.catalogue})"


# -- for people --------------------------------------------------------------------------------------------------------


def shown(found: ParetoFound) -> list[Curve]:
    """The columns of the table, after the budget."""
    return [*found.best, found.combined, *([found.bound] if found.bound else [])]


def table(found: ParetoFound) -> Table:
    """Slow-downs: a line a budget."""
    curves = shown(found)
    rows = [*zip(found.budgets, *(found.slowdowns(curve) for curve in curves), strict=True)]
    columns = [Column("budget", itemgetter(0), size)]
    columns += [Column(curve.paper, itemgetter(place), "{:.3f}".format) for place, curve in enumerate(curves, 1)]
    note = (
        "Seconds of an iteration over the baseline's with memory enough: of each the best setup within the budget or a "
        "smaller one, whose program runs in more memory too."
    )
    return Table.of(found.title, rows, columns, note)


def findings(found: ParetoFound) -> list[str]:
    lines = [f"One step alone needs {size(found.single_step)}: no policy fits in less."]
    if gain := pareto.gain(found.combined, found.best, found.floor):
        lines.append(
            f"At {counted(gain.open, 'budget')} the best setup is above the floor.  There combined is faster at "
            f"{gain.better} and slower at {gain.worse}: {gain.mean:.3f} × as fast (geometric mean), at most "
            f"{gain.largest:.3f} ×."
        )
    pairs = zip(found.searched.seconds, found.combined.seconds, strict=True)
    if slower := sum(own != shown for own, shown in pairs):
        lines.append(f"At {counted(slower, 'budget')} combined's search ends above its program for a smaller budget.")
    if found.bound:
        shown = {"best setup": pareto.best(found.best), "combined": found.combined}
        away = {name: pareto.distance(curve, found.bound, found.floor) for name, curve in shown.items()}
        text = ", ".join(f"{name} {value:.3f} ×" for name, value in away.items() if value)
        lines += [f"Mean distance to the bound, where a curve is above the floor: {text}."] if text else []
    return lines


def drawn(found: ParetoFound) -> Any:
    from refimpl.studies.pareto.pictures import CurveGroup, pareto_picture

    groups = {
        best.paper: CurveGroup(
            [found.slowdowns(curve) for curve in found.curves if curve.paper == best.paper],
            None if best.paper == "baseline" else found.slowdowns(best),
        )
        for best in found.best
    }
    bound = found.slowdowns(found.bound) if found.bound else None
    return pareto_picture(
        found.title, found.budgets, groups, {"combined": found.slowdowns(found.combined)}, bound, found.single_step
    )


# -- for programs ------------------------------------------------------------------------------------------------------


def document(found: ParetoFound) -> dict[str, Any]:
    """Everything; bytes, seconds; null where nothing fits."""
    machine = found.case.machine
    return {
        "network": found.network.name, "batch": found.network.batch, "machine": machine.name,
        "catalogue": machine.catalogue, "simulated": True, "floor_seconds": found.floor,
        "single_step_bytes": found.single_step, "budget_bytes": found.budgets,
        "setups": [{"paper": one.paper, "setup": one.name, "seconds": one.seconds} for one in found.curves],
        "best": {curve.paper: curve.seconds for curve in found.best},
        "combined": found.combined.seconds,
        "bound": found.bound and found.bound.seconds,
    }  # fmt: skip

"""`refimpl optimum`: how far every policy is from the best that any could do."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DOES_NOT_FIT, DONE, Fail, Parser, real, whole
from refimpl.cli.terminal import print_json, progress, say, show_table, waiting
from refimpl.combined import COMBINED
from refimpl.machine import Machine
from refimpl.memory import UNLIMITED
from refimpl.names.by_name import budget_bytes
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner.heading import heading
from refimpl.report.tables import Column, Table
from refimpl.studies.optimum.bound import LEFT_OUT, LowerBound, floor_seconds, lower_bound, single_step_bytes
from refimpl.studies.optimum.exhaustive import MOST, RECOMPUTE_ALONE, Enumerated, crossing_maps, exhaustive
from refimpl.studies.optimum.rotor import chain_seconds, is_chain
from refimpl.studies.optimum.setups import best_of_papers, of_papers
from refimpl.text import counted, duration, size


def add(parser: Parser) -> None:
    parser.describe(
        "A lower bound on the time of an iteration within a budget, proved by the solver HiGHS; the best of all fates "
        "by exhaustive search, where the network is small; Rotor's optimum for recomputation alone, where it is a "
        "chain; every paper's best setup, and the policy that combines them.  All times are simulated.  The bound "
        "needs the extra refimpl[optimum].",
        [
            "refimpl optimum lenet --batch 4096 --budget 0.75",
            "refimpl optimum vgg16 --batch 256 --machine titan-x --budget 12GiB",
            "refimpl optimum alexnet --batch 256 --machine titan-x --budget 1.37GiB --enumerate 8",
        ],
    )  # fmt: skip
    shared_options.network(parser)
    shared_options.machine(parser)
    shared_options.budget(parser)
    shared_options.effort(parser)
    parser.add_argument(
        "--enumerate", type=whole(0, 10), metavar="N", dest="most",
        help="try every fate of the N largest maps, the others kept (default: of all maps, if there are at most 8)",
    )  # fmt: skip
    parser.add_argument("--time-limit", type=real(above=0), metavar="S", default=60.0,
                        help="seconds for the solver; its bound at the limit is a bound (default: 60)")  # fmt: skip
    shared_options.json(parser)


DONE_WITH = {"keep": "kept", "offload": "offloaded", "drop": "dropped"}  #: fate → in the table


@dataclass(frozen=True)
class OptimumRow:
    """A line of the table."""

    what: str
    how: str
    seconds: float | None


@dataclass(frozen=True)
class Recomputation:
    """A chain whose maps are recomputed and never offloaded, with the least workspaces; seconds."""

    nothing: float  #: with memory enough
    rotor: float  #: infinite where no schedule fits
    enumerated: Enumerated


@dataclass(frozen=True)
class OptimumFound:
    """Everything that the command shows."""

    floor: float  #: seconds
    bound: LowerBound
    enumerated: Enumerated | None
    alone: Recomputation | None
    policies: list[OptimumRow]


def run(options: argparse.Namespace) -> int:
    network, machine = build(options.network, options.batch), resolve.machine(options)
    budget = budget_bytes(options.budget, network, machine)
    with waiting("solving the bound"):
        bound = lower_bound(network, machine, budget, options.time_limit)
    if bound is None:
        least = size(single_step_bytes(network, machine))
        raise Fail(f"one step of {network.name} needs {least} by itself; no policy fits {size(budget)}", DOES_NOT_FIT)
    found = OptimumFound(
        floor_seconds(network, machine),
        bound,
        enumerated(network, machine, budget, options.most),
        recomputation(network, machine, budget),
        [*policies(network, machine, budget), combined(network, machine, budget, options)],
    )
    if options.json:
        print_json(document(found, network, machine, budget))
        return DONE
    show_table(table(found, network, machine, budget))
    if found.alone:
        say("")
        show_table(recomputation_table(found.alone))
    resolve.say_share(options, network, machine)
    return DONE


def enumerated(network: Network, machine: Machine, budget: int, most: int | None) -> Enumerated | None:
    """The result of the exhaustive search, if the network is small enough or its number of maps was requested."""
    count = len(crossing_maps(network, machine))
    if most == 0 or (most is None and count > MOST):
        return None
    with progress("enumerating", 3 ** min(most or MOST, count)) as advance:
        return exhaustive(network, machine, budget, most=most or MOST, watch=lambda done, total: advance("fates"))


def recomputation(network: Network, machine: Machine, budget: int) -> Recomputation | None:
    """Rotor's optimum and the enumerated one, of a chain."""
    if not is_chain(network):
        return None
    with waiting("recomputation alone"):
        return Recomputation(
            chain_seconds(network, machine, UNLIMITED),
            chain_seconds(network, machine, budget),
            exhaustive(network, machine, budget, ("keep", "drop"), RECOMPUTE_ALONE),
        )


def policies(network: Network, machine: Machine, budget: int) -> list[OptimumRow]:
    """Every paper's best, and the policy that combines them."""
    setups = of_papers()
    with progress("planning", len(setups)) as advance:
        best = best_of_papers(network, machine, budget, setups, advance)
    return [OptimumRow(one.paper, one.setup, one.seconds) for one in best]


def combined(network: Network, machine: Machine, budget: int, options: argparse.Namespace) -> OptimumRow:
    """The policy that combines the papers."""
    program = attempt(network, resolve.with_effort(COMBINED, options), machine, budget)
    if program is None:
        return OptimumRow("combined", "", None)
    resolve.proved(program)
    fates = Counter[str](fate.name for fate in program.fates.values())
    maps = ", ".join(f"{fates[name]} {done}" for name, done in DONE_WITH.items() if fates[name])
    return OptimumRow("combined", f"maps: {maps}", program.planned_seconds)


# -- for people --------------------------------------------------------------------------------------------------------


def table(found: OptimumFound, network: Network, machine: Machine, budget: int) -> Table:
    def over(seconds: float) -> Any:
        return lambda row: None if row.seconds is None else row.seconds / seconds

    bound = found.bound
    rows = [
        OptimumRow("floor", "fastest calls, no wait", found.floor),
        OptimumRow(
            "bound", "proved: no policy is faster" if bound.proved else "as far as proved by the limit", bound.seconds
        ),
    ]
    if found.enumerated:
        rows.append(OptimumRow("enumerated", fates_of(found.enumerated), found.enumerated.seconds))
    rows += found.policies
    columns = (
        Column("", "what"), Column("setup", "how", wraps=True), Column("iteration", "seconds", duration),
        Column("× floor", over(found.floor), "{:.3f}".format), Column("× bound", over(bound.seconds), "{:.3f}".format),
    )  # fmt: skip
    title = f"{heading(network, machine)} · {machine.name} (simulated, {machine.catalogue})"
    return Table.of(f"{title} · budget {size(budget)}", rows, columns, " ".join(notes(found)))


def recomputation_table(alone: Recomputation) -> Table:
    maps = counted(len(alone.enumerated.enumerated), "largest map")
    rows = [
        OptimumRow("nothing", "", alone.nothing),
        OptimumRow("Rotor's optimum", "", alone.rotor if alone.rotor < float("inf") else None),
        OptimumRow("enumerated", fates_of(alone.enumerated), alone.enumerated.seconds),
    ]
    columns = (
        Column("recomputed", "what"), Column("fates", "how", wraps=True), Column("iteration", "seconds", duration),
        Column("× nothing", lambda row: row.seconds and row.seconds / alone.nothing, "{:.4f}".format),
    )  # fmt: skip
    note = (
        f"Enumerated: the {maps} kept or dropped, and planned.  Rotor's class has no schedule that drops one map, "
        "keeps the next, and rebuilds the first alone; where that is the best, a plan is faster than Rotor's optimum.  "
        "Rotor knows no holes."
    )
    return Table.of("Recomputation alone, with the least workspaces", rows, columns, note)


def fates_of(found: Enumerated) -> str:
    return str(found.fates) if found.program else ""


def notes(found: OptimumFound) -> list[str]:
    """A note on how to read the figures."""
    bound = found.bound
    ended = "finished" if bound.proved else "stopped at the time limit; more time may give a higher bound"
    lines = [
        f"Bound: {counted(bound.columns, 'column')}, {counted(bound.rows, 'row')}, "
        f"{counted(bound.calls, 'call')} looked at; HiGHS {ended}.  A plan need not reach the bound, which leaves out "
        f"{', '.join(LEFT_OUT)}."
    ]
    if one := found.enumerated:
        lines.append(
            f"Enumerated: {counted(one.candidates, 'candidate')}, with every fate of "
            f"{counted(len(one.enumerated), 'map')}; {one.planned:,} of them planned, and the others cannot be better."
            "  A search with more knobs can be."
        )
    return lines


# -- for programs ------------------------------------------------------------------------------------------------------


def document(found: OptimumFound, network: Network, machine: Machine, budget: int) -> dict[str, Any]:
    """Everything; bytes, seconds; null where nothing fits or applies."""
    alone = found.alone
    return {
        "network": network.name, "batch": network.batch, "machine": machine.name, "catalogue": machine.catalogue,
        "budget_bytes": budget, "single_step_bytes": single_step_bytes(network, machine), "simulated": True,
        "floor_seconds": found.floor, "bound": asdict(found.bound) | {"left_out": [*LEFT_OUT]},
        "enumerated": enumerated_json(found.enumerated),
        "recompute_alone": alone and {
            "nothing_seconds": alone.nothing, "rotor_seconds": alone.rotor if alone.rotor < float("inf") else None,
            "enumerated": enumerated_json(alone.enumerated),
        },
        "policies": [
            {"policy": row.what, "setup": row.how or None, "seconds": row.seconds,
             "over_floor": row.seconds and row.seconds / found.floor,
             "over_bound": row.seconds and row.seconds / found.bound.seconds}
            for row in found.policies
        ],
    }  # fmt: skip


def enumerated_json(found: Enumerated | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "seconds": found.seconds,
        "fates": dict(found.fates.chosen) if found.program else None,
        "setup": found.program.setup.slots if found.program else None,
        "maps": [tensor.name for tensor in found.enumerated],
        "candidates": found.candidates,
        "planned": found.planned,
    }

"""What `refimpl compare --bound` sets beside the setups: the floor, the bound, the enumerated optimum, and Rotor's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from refimpl.cli.parser import DOES_NOT_FIT, Fail
from refimpl.cli.terminal import progress, waiting
from refimpl.machine import Machine
from refimpl.memory import UNLIMITED
from refimpl.network import Network
from refimpl.report.comparison import Compared
from refimpl.report.tables import Column, Table
from refimpl.studies.neighbours.rotor import chain_seconds, is_chain
from refimpl.studies.optimum.bound import LEFT_OUT, LowerBound, floor_seconds, lower_bound, single_step_bytes, steps_of
from refimpl.studies.optimum.exhaustive import MOST, RECOMPUTE_ALONE, Enumerated, crossing_maps, exhaustive
from refimpl.text import counted, duration, size


class LimitRow(NamedTuple):
    """A line of a table."""

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
class OptimumLimits:
    """How fast an iteration within a budget could be."""

    single_step_bytes: int
    steps: str  #: of the plans that the limits hold for: whole alone, or cut at their seams, too
    floor: float  #: seconds
    bound: LowerBound
    enumerated: Enumerated | None  #: None: the network has too many maps
    alone: Recomputation | None  #: None: it is no chain

    def tables(self, setups: Sequence[Compared]) -> list[Table]:
        """Beside the setups, each over the floor and over the bound; and of a chain recomputation alone."""
        return [limits_table(self, setups)] + ([recomputation_table(self.alone)] if self.alone else [])

    @property
    def document(self) -> dict[str, Any]:
        """Everything, for programs; bytes, seconds; null where nothing fits or applies."""
        alone = self.alone
        return {
            "setup": "bound", "simulated": True, "steps": self.steps, "single_step_bytes": self.single_step_bytes,
            "floor_seconds": self.floor, "bound": asdict(self.bound) | {"left_out": [*LEFT_OUT]},
            "enumerated": self.enumerated and enumerated_json(self.enumerated),
            "recompute_alone": alone and {
                "nothing_seconds": alone.nothing, "rotor_seconds": alone.rotor if alone.rotor < float("inf") else None,
                "enumerated": enumerated_json(alone.enumerated),
            },
        }  # fmt: skip


def limits(network: Network, machine: Machine, budget: int, time_limit: float, most: int | None) -> OptimumLimits:
    """All of them.

    Args:
        network: any; one whose steps are cut for plans with seams.
        machine: whose cost model counts.
        budget: bytes of device memory.
        time_limit: seconds of the bound's solver.
        most: the number of maps whose fates are enumerated, 0 for none; None: all, if there are at most `MOST`.

    Raises:
        Fail: one step alone needs more than the budget.
    """
    with waiting("solving the bound"):
        bound, step = lower_bound(network, machine, budget, time_limit), single_step_bytes(network, machine)
    if bound is None:
        raise Fail(
            f"one step of {network.name} needs {size(step)} by itself; no policy with {steps_of(network)} fits "
            f"{size(budget)}",
            DOES_NOT_FIT,
        )
    found, count = None, len(crossing_maps(network, machine))
    if most != 0 and (most is not None or count <= MOST):
        with progress("enumerating", 3 ** min(most or MOST, count)) as advance:
            found = exhaustive(network, machine, budget, most=most or MOST, watch=lambda *_: advance("fates"))
    alone = None
    if is_chain(network):
        with waiting("recomputation alone"):
            alone = Recomputation(
                chain_seconds(network, machine, UNLIMITED),
                chain_seconds(network, machine, budget),
                exhaustive(network.whole or network, machine, budget, ("keep", "drop"), RECOMPUTE_ALONE),
            )
    return OptimumLimits(step, steps_of(network), floor_seconds(network, machine), bound, found, alone)


# -- for people --------------------------------------------------------------------------------------------------------


def limits_table(found: OptimumLimits, setups: Sequence[Compared]) -> Table:
    """The limits and the setups, each over the floor and over the bound."""

    def over(seconds: float) -> Any:
        return lambda row: None if row.seconds is None else row.seconds / seconds

    bound = found.bound
    how = f"proved: no policy with {found.steps} is faster" if bound.proved else "as far as proved by the limit"
    rows = [LimitRow("floor", "fastest calls, no wait", found.floor), LimitRow("bound", how, bound.seconds)]
    if found.enumerated:
        rows.append(enumerated_row(found.enumerated))
    rows += [LimitRow(one.paper or one.name, one.name if one.fits else "", one.seconds or None) for one in setups]
    columns = (
        Column("", "what"), Column("setup", "how", wraps=True), Column("iteration", "seconds", duration),
        Column("× floor", over(found.floor), "{:.3f}".format), Column("× bound", over(bound.seconds), "{:.3f}".format),
    )  # fmt: skip
    return Table.of("How fast it could be", rows, columns, " ".join(notes(found)))


def recomputation_table(alone: Recomputation) -> Table:
    maps = counted(len(alone.enumerated.enumerated), "largest map")
    rows = [
        LimitRow("nothing", "", alone.nothing),
        LimitRow("Rotor's optimum", "", alone.rotor if alone.rotor < float("inf") else None),
        enumerated_row(alone.enumerated),
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


def enumerated_row(found: Enumerated) -> LimitRow:
    return LimitRow("enumerated", str(found.fates) if found.program else "", found.seconds)


def notes(found: OptimumLimits) -> list[str]:
    """How to read the figures."""
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


def enumerated_json(found: Enumerated) -> dict[str, Any]:
    made = found.program
    return {
        "seconds": found.seconds, "fates": dict(found.fates.chosen) if made else None,
        "setup": made.setup.slots if made else None, "maps": [tensor.name for tensor in found.enumerated],
        "candidates": found.candidates, "planned": found.planned,
    }  # fmt: skip

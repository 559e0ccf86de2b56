"""What a policy does with attention's probabilities if they are maps of T × T numbers, and not workspace.

The same transformer twice: with layers of the kind `attention`, whose backward computes the probabilities again, and
with `scores` and `mix`, which have a map of them (`probabilities="maps"` in the zoo).  Both are planned within the same
bytes.  A yardstick joins the policies: `probabilities again` keeps every map but these, which is the selective
recomputation of Korthikanti et al. (2022).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from refimpl.names.largest_batch import attempt, unlimited_baseline
from refimpl.names.machines import named as machine_named
from refimpl.names.networks import LATER
from refimpl.names.presets import setup as setup_named
from refimpl.network import Network
from refimpl.planner import Program
from refimpl.planner.instructions import CopyOut, Launch
from refimpl.report.tables import Column, Table
from refimpl.studies.transformers.outcomes import EFFORT, POLICIES, budgets, setup_of
from refimpl.studies.transformers.yardsticks import KEPT, OfKinds
from refimpl.text import size

HAVE_MAPS = ("vit-b16", "gpt2", "gpt2-medium", "bert-base")  #: networks that can have them
SHARES = (0.2, 0.9, None)  #: of the way between the two budgets of the network without such maps; None: all memory
SHOWN = "gpt2", 8, "rtx-4090"  #: of the page: network, batch, machine
AGAIN = OfKinds(("scores",))
PROBABILITIES_AGAIN = "probabilities again"


@dataclass(frozen=True)
class TwoPlans:
    """A policy within a budget, on the network with workspace and on the one with maps."""

    policy: str
    share: float | None  #: None: all that the machine has
    budget_bytes: int
    workspace: float | None  #: slow-down over the baseline with workspace and memory enough; None: it does not fit
    maps: float | None  #: likewise, of the network with maps
    moved: int | None  #: maps of probabilities that are copied out
    again: int | None  #: maps of probabilities that are computed again
    layers: int  #: of attention: as many maps


def setups(effort: int = EFFORT) -> Mapping[str, str]:
    """Policy → its setup: those of the study, and one more yardstick after the first."""
    first, *others = POLICIES
    more = {PROBABILITIES_AGAIN: f"{KEPT} recompute={__name__}:AGAIN"}
    return {first: setup_of(first)} | more | {policy: setup_of(policy, effort) for policy in others}


def compared(
    name: str, batch: int, machine: str, shares: Sequence[float | None] = SHARES, policies: Sequence[str] = (),
    effort: int = EFFORT, watch: Callable[[str], None] = lambda policy: None,
) -> list[TwoPlans]:  # fmt: skip
    """Every policy within every budget, budget by budget.

    Args:
        name: one of `HAVE_MAPS`, or a small network that can have them.
        batch: images or windows.
        machine: a machine's name.
        shares: of the way from the least budget of any policy to what the baseline needs, without maps; None: the
            machine's memory.
        policies: of `setups` (none: all of them).
        effort: plans that combined makes at most.
        watch: called with each policy that is done.
    """
    networks = [LATER[name].make(batch=batch, probabilities=how) for how in ("workspace", "maps")]
    on = machine_named(machine)
    floor = unlimited_baseline(networks[0], on).planned_seconds
    given = {label: one for label, one in setups(effort).items() if label in (policies or (label,))}
    found = []
    given_shares = [share for share in shares if share is not None]
    within: list[tuple[float | None, int]] = [*budgets(name, batch, machine, given_shares).items()]
    if None in shares:
        within.append((None, on.memory_bytes))
    for share, nbytes in within:
        for policy, setup in given.items():
            programs = [attempt(network, setup_named(setup), on, nbytes) for network in networks]
            workspace, maps = (program.planned_seconds / floor if program else None for program in programs)
            moved, again = fates_of_probabilities(programs[1]) if programs[1] else (None, None)
            layers = len(probabilities_of(networks[1]))
            found.append(TwoPlans(policy, share, nbytes, workspace, maps, moved, again, layers))
            watch(policy)
    return found


def probabilities_of(network: Network) -> list[str]:
    """The names of the maps of probabilities."""
    return [layer.y.name for layer in network.layers if layer.kind == "scores"]


def fates_of_probabilities(program: Program) -> tuple[int, int]:
    """How many of those maps are copied out, and how many are computed again."""
    names = {*probabilities_of(program.network)}
    moved = {one.tensor.name for one in program.instructions if isinstance(one, CopyOut)} & names
    rebuilt = [one for one in program.instructions if isinstance(one, Launch) and one.rebuild]
    return len(moved), len({y.name for one in rebuilt for y in one.call.writes} & names)


def maps_table(found: Sequence[TwoPlans], name: str, batch: int, machine: str) -> Table:
    """A line a policy; for each budget both slow-downs, and what becomes of the maps."""
    shares = list(dict.fromkeys(one.share for one in found))
    at = {(one.policy, one.share): one for one in found}

    def cell(share: float | None) -> Callable[[str], str]:
        def written(policy: str) -> str:
            one = at[policy, share]
            both = " / ".join("–" if value is None else f"{value:.3f}" for value in (one.workspace, one.maps))
            return both if one.maps is None else f"{both} ({one.moved}, {one.again})"

        return written

    budget = {one.share: size(one.budget_bytes) for one in found}
    columns = [Column("policy", str), *(Column(f"within {budget[share]}", cell(share)) for share in shares)]
    layers = found[0].layers
    note = (
        "Slow-down with probabilities as workspace / as maps; in brackets how many of the "
        f"{layers} maps are copied out, and how many are computed again.  Both over the baseline with workspace and "
        "memory enough; –: does not fit; simulated."
    )
    return Table.of(f"{name}({batch}) on {machine}", list(dict.fromkeys(one.policy for one in found)), columns, note)

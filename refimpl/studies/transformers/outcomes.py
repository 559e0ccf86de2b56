"""What is planned: each policy on each transformer, machine and budget, and its largest batch; and the tables of it.

An outcome is the row of its point, with three fields more: `policy`, as tables name it; `share`, of the way between the
two budgets, None for the machine's memory and the largest batch; and `kernels_limit`, whether no kernel can index a
larger batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, NamedTuple

from refimpl.names.largest_batch import least_conceivable
from refimpl.names.least_budget import MIB, needed_by_baseline
from refimpl.names.machines import named
from refimpl.network import Network
from refimpl.points.many_plans import Row
from refimpl.report.tables import Column, Table
from refimpl.studies.grid.rows import LARGEST, GridPoint, moved, network_of
from refimpl.studies.transformers.block_bytes import BlockMap, block_maps, probabilities
from refimpl.studies.transformers.yardsticks import YARDSTICKS
from refimpl.text import counted, duration, size

#: Network → images or sequences an iteration, where slow-downs are compared.
NETWORKS = {"vit-b16": 64, "gpt2": 8, "gpt2-medium": 4, "bert-base": 16, "llama3-1b": 2}
MACHINES = ("rtx-3060", "rtx-4090", "a100-80g", "h100")
#: Of the way from what no policy of whole steps can do without to what the baseline needs.
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 0.9)
EFFORT = 40  #: plans that combined makes at most

PAPERS = ("vdnn-all", "vdnn-dyn", "vdnnpp-all", "vdnnpp-dyn", "superneurons", "accudnn")
COMBINED = "combined"
POLICIES = (*YARDSTICKS, *PAPERS, COMBINED)  #: as tables name them, in this order


class Question(NamedTuple):
    """A point of the grid, and the words for it."""

    policy: str
    share: float | None
    point: GridPoint


def setup_of(policy: str, effort: int = EFFORT) -> str:
    """A policy as `refimpl compare --with` takes it."""
    return f"combined effort={effort}" if policy == COMBINED else YARDSTICKS.get(policy, policy)


def budgets(network: str, batch: int, machine: str, shares: Sequence[float] = SHARES) -> dict[float, int]:
    """Share → bytes, a multiple of 1 MiB; those alone that the machine has."""
    built, on = network_of(network, batch), named(machine)
    least, most = least_conceivable(built), needed_by_baseline(built, on)
    found = {share: -int(-(least + share * (most - least)) // MIB) * MIB for share in shares}
    return {share: nbytes for share, nbytes in found.items() if nbytes <= on.memory_bytes}


def questions(
    networks: dict[str, int],
    machines: Sequence[str] = MACHINES,
    shares: Sequence[float] = SHARES,
    policies: Sequence[str] = POLICIES,
    effort: int = EFFORT,
) -> list[Question]:
    """Network by network, machine by machine: the largest batches, then the budgets."""
    found: list[Question] = []
    for network, batch in networks.items():
        for machine in machines:
            within: dict[float | None, tuple[str, int | str]] = {None: ("", LARGEST)}
            for share, nbytes in budgets(network, batch, machine, shares).items():
                within[share] = f"{nbytes // MIB}MiB", batch
            found += [
                Question(policy, share, GridPoint(network, setup_of(policy, effort), machine, *one))
                for share, one in within.items()
                for policy in policies
            ]
    return found


def outcomes(asked: Sequence[Question], plan: Callable[[list[GridPoint]], list[Row]]) -> list[Row]:
    """The outcomes, in the order of the questions.  A question that was refused has none: it raises `ValueError`.

    A search finds its largest batch by its setup that needs the least memory; its speed there is the whole search's.

    Args:
        asked: what is planned.
        plan: makes the rows of points.
    """
    rows = plan([one.point for one in asked])
    if refused := [row["why"] for row in rows if row["fits"] is None]:
        raise ValueError(refused[0])
    largest = [
        one.point._replace(batch=row["batch"]) if one.share is None and row["fits"] else None
        for one, row in zip(asked, rows, strict=True)
    ]
    again_at = [point for point in largest if point]
    faster = iter(plan(again_at) if again_at else [])
    found = []
    for one, row, point in zip(asked, rows, largest, strict=True):
        limit = bool(row["largest"] and row["fits"] and row["why"])
        again = next(faster) if point else row
        row = again if again["fits"] else row
        found.append(row | {"policy": one.policy, "share": one.share, "kernels_limit": limit})
    return found


def fastest(found: Sequence[Row], policies: Sequence[str] = POLICIES) -> list[str]:
    """The policies with the least slow-down among outcomes of one network, machine and budget; none where none fits."""
    fit = {one["policy"]: one["slow_down"] for one in found if one["fits"] and one["policy"] in policies}
    least = min(fit.values(), default=0.0)
    return [policy for policy, slow_down in fit.items() if slow_down <= least * (1 + 1e-6)]


# -- tables ------------------------------------------------------------------------------------------------------------

Found = Sequence[Row]
MISSING = "–"  #: does not fit


def of(found: Found, **wanted: object) -> list[Row]:
    """The outcomes with these fields."""
    return [one for one in found if all(one[name] == value for name, value in wanted.items())]


def distinct(found: Found, name: str) -> list[Any]:
    """The values of a field, in their order."""
    return list(dict.fromkeys(one[name] for one in found if one[name] is not None))


def by_policy(found: Found, title: str, columns: dict[str, Callable[[str], str]], note: str = "") -> Table:
    """A line a policy; a column's cell is a function of the policy."""
    policies = [policy for policy in POLICIES if of(found, policy=policy)]
    rows = [[policy, *(cell(policy) for cell in columns.values())] for policy in policies]
    return Table(title, ["policy", *columns], rows, frozenset(columns), (), note)


def cells(here: Found, written: Callable[[Found], str]) -> Callable[[str], str]:
    """A column's cell, of the policy's outcomes there."""
    return lambda policy: written(of(here, policy=policy))


def by_case(
    title: str, heads: tuple[str, str], cases: Mapping[tuple[str, str], Found], cell: Callable[[Found], str], note: str
) -> Table:
    """A line a case, a column a policy; a cell is a function of the policy's outcomes there."""
    rows = [[*case, *(cell(of(here, policy=policy)) for policy in POLICIES)] for case, here in cases.items()]
    return Table(title, [*heads, *POLICIES], rows, frozenset(POLICIES), (), note)


def slow_down_table(found: Found, network: str, machine: str) -> Table:
    """Slow-downs over budget, and the largest batch, of a network on a machine."""
    here = of(found, network=network, machine=machine)
    at = {share: of(here, share=share) for share in sorted(distinct(here, "share"))}
    columns = {size(those[0]["budget_bytes"]): cells(those, slow_down_cell) for those in at.values()}
    columns["largest batch"] = cells(of(here, share=None), largest_cell)
    note = (
        "Seconds of an iteration over the baseline's with memory enough; simulated.  –: does not fit.  In brackets "
        "that with the largest batch.  +: no kernel can index a larger one."
    )
    batch = next((f"({one['batch']})" for one in here if one["share"] is not None), "")
    return by_policy(here, f"{network}{batch} on {machine}", columns, note)


def slow_down_cell(found: Found) -> str:
    (one,) = found
    return f"{one['slow_down']:.3f}" if one["fits"] else MISSING


def largest_cell(found: Found) -> str:
    """A batch, and a + where memory is not the limit; in brackets the slow-down with it."""
    (one,) = found
    return f"{one['batch']}{'+' * one['kernels_limit']} ({one['slow_down']:.2f})" if one["fits"] else MISSING


def largest_table(found: Found) -> Table:
    """The largest batch of each policy."""
    here = of(found, share=None)
    cases = {
        (network, machine): of(here, network=network, machine=machine)
        for network in distinct(here, "network")
        for machine in distinct(here, "machine")
    }
    note = (
        f"In brackets the slow-down with it.  {MISSING}: not even a batch of 1 fits.  +: no kernel can index a larger "
        "one, and memory is left."
    )
    return by_case("Largest batch", ("network", "machine"), cases, largest_cell, note)


def mean_table(found: Found) -> Table:
    """Each policy's mean slow-down over the networks, at each share of the way."""

    def cell(ones: Found) -> str:
        fit = [one["slow_down"] for one in ones if one["fits"]]
        return f"{geometric_mean(fit):.3f}" if fit and len(fit) == len(ones) else f"{len(fit)} of {len(ones)}"

    cases = {
        (machine, f"{share:.0%}"): of(found, machine=machine, share=share)
        for machine in distinct(found, "machine")
        for share in sorted(distinct(found, "share"))
    }
    note = (
        "Geometric mean of the networks' slow-downs, where all fit, or how many fit.  A budget is a share of the way "
        "from what no policy of whole steps can do without to what the baseline needs, where the machine has that."
    )
    return by_case("Mean slow-down", ("machine", "budget"), cases, cell, note)


def traffic_table(found: Found, machine: str, share: float) -> Table:
    """What each policy moves and runs again, at one share of the way."""
    here = of(found, machine=machine, share=share)

    def moved_and_again(ones: Found) -> str:
        (one,) = ones
        return f"{(moved(one) or 0) / 2**30:.1f} / {one['again']}" if one["fits"] else MISSING

    columns = {name: cells(of(here, network=name), moved_and_again) for name in distinct(here, "network")}
    note = "GiB copied both ways, and forward steps that run again, of an iteration."
    return by_policy(here, f"Moved / again, {machine}, {share:.0%} of the way", columns, note)


def fastest_table(found: Found) -> Table:
    """How often each policy is the fastest, or as fast, of all and of the papers' alone."""
    cases = [
        case
        for network in distinct(found, "network")
        for machine in distinct(found, "machine")
        for share in sorted(distinct(found, "share"))
        if fastest(case := of(found, network=network, machine=machine, share=share))
    ]

    def won(among: Sequence[str]) -> Callable[[str], str]:
        def cell(policy: str) -> str:
            return str(sum(policy in fastest(case, among) for case in cases)) if policy in among else MISSING

        return cell

    def fits(policy: str) -> str:
        return str(sum(any(one["fits"] for one in of(case, policy=policy)) for case in cases))

    simple = [policy for policy in POLICIES if policy != "combined"]
    columns = {"fits": fits, "fastest": won(POLICIES), "without combined": won(simple), "of the papers": won(PAPERS)}
    note = f"Of {counted(len(cases), 'budget')} in which some policy fits; several may be equally fast."
    return by_policy(found, "Who is fastest", columns, note)


# -- a block -----------------------------------------------------------------------------------------------------------


def probabilities_table(networks: Sequence[Network], machine: str) -> Table:
    """The probabilities of a layer of attention, if they were a map, on a machine."""
    made = [probabilities(network, named(machine)) for network in networks]
    columns = (
        Column("network", lambda one: f"{one.network}({one.batch})"), Column("units", "units", "{:.3g}".format),
        Column("bytes", "nbytes", size), Column("copied out and in", "copy_seconds", duration),
        Column("attention's forward", "forward_seconds", duration),
    )  # fmt: skip
    return Table.of(f"Probabilities of a layer, {machine}", [one for one in made if one], columns)


def block_table(network: Network) -> Table:
    """The maps of a block that backward reads."""
    maps = block_maps(network)
    columns = (
        Column("map", "name"), Column("made by", "made_by"),
        Column("read by backward of", lambda one: ", ".join(one.read_by)),
        Column("units", "units", "{:g}".format), Column("bytes", "nbytes", size),
    )  # fmt: skip
    total = BlockMap("together", "", (), sum(one.nbytes for one in maps), sum(one.units for one in maps))
    note = "A unit is the block's input: batch × tokens × channels numbers of 4 bytes."
    return Table.of(f"A block of {network.name}({network.batch})", [*maps, total], columns, note)

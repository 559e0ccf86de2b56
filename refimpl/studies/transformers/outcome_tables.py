"""Tables of outcomes: a block's bytes, slow-downs over budget, largest batches, what moves, and who is fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from refimpl.names.machines import named
from refimpl.network import Network
from refimpl.points.many_plans import Row
from refimpl.report.tables import Column, Table
from refimpl.studies.grid.rows import moved
from refimpl.studies.transformers.block_bytes import BlockMap, block_maps, probabilities
from refimpl.studies.transformers.outcomes import PAPERS, POLICIES, fastest
from refimpl.text import counted, duration, size

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

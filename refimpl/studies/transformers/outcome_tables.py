"""Tables of outcomes: a block's bytes, slow-downs over budget, largest batches, what moves, and who is fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from refimpl.names.machines import named
from refimpl.network import Network
from refimpl.report.tables import Column, Table
from refimpl.studies.transformers.block_bytes import BlockMap, block_maps, probabilities
from refimpl.studies.transformers.outcomes import PAPERS, POLICIES, Outcome, fastest, mean
from refimpl.text import counted, duration, size

Found = Sequence[Outcome]
MISSING = "–"  #: does not fit


def of(found: Found, **wanted: object) -> list[Outcome]:
    """The outcomes with these fields."""
    return [one for one in found if all(getattr(one, name) == value for name, value in wanted.items())]


def distinct(found: Found, name: str) -> list[str]:
    """The values of a field, in their order."""
    return list(dict.fromkeys(getattr(one, name) for one in found))


def shares(found: Found) -> list[float]:
    return sorted({one.share for one in found if one.share is not None})


def rows_of(found: Found, columns: dict[str, Callable[[str], str]], title: str, note: str = "") -> Table:
    """A line a policy; a column's cell is a function of the policy."""
    policies = [policy for policy in POLICIES if of(found, policy=policy)]
    made = [Column(head, cell) for head, cell in columns.items()]
    table = Table.of(title, policies, [Column("policy", str), *made], note)
    return Table(table.title, table.head, table.rows, frozenset(columns), (), note)


# -- a network on a machine --------------------------------------------------------------------------------------------


def slow_down_table(found: Found, network: str, machine: str) -> Table:
    """Slow-downs over budget, and the largest batch."""
    here = of(found, network=network, machine=machine)

    def slow_down(share: float) -> Callable[[str], str]:
        def cell(policy: str) -> str:
            (one,) = of(here, policy=policy, share=share)
            return MISSING if one.slow_down is None else f"{one.slow_down:.3f}"

        return cell

    heads = {share: size(of(here, share=share)[0].budget_bytes) for share in shares(here)}
    columns = {f"{heads[share]}": slow_down(share) for share in heads}
    batch = next((one.batch for one in here if one.share is not None), None)
    title = f"{network}({batch}) on {machine}" if batch else f"{network} on {machine}"
    note = "Seconds of an iteration over the baseline's with memory enough; simulated.  –: does not fit."
    if of(here, share=None):
        columns["largest batch"] = lambda policy: largest_cell(of(here, policy=policy, share=None))
        note += "  In brackets that with the largest batch.  +: no kernel can index a larger one."
    return rows_of(here, columns, title, note)


def largest_cell(found: Found) -> str:
    """A batch, and a + where memory is not the limit; in brackets the slow-down with it."""
    (one,) = found
    return MISSING if one.slow_down is None else f"{one.batch}{'+' if one.kernels_limit else ''} ({one.slow_down:.2f})"


# -- all networks ------------------------------------------------------------------------------------------------------

Case = tuple[str, str]  #: two names that begin a row


def by_policy(title: str, heads: Case, cases: Sequence[Case], cell: Callable[[Case, str], str], note: str) -> Table:
    """A line a case, a column a policy."""
    head = [*heads, *POLICIES]
    rows = [[*case, *(cell(case, policy) for policy in POLICIES)] for case in cases]
    return Table(title, head, rows, frozenset(POLICIES), (), note)


def largest_table(found: Found) -> Table:
    """The largest batch of each policy."""
    here = of(found, share=None)
    cases = [(network, machine) for network in distinct(here, "network") for machine in distinct(here, "machine")]

    def cell(case: Case, policy: str) -> str:
        return largest_cell(of(here, network=case[0], machine=case[1], policy=policy))

    note = (
        f"In brackets the slow-down with it.  {MISSING}: not even a batch of 1 fits.  +: no kernel can index a larger "
        "one, and memory is left."
    )
    return by_policy("Largest batch", ("network", "machine"), cases, cell, note)


def mean_table(found: Found) -> Table:
    """Each policy's mean slow-down over the networks, at each share of the way."""
    machines = distinct(found, "machine")
    cases = {(machine, f"{share:.0%}"): share for machine in machines for share in shares(found)}

    def cell(case: Case, policy: str) -> str:
        ones = of(found, machine=case[0], share=cases[case], policy=policy)
        fit = [one.slow_down for one in ones if one.slow_down is not None]
        return f"{mean(fit):.3f}" if fit and len(fit) == len(ones) else f"{len(fit)} of {len(ones)}"

    note = (
        "Geometric mean of the networks' slow-downs, where all fit, or how many fit.  A budget is a share of the way "
        "from what no policy can do without to what the baseline needs, where the machine has that."
    )
    return by_policy("Mean slow-down", ("machine", "budget"), list(cases), cell, note)


def traffic_table(found: Found, machine: str, share: float) -> Table:
    """What each policy moves and runs again, at one share of the way."""
    here = of(found, machine=machine, share=share)

    def cell(network: str) -> Callable[[str], str]:
        def moved_and_again(policy: str) -> str:
            (one,) = of(here, network=network, policy=policy)
            if one.moved_bytes is None:
                return MISSING
            return f"{one.moved_bytes / 2**30:.1f} / {one.again}"

        return moved_and_again

    columns = {network: cell(network) for network in distinct(here, "network")}
    note = "GiB copied both ways, and forward steps that run again, of an iteration."
    return rows_of(here, columns, f"Moved / again, {machine}, {share:.0%} of the way", note)


def fastest_table(found: Found) -> Table:
    """How often each policy is the fastest, or as fast, of all and of the papers' alone."""
    cases = [
        of(found, network=network, machine=machine, share=share)
        for network in distinct(found, "network")
        for machine in distinct(found, "machine")
        for share in shares(found)
    ]
    cases = [case for case in cases if fastest(case)]

    def won(among: Sequence[str]) -> Callable[[str], str]:
        def cell(policy: str) -> str:
            return str(sum(policy in fastest(case, among) for case in cases)) if policy in among else MISSING

        return cell

    def fits(policy: str) -> str:
        return str(sum(any(one.fits for one in of(case, policy=policy)) for case in cases))

    simple = [policy for policy in POLICIES if policy != "combined"]
    columns = {"fits": fits, "fastest": won(POLICIES), "without combined": won(simple), "of the papers": won(PAPERS)}
    note = f"Of {counted(len(cases), 'budget')} in which some policy fits; several may be equally fast."
    return rows_of(found, columns, "Who is fastest", note)


def probabilities_table(networks: Sequence[Network], machine: str) -> Table:
    """The probabilities of a layer of attention, if they were a map, on a machine."""
    made = [probabilities(network, named(machine)) for network in networks]
    columns = (
        Column("network", lambda one: f"{one.network}({one.batch})"), Column("units", "units", "{:.3g}".format),
        Column("bytes", "nbytes", size), Column("copied out and in", "copy_seconds", duration),
        Column("attention's forward", "forward_seconds", duration),
    )  # fmt: skip
    return Table.of(f"Probabilities of a layer, {machine}", [one for one in made if one], columns)


# -- a block -----------------------------------------------------------------------------------------------------------


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

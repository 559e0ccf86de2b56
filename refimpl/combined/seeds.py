"""The two-parameter family: where the search begins, and the part of it to read first.

Every map has a price: the seconds to rebuild it, for each of its bytes.  Two numbers give every map a fate:

- tau: a map whose price is at most tau is dropped: rebuilding it is cheap for the bytes that it frees;
- q: of the other maps, the q eighths that are away longest are offloaded, and the rest is kept.

    tau = 0, q = 0: everything stays          tau = 0, q = 8: everything leaves
    tau large, q = 0: all that can be rebuilt is dropped

With a handful of values for each of them that is about thirty setups.  The planner judges each one exactly, holes and
copies and all, so the prices need not be exact.  Fates that do not quite fit are no failure: the cache evicts what is
needed last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refimpl.accudnn import Capped
from refimpl.combined.carried_out import InTime, OnceDrained
from refimpl.combined.farthest import FarthestNextUse
from refimpl.combined.fates import Fates, Word
from refimpl.combined.file import setup_with
from refimpl.combined.fixed import FixedAddresses
from refimpl.combined.maps import Maps
from refimpl.memory import BestFit, BothEnds
from refimpl.planner import Setup
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import FastestThatFits, MemoryOptimal

FASTEST = Capped(())  #: the fastest algorithms
ALGORITHMS: tuple[slots.Algorithms, ...] = (OnceDrained(), FastestThatFits(), FASTEST)
ADDRESSES = FixedAddresses(rounds=8)  #: fixed beforehand, without much patience
EARLY = FixedAddresses(early=True, rounds=8)  #: and so that copies in need not wait for kernels
FEW = 100  #: steps of a network for which addresses are fixed beforehand: with more blocks it takes long
SHARES = (0, 8, 4)  #: eighths, in the order in which they are tried
EIGHTHS = 8  #: of the bytes that can be dropped


def seed(fates: Fates, algorithms: slots.Algorithms, **modules: Any) -> Setup:
    """The setup of the family with these fates."""
    given = {"prefetch": InTime(lead=2.0), "cache": FarthestNextUse()} | modules
    return setup_with(fates, algorithms=algorithms, name="combined", **given)


def fates_of(maps: Maps, tau: float, q: int) -> Fates:
    """The member of the family.

    Args:
        maps: the network's.
        tau: seconds a byte; what costs no more is dropped.
        q: eighths of the other maps that are offloaded.
    """
    words: dict[str, Word] = {x.name: "drop" for x in maps.large if maps.price[x] <= tau}
    others = [x for x in maps.large if x.name not in words]
    others.sort(key=lambda x: (-maps.idle[x][1], x.name))  # away longest first: needed last by backward
    words |= {x.name: "offload" for x in others[: len(others) * q // 8]}
    return Fates.of(words)


def prices(maps: Maps) -> list[float]:
    """The values of tau: nothing is dropped, then an eighth of all bytes, two eighths and so on to seven."""
    cheapest = sorted((x for x in maps.large if maps.price[x] < float("inf")), key=lambda x: (maps.price[x], x.name))
    found, dropped, total = [0.0], 0, sum(x.nbytes for x in cheapest)
    wanted = [eighth / EIGHTHS * total for eighth in range(1, EIGHTHS)]
    for x in cheapest:
        dropped += x.nbytes
        while wanted and dropped >= wanted[0]:
            found.append(maps.price[x])
            wanted.pop(0)
    return sorted(set(found))


def family(maps: Maps, algorithms: slots.Algorithms = ALGORITHMS[0], **modules: Any) -> Iterator[Setup]:
    """All seeds of the family, the extremes first; where nothing is offloaded, also with fixed addresses.

    Args:
        maps: the network's.
        algorithms: of all seeds.
        modules: of all seeds, too; with an allocator among them, no other one is tried.
    """
    for q in SHARES:
        for tau in prices(maps):
            yield seed(fates_of(maps, tau, q), algorithms, **modules)
            if q == 0 and "allocator" not in modules and len(maps.network.steps) <= FEW:
                yield seed(fates_of(maps, tau, q), algorithms, allocator=ADDRESSES, **modules)


def frugal(maps: Maps, **modules: Any) -> Iterator[Setup]:
    """Setups that need little memory: every map leaves or is rebuilt; then the family, by other algorithms."""
    offloaded: dict[str, Word] = {x.name: "offload" for x in maps.large}
    dropped: dict[str, Word] = {x.name: "drop" for x in maps.large if maps.context.can_be_rebuilt(x)}
    for words in (offloaded, dropped):
        for allocator in (BestFit(), BothEnds(), FixedAddresses()):
            yield seed(Fates.of(words), MemoryOptimal(), allocator=allocator, **modules)
    for algorithms in (FastestThatFits(), MemoryOptimal()):
        yield from family(maps, algorithms, **modules)

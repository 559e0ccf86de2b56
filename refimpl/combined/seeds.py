"""The two-parameter family: where the search begins, and the part of it to read first.

Every map has a price: the seconds to rebuild it, for each of its bytes.  Two numbers give every map a fate:

- tau: a map whose price is at most tau is dropped: rebuilding it is cheap for the bytes that it frees;
- q: of the other maps, the q eighths that are away longest are offloaded, and the rest is kept.

    tau = 0, q = 0: everything stays          tau = 0, q = 8: everything leaves
    tau large, q = 0: all that can be rebuilt is dropped

With a handful of values for tau and the three ways to choose algorithms that is about a hundred setups.  The planner
judges each one exactly, holes and copies and all, so the prices need not be exact.  Fates that do not quite fit are
no failure: the cache evicts what is needed last.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from refimpl.accudnn import Capped
from refimpl.combined.farthest import FarthestNextUse
from refimpl.combined.fates import Fates, Word
from refimpl.combined.file import setup_with
from refimpl.combined.maps import Maps
from refimpl.combined.modules import InTime, OnceDrained
from refimpl.memory import BestFit, BothEnds
from refimpl.network import Tensor
from refimpl.planner import FixedAddresses, Setup, slots
from refimpl.planner.baseline import FastestThatFits, MemoryOptimal

FASTEST = Capped(())  #: the fastest algorithms; the search may cap the workspace of a step
ALGORITHMS: tuple[slots.Algorithms, ...] = (OnceDrained(), FastestThatFits(), FASTEST)
ADDRESSES = FixedAddresses(rounds=8)  #: fixed beforehand, without much patience
EARLY = FixedAddresses(early=True, rounds=8)  #: and so that copies in need not wait for kernels
FEW = 100  #: steps of a network for which addresses are fixed beforehand in every seed: with more blocks it takes long
SHARES = (0, 8, 4, 2, 6)  #: eighths, in the order in which they are tried
QUARTILES = (0.25, 0.5, 0.75)  #: of the bytes that can be dropped


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
    """The values of tau: nothing is dropped, then a quarter, a half, three quarters of all bytes."""
    cheapest = sorted((x for x in maps.large if maps.price[x] < float("inf")), key=lambda x: (maps.price[x], x.name))
    found, dropped, total = [0.0], 0, sum(x.nbytes for x in cheapest)
    wanted = [quarter * total for quarter in QUARTILES]
    for x in cheapest:
        dropped += x.nbytes
        while wanted and dropped >= wanted[0]:
            found.append(maps.price[x])
            wanted.pop(0)
    return sorted(set(found))


def family(maps: Maps) -> Iterator[Setup]:
    """All setups of the family, the extremes first."""
    for q in SHARES:
        for tau in prices(maps):
            fates = fates_of(maps, tau, q)
            for algorithms in ALGORITHMS:
                yield seed(fates, algorithms)
                if q in SHARES[:3]:
                    yield seed(fates, algorithms, allocator=BothEnds())
            if len(maps.network.steps) <= FEW:
                yield seed(fates, ALGORITHMS[0], allocator=ADDRESSES)


def drawn(maps: Maps, lot: random.Random) -> Setup:
    """Any fates: from a tenth to four fifths of the maps do not stay."""
    share = lot.choice((0.1, 0.25, 0.5, 0.8))
    words: dict[str, Word] = {x.name: away(x, maps, lot) for x in maps.large if lot.random() < share}
    return seed(Fates.of(words), lot.choice(ALGORITHMS), allocator=lot.choice((BestFit(), BothEnds())))


def away(tensor: Tensor, maps: Maps, lot: random.Random) -> Word:
    """Offload or drop, by lot; the batch cannot be dropped."""
    return "offload" if tensor is maps.network.input or lot.random() < 0.5 else "drop"


def frugal(maps: Maps) -> Iterator[Setup]:
    """Setups that need little memory: every map leaves or is rebuilt, by the algorithms of least workspace."""
    offloaded: dict[str, Word] = {x.name: "offload" for x in maps.large}
    dropped: dict[str, Word] = {x.name: "drop" for x in maps.large if x is not maps.network.input}
    for words in (offloaded, dropped):
        for allocator in (BestFit(), BothEnds(), FixedAddresses()):
            yield seed(Fates.of(words), MemoryOptimal(), allocator=allocator)

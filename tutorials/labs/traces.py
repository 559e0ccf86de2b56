"""Lab A4's cases: the allocations and frees of an iteration, recorded once and replayed in pools of any size.

A plan leaves out a prefetch that finds no hole, and so hides what an allocator wastes; a trace leaves out nothing.
The figure is the least pool that serves a trace, over the *ideal*: the most bytes alive at once.

    python -m tutorials.labs.traces mine.py alexnet 100 VDNN_CONV --picture pool.png
"""

from __future__ import annotations

import argparse
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

from refimpl.cli.parser import error_line
from refimpl.memory import UNLIMITED, Allocator, BestFit, FirstFit, ideal
from refimpl.memory.allocation_trace import TraceEvent, rounded
from refimpl.network import Step, Tensor
from refimpl.planner import DoesNotFit, Setup, SetupError, plan
from refimpl.slots.planner_only import PoolSearch
from refimpl.text import RefimplError, size
from tutorials.labs.lab import Case, Lab, Refused, machine, network_of, said_of

COLOURS = (
    "dark blue stays until backward, light blue comes and goes, orange and purple are gradients; dashed: the ideal"
)
LARGEST = 1.5  #: times the ideal: the largest pool that is tried
HALVINGS = 9  #: between the two
LIFETIME = 2  #: the rule of `refimpl.planner.verify` that two live blocks of the same bytes break


@dataclass(frozen=True, eq=False)
class Recorded:
    """One iteration's allocations and frees."""

    events: Sequence[TraceEvent]
    steps: Sequence[Step] = ()

    @cached_property
    def ideal(self) -> int:
        return ideal(self.events)

    def replayed(self, allocator: Allocator, nbytes: int) -> Replayed:
        """All blocks, in a pool of `nbytes`.

        Raises:
            DoesNotFit: a block got no address.
            Refused: an address is outside the pool, or of bytes that a live block has.
        """
        pool, addresses = allocator.open(nbytes), dict[int, int]()
        live: list[tuple[int, int, TraceEvent]] = []  # (address, end, block), sorted
        for event in self.events:
            if not event.nbytes:
                address = addresses[event.block]
                pool.free(address)
                del live[bisect_left(live, (address,))]
                continue
            found = pool.allocate(event.nbytes, event.stays)
            if found is None:
                step = self.steps[event.step - 1] if self.steps and event.step else None
                hole = pool.hole_for(event.stays)
                raise DoesNotFit(step, event.name, event.nbytes, pool.free_bytes, hole, nbytes, {})
            one = (found, found + rounded(event.nbytes), event)
            place = bisect_left(live, one[:1])
            for other in live[max(0, place - 1) : place + 1]:
                if one[0] < other[1] and other[0] < one[1]:
                    raise Refused(LIFETIME, f"{described(one)}, and {described(other)} at that moment")
            if found < 0 or one[1] > nbytes:
                raise Refused(LIFETIME, f"{described(one)} of a pool of {nbytes:,}")
            addresses[event.block] = found
            insort(live, one)
        return Replayed(self, nbytes, addresses)

    def served(self, allocator: Allocator, nbytes: int) -> Replayed:
        """The same; an allocator that searches may first replay it in other pools, and with other allocators."""
        made: list[Replayed] = []

        def attempt(
            nbytes: int, lag: int | None = None, allocator: Allocator = allocator, memory: object = None
        ) -> Replayed:  # a trace has no planner, whose memory could be another
            made.append(self.replayed(allocator, nbytes))
            return made[-1]

        if not isinstance(allocator, PoolSearch):
            return attempt(nbytes)
        found: Replayed = allocator.search(attempt, nbytes, True)
        if not any(found is one for one in made):
            raise SetupError(f"search returns {type(found).__name__}; return what attempt returned")
        if found.budget > nbytes:
            raise SetupError(f"search returns an attempt in {size(found.budget)}; the budget is {size(nbytes)}")
        return found

    def least(self, allocator: Allocator) -> Replayed:
        """The least pool found that serves the trace, to a thousandth of the ideal."""
        try:
            return self.served(allocator, self.ideal)
        except DoesNotFit:
            low, found = self.ideal, self.served(allocator, int(LARGEST * self.ideal))
        for _ in range(HALVINGS):
            middle = (low + found.budget) // 2
            try:
                found = self.served(allocator, middle)
            except DoesNotFit:
                low = middle
        return found


@dataclass(frozen=True, eq=False)
class Network:
    """A trace has no resident tensors."""

    resident: Sequence[Tensor] = ()


@dataclass(frozen=True, eq=False)
class Replayed:
    """What an attempt returns: of a program what an allocator asks."""

    recorded: Recorded
    budget: int  #: bytes of the pool
    addresses: Mapping[int, int]  #: of each block
    network: ClassVar[Network] = Network()

    def allocation_trace(self) -> list[TraceEvent]:
        return [*self.recorded.events]

    def verify(self) -> None:
        """Nothing is left to prove: the replay has compared each block with all that were alive."""


def described(one: tuple[int, int, TraceEvent]) -> str:
    address, end, event = one
    return f"{event.name} has the bytes {address:,} to {end:,}"


@lru_cache(maxsize=512)
def recorded(network: str, batch: int, setup: Setup) -> Recorded:
    """The trace of a plan with memory enough."""
    program = plan(network_of(network, batch), setup.replace(allocator=BestFit()), machine(), UNLIMITED)
    return Recorded(program.allocation_trace(), program.network.steps)


def above(figure: float) -> str:
    return f"{100 * (figure - 1):.1f} % above the ideal"


class Traces(Lab):
    """A lab whose cases are traces: less is better, 1 is the ideal."""

    def recorded(self, case: Case) -> Recorded:
        return recorded(case.network, case.batch, self.around[case.around])

    def figure_of(self, case: Case, modules: Mapping[str, Any]) -> tuple[float, Any]:
        trace = self.recorded(case)
        found = trace.least(modules["allocator"])
        return found.budget / trace.ideal, found

    def decided(self, program: Any) -> object:
        return program.budget, program.addresses

    def once_more(self, case: Case, modules: Mapping[str, Any], program: Any) -> bool:
        again = self.recorded(case).served(modules["allocator"], program.budget)
        return self.decided(again) == self.decided(program)

    def command(self, case: Case, path: Path) -> str:
        return f"python -m tutorials.labs.traces {path} {case.network} {case.batch} {case.around}"


# -- the command -------------------------------------------------------------------------------------------------------


def outcome(trace: Recorded, allocator: Allocator) -> tuple[str, Replayed | None]:
    """A line on the least pool, and what does not fit the largest one tried that is smaller."""
    try:
        found = trace.least(allocator)
    except DoesNotFit as error:
        return str(error), None
    except Exception as error:  # whatever the submission raises
        return said_of(error), None
    line = f"{size(found.budget)}, {above(found.budget / trace.ideal)}"
    if found.budget > trace.ideal:
        try:
            trace.served(allocator, found.budget - max(512, trace.ideal >> HALVINGS))
        except DoesNotFit as error:
            asked = f"{size(error.asked)} for {error.tensor}"
            line += (
                f"; in a smaller pool {error.where} asks {asked}, and the largest hole is {size(error.largest_hole)}"
            )
    return line, found


def main(argv: Sequence[str] | None = None) -> None:
    from tutorials.labs.test_a4 import LAB

    parser = argparse.ArgumentParser(prog="python -m tutorials.labs.traces", description=__doc__)
    parser.add_argument("file", type=Path, help="a submission")
    parser.add_argument("network")
    parser.add_argument("batch", type=int)
    parser.add_argument("around", choices=LAB.around)
    parser.add_argument("--picture", metavar="FILE", help="draw the blocks in both pools, over time")
    given = parser.parse_args(argv)
    try:
        trace = recorded(given.network, given.batch, LAB.around[given.around])
        mine = LAB.modules(given.file)["allocator"]
    except (RefimplError, OSError) as error:
        parser.error(error_line(error))
    allocators = {"best fit": BestFit(), "first fit": FirstFit(), str(given.file): mine}
    print(f"{given.network}, batch {given.batch}, {given.around}: the ideal is {size(trace.ideal)}")
    found = {}
    for name, allocator in allocators.items():
        line, found[name] = outcome(trace, allocator)
        print(f"  {name}: {line}")
    if given.picture:
        draw(found, given.picture)


def draw(found: Mapping[str, Replayed | None], path: str) -> None:
    from refimpl.report import style
    from refimpl.studies.fragmentation import pictures

    pools = {name: one for name, one in found.items() if one}
    unit, name = style.byte_unit(max(one.budget for one in pools.values()))
    with style.page(4 * len(pools), 4.4, "One iteration's blocks, each in the least pool", COLOURS, 0.8) as figure:
        grid = figure.subplots(1, len(pools), sharey=True, squeeze=False)[0]
        for axes, (title, one) in zip(grid, pools.items(), strict=True):
            events = one.recorded.events
            panel = pictures.PoolPanel(title, events, one.budget, one.recorded.ideal, one.addresses)
            pictures.draw(axes, panel, pictures.moments(events), unit, 1.1 * one.budget)
            axes.set_xlabel("step: forward, then backward", fontsize=8)
            axes.set_title(f"{title}: {above(one.budget / one.recorded.ideal)}", fontsize=9)
        grid[0].set_ylabel(f"address in the pool ({name})")
    style.save(figure, path)


if __name__ == "__main__":
    main()

"""A solution of lab A5a: two choices of maps are planned, and the faster one is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import inf
from typing import ClassVar

from refimpl import Context, slots
from refimpl.machine import Machine
from refimpl.memory.allocation_trace import rounded
from refimpl.network import Network, Tensor
from refimpl.planner import DoesNotFit, plan
from tutorials.labs.test_a5a import SETUP


@dataclass(frozen=True)
class Leave(slots.Offload):
    """Those that wait longest, or at the fullest step those with the most slack: one may fit alone."""

    name: ClassVar[str] = "my-offload"
    summary: ClassVar[str] = "the faster of two choices"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> slots.Departures:
        return departures(context, faster(context.network, context.machine, context.budget))


@lru_cache(maxsize=1)
def faster(network: Network, machine: Machine, budget: int) -> Sequence[Tensor]:
    """The maps of the faster choice, kept because a plan with fixed addresses binds its modules twice."""
    context = Context(network, machine, budget)
    first, second = relieved(context), longest(context)
    if set(first) == set(second):
        return first
    return min(first, second, key=lambda maps: seconds_with(context, maps))


@dataclass(frozen=True)
class These(slots.Offload):
    """The given maps, for a trial."""

    maps: Sequence[Tensor]
    name: ClassVar[str] = "these"
    summary: ClassVar[str] = "the given maps"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> slots.Departures:
        return departures(context, self.maps)


def departures(context: Context, maps: Sequence[Tensor]) -> slots.Departures:
    """Each map begins to leave after its last writer; step 1 for the batch, which no step writes."""
    found = slots.Departures()
    for tensor in maps:
        written = context.last_forward_write(tensor, context.network.depth + 1)
        found.add(max(1, written), tensor, "it waits through a step that is too full")
    return found


def seconds_with(context: Context, maps: Sequence[Tensor]) -> float:
    """Of an iteration in which these maps leave; infinite where it does not fit."""
    setup = SETUP.replace(offload=These(maps))
    try:
        return plan(context.network, setup, context.machine, context.budget).planned_seconds
    except DoesNotFit:
        return inf


# -- two choices -------------------------------------------------------------------------------------------------------


def longest(context: Context) -> list[Tensor]:
    """As many as the budget asks for, those that wait for the most steps first."""
    return as_many(context, lambda tensor: len(idle(context, tensor)))


def as_many(context: Context, order: Callable[[Tensor], int]) -> list[Tensor]:
    """The maps with the most of something, until all steps fit."""
    held = books(context)
    maps = [tensor for tensor in context.maps_across() if len(idle(context, tensor)) >= 2]
    maps.sort(key=order, reverse=True)
    for number, tensor in enumerate(maps):
        if max(held) <= context.budget:
            return maps[:number]
        leave(held, context, tensor)
    return maps


def relieved(context: Context) -> list[Tensor]:
    """At the fullest step the map leaves that has the most slack a byte, until all steps fit."""
    held, chosen = books(context), list[Tensor]()
    staying = sorted(context.maps_across(), key=slack_a_byte(context), reverse=True)
    while held[fullest := held.index(max(held))] > context.budget:
        waiting = (tensor for tensor in staying if fullest in idle(context, tensor))
        if (tensor := next(waiting, None)) is None:
            held[fullest] = 0  # no map can help: a smaller workspace may
            continue
        staying.remove(tensor)
        chosen.append(tensor)
        leave(held, context, tensor)
    return chosen


def slack_a_byte(context: Context) -> Callable[[Tensor], float]:
    """The seconds that its two copies leave of a map's wait, for each byte; the batch is on the host already."""
    start = starts(context)

    def slack(tensor: Tensor) -> float:
        steps, ways = idle(context, tensor), ("in",) if tensor in context.batch else ("out", "in")
        copies = sum(context.machine.copy_seconds(tensor.nbytes, way) for way in ways)
        return (start[steps.stop] - start[steps.start] - copies) / tensor.nbytes

    return slack


# -- what they count with ----------------------------------------------------------------------------------------------


def idle(context: Context, tensor: Tensor) -> range:
    """The steps through which a map waits."""
    return range(context.last_forward_use(tensor) + 1, context.first_backward_use(tensor))


def books(context: Context) -> list[int]:
    """Bytes on the device at each step, by its number, if every map stays and each algorithm is the fastest."""
    change = [0] * (len(context.network.steps) + 2)
    change[0] = sum(rounded(tensor.nbytes) for tensor in context.network.resident)
    for tensor, uses in context.uses.items():
        if uses:
            first = 1 if tensor in context.batch else uses[0].number
            change[first] += rounded(tensor.nbytes)
            change[context.last_use(tensor) + 1] -= rounded(tensor.nbytes)
    held = [*accumulate(change)]
    for step in context.network.steps:
        workspaces = [context.machine.choices(call)[0].workspace_bytes for call in step.calls if call.choosable]
        held[step.number] += rounded(max(workspaces, default=0))
    return held


def leave(held: list[int], context: Context, tensor: Tensor) -> None:
    """The books without a map while it waits."""
    for number in idle(context, tensor):
        held[number] -= rounded(tensor.nbytes)


def starts(context: Context) -> list[float]:
    """When each step starts, by its number, in seconds, if none waits; the last place is the end."""
    steps = [sum(map(context.machine.seconds, step.calls)) for step in context.network.steps]
    return [0.0, 0.0, *accumulate(steps)]


offload = Leave()

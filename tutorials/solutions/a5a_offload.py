"""A solution of lab A5: the fullest steps are relieved, and each copy back begins in time, as soon as there is room."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor


def begins(context: Context) -> list[float]:
    """When each step begins, in seconds, if nothing waits."""
    found, now = [], 0.0
    for step in context.network.steps:
        found.append(now)
        now += sum(context.machine.seconds(call) for call in step.calls)
    return found


def books(context: Context, away: Collection[Tensor]) -> list[int]:
    """Bytes on the device at each step, from 1 on, if the maps that are away come back for their first backward use.

    The workspace of the fastest algorithms is counted, too.
    """
    steps = context.network.steps
    change = [0] * (len(steps) + 3)
    for tensor, uses in context.uses.items():
        if not uses:
            continue
        spans = [(uses[0].number, context.last_use(tensor) + 1)]
        if tensor in away:
            left, back = context.last_forward_use(tensor) + 1, context.first_backward_use(tensor)
            spans = [(uses[0].number, left), (max(left, back), context.last_use(tensor) + 1)]
        for first, last in spans:
            change[first] += tensor.nbytes
            change[last] -= tensor.nbytes
    held, found = context.network.resident_bytes, []
    for more in change:
        held += more
        found.append(held)
    for step in steps:
        choices = [context.machine.choices(call)[0].workspace_bytes for call in step.calls if call.choosable]
        found[step.number] += max(choices, default=0)
    return found


@dataclass(frozen=True)
class Leave(slots.Offload):
    """At the fullest step the map leaves that waits longest for its bytes, until every step fits."""

    name: ClassVar[str] = "my-offload"
    summary: ClassVar[str] = "the fullest steps are relieved"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> slots.Departures:
        starts, chosen, hopeless = begins(context), list[Tensor](), set[int]()

        def idle(tensor: Tensor) -> tuple[int, int]:
            """The steps between which no step uses it."""
            return context.last_forward_use(tensor), context.first_backward_use(tensor) - 1

        def slack(tensor: Tensor) -> float:
            """Seconds that the copies leave of the wait, for each byte."""
            first, last = idle(tensor)
            copies = sum(context.machine.copy_seconds(tensor.nbytes, way) for way in ("in", "out"))
            return (starts[last] - starts[first] - copies) / tensor.nbytes

        maps = sorted((tensor for tensor in context.maps_across() if tensor.managed), key=slack, reverse=True)
        while True:
            held = books(context, chosen)
            fullest = max((n for n in range(len(held)) if n not in hopeless), key=held.__getitem__)
            if held[fullest] <= context.budget:
                break
            waiting = (t for t in maps if t not in chosen and idle(t)[0] < fullest < idle(t)[1])
            if (tensor := next(waiting, None)) is None:
                hopeless.add(fullest)
            else:
                chosen.append(tensor)
        departures = slots.Departures()
        for tensor in chosen:
            written = context.last_forward_write(tensor, context.network.depth + 1)
            departures.add(max(1, written), tensor, "a step that it waits through is too full")
        return departures


@dataclass(frozen=True)
class Fetch(slots.Prefetch):
    """Each copy begins as late as it can and still be over in time, and no earlier than there is room."""

    name: ClassVar[str] = "my-prefetch"
    summary: ClassVar[str] = "as late as the seconds allow, where there is room"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Fetching:
        return Fetching(context)


class Fetching:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        starts, depth = begins(context), context.network.depth
        maps = [tensor for tensor, fate in context.fates.items() if fate.name == "offload"]
        in_time: dict[Tensor, int] = {}
        free = starts[-1]  # until then the link is free, seen from the end
        for tensor in sorted(maps, key=context.first_backward_use, reverse=True):
            needed = starts[context.first_backward_use(tensor) - 1]
            free = min(free, needed) - context.machine.copy_seconds(tensor.nbytes, "in")
            in_time[tensor] = max((n for n in range(depth, len(starts)) if starts[n] <= free), default=depth) + 1
        held = books(context, maps)
        self.asked: list[tuple[int, int, Tensor]] = []
        for tensor in sorted(maps, key=context.first_backward_use):
            use = number = context.first_backward_use(tensor)
            while number > in_time[tensor] and held[number - 1] + tensor.nbytes <= context.budget:
                number -= 1
                held[number] += tensor.nbytes
            self.asked.append((number, use, tensor))

    def due(self, step: Step) -> Sequence[Tensor]:
        """A map is asked for again at each step until there is a hole for it."""
        return [tensor for first, use, tensor in self.asked if first <= step.number <= use]


offload, prefetch = Leave(), Fetch()

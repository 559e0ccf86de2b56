"""A solution of lab A5: as few maps as the budget asks for, and copies back that begin as late as the seconds allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor


@dataclass(frozen=True)
class Leave(slots.Offload):
    """The maps that wait longest, until what is left fits."""

    name: ClassVar[str] = "my-offload"
    summary: ClassVar[str] = "as few maps as the budget asks for"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Leaving:
        return Leaving(context)


class Leaving:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context
        waiting = [t for t in context.maps_across() if t.managed and self.gap(t) > 2]
        waiting.sort(key=lambda t: -self.gap(t))
        self.chosen: dict[Tensor, int] = {}
        for tensor in waiting:
            if self.highest() <= 0.9 * context.budget:
                break
            self.chosen[tensor] = max(1, context.last_forward_write(tensor, context.network.depth + 1))

    def gap(self, tensor: Tensor) -> int:
        return self.context.first_backward_use(tensor) - self.context.last_forward_use(tensor)

    def highest(self) -> int:
        """The most bytes that a step finds on the device, if the chosen maps are away while no step uses them."""
        context, steps = self.context, self.context.network.steps
        change = [0] * (len(steps) + 2)
        for tensor, uses in context.uses.items():
            if not uses:
                continue
            begin, end = (uses[0].number, context.last_use(tensor) + 1)
            spans = [(begin, end)]
            if tensor in self.chosen:
                spans = [(begin, context.last_forward_use(tensor) + 1), (context.first_backward_use(tensor) - 1, end)]
            for first, last in spans:
                change[first] += tensor.nbytes
                change[last] -= tensor.nbytes
        most = held = context.network.resident_bytes
        for bytes_more in change:
            held += bytes_more
            most = max(most, held)
        return most

    def offloads(self) -> Mapping[Tensor, str]:
        return dict.fromkeys(self.chosen, "the budget asks for it, and it waits long")

    def leaves(self, step: Step) -> Sequence[Tensor]:
        return [tensor for tensor, number in self.chosen.items() if number == step.number]


@dataclass(frozen=True)
class Fetch(slots.Prefetch):
    """Each copy begins as late as it can and still be over in time, one after another."""

    name: ClassVar[str] = "my-prefetch"
    summary: ClassVar[str] = "as late as the seconds allow"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Fetching:
        return Fetching(context)


class Fetching:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        machine, steps, first = context.machine, context.network.steps, context.network.depth
        begins, now = [], 0.0  # of every step, in seconds
        for step in steps:
            begins.append(now)
            now += sum(machine.seconds(call) for call in step.calls)
        maps = [tensor for tensor, fate in context.fates.items() if fate.name == "offload"]
        self.at: dict[int, list[Tensor]] = {}
        free = now  # until then the link is free, seen from the end
        for tensor in sorted(maps, key=lambda t: -context.first_backward_use(t)):
            needed = begins[context.first_backward_use(tensor) - 1]
            free = min(free, needed) - machine.copy_seconds(tensor.nbytes, "in")
            number = max((n for n in range(first, len(steps)) if begins[n] <= free), default=first) + 1
            self.at.setdefault(min(number, context.first_backward_use(tensor)), []).append(tensor)

    def due(self, step: Step) -> Sequence[Tensor]:
        return self.at.get(step.number, ())


offload, prefetch = Leave(), Fetch()

"""A solution of lab A3: outputs of cheap layers are rebuilt; the tensor whose next use is the farthest is evicted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Layer, Step, Tensor


@dataclass(frozen=True)
class Rebuild(slots.Recompute):
    """Outputs of cheap layers are dropped; what is rebuilt stays until its last use."""

    name: ClassVar[str] = "my-recompute"
    summary: ClassVar[str] = "outputs of cheap layers are dropped"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> Rebuilding:
        return Rebuilding(context)


class Rebuilding:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context
        layers = context.network.layers
        self.cheap = {layer for layer in layers if layer.traits.work == "pass"}
        dear = {
            layer.y for layer in layers if layer.in_place and layer not in self.cheap
        }  # overwritten by a dear layer
        self.dropped: dict[Tensor, Layer] = {}
        for tensor in context.maps_across():
            made = context.producer(tensor)
            if made is not None and made.layer in self.cheap and tensor not in dear:
                self.dropped[tensor] = made.layer

    def drops(self) -> Mapping[Tensor, str]:
        return dict.fromkeys(self.dropped, "a cheap layer makes it")

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """The inputs of a rebuild that no rebuild makes, with every step that may start one."""
        found: dict[Tensor, list[int]] = {}
        for step in self.context.network.steps[self.context.network.depth :]:
            for tensor in (*step.reads, *step.updates):
                if tensor in self.dropped:
                    for layer in self.path(tensor):
                        for x in layer.inputs:
                            if x not in self.dropped and x.managed and step.number not in found.setdefault(x, []):
                                found[x].append(step.number)
        return found

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return tensor in self.dropped

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """From the checkpoint on; the planner skips the layers whose maps are on the device."""
        path = self.path(tensor, step)
        return [(layer.forward, ()) for layer in sorted(path, key=lambda layer: layer.forward.number)]

    def path(self, tensor: Tensor, step: Step | None = None) -> list[Layer]:
        """The cheap layers that make a map from checkpoints; those that change it in place, too."""
        before = step.number if step is not None else self.context.network.depth + 1
        last = self.context.network.steps[self.context.last_forward_write(tensor, before) - 1].layer
        found: list[Layer] = []
        waiting = [last]
        while waiting:
            layer = waiting.pop()
            if layer in self.cheap and layer not in found:
                found.append(layer)
                waiting += layer.producers
        return found


@dataclass(frozen=True)
class Evict(slots.Cache):
    """The tensor whose next use is the farthest goes first (Belady)."""

    name: ClassVar[str] = "my-cache"
    summary: ClassVar[str] = "what is used last goes first"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"eviction", "offload"})

    def bind(self, context: Context) -> Evicting:
        return Evicting(context)


class Evicting:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.here: dict[Tensor, None] = {}  # in the order of arrival, so that ties are broken alike each time

    def enter(self, tensor: Tensor) -> None:
        self.here[tensor] = None

    def leave(self, tensor: Tensor) -> None:
        self.here.pop(tensor, None)

    def touch(self, tensor: Tensor) -> None:
        pass

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return max((t for t in self.here if t not in locked), key=lambda t: self.next_use(t, now), default=None)

    def next_use(self, tensor: Tensor, now: int) -> int:
        """Number of the next step that uses the tensor, rebuilding from it included."""
        own = [step.number for step in self.context.uses[tensor] if step.number > now]
        rebuilds = [number for number in self.context.rebuilt_from.get(tensor, ()) if number > now]
        return min((*own, *rebuilds), default=1 << 30)


recompute, cache = Rebuild(), Evict()

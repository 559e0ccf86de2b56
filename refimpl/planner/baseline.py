"""The modules that do nothing, and the two simple kinds of liveness: what the preset `baseline` is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from refimpl.machine import Choice
from refimpl.network import Call, Step, Tensor
from refimpl.planner.context import PlanContext
from refimpl.planner.program import pinned_size
from refimpl.planner.slots import Feature

NOTHING: frozenset[Feature] = frozenset()


@dataclass(frozen=True)
class NoRecompute:
    """Every map is kept or offloaded; none is dropped."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "no map is dropped"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, context: PlanContext) -> NoRecompute:
        return self

    def drops(self) -> Mapping[Tensor, str]:
        return {}

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        return {}

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return False

    def chain(self, tensor: Tensor, step: Step) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        raise AssertionError(f"{tensor} is gone at {step}, and nothing rebuilds it")


@dataclass(frozen=True)
class NoOffload:
    """Every map stays on the device."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "no map leaves"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, context: PlanContext) -> NoOffload:
        return self

    def offloads(self) -> Mapping[Tensor, str]:
        return {}

    def leaves(self, step: Step) -> Sequence[Tensor]:
        return ()


@dataclass(frozen=True)
class NoPrefetch:
    """What left comes back when a step needs it, and that step waits."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "everything on demand"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING
    order: ClassVar[Literal["early", "late"]] = "late"

    def bind(self, context: PlanContext) -> NoPrefetch:
        return self

    def due(self, step: Step) -> Sequence[Tensor]:
        return ()


@dataclass(frozen=True)
class NoCache:
    """A failed allocation fails."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "nothing is evicted"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, context: PlanContext) -> NoCache:
        return self

    def enter(self, tensor: Tensor) -> None:
        pass

    def leave(self, tensor: Tensor) -> None:
        pass

    def touch(self, tensor: Tensor) -> None:
        pass

    def victim(self, locked: Collection[Tensor]) -> Tensor | None:
        return None


class Releases:
    """Step → what is released behind it; the answer of both kinds of liveness."""

    def __init__(self) -> None:
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)

    def add(self, number: int, tensor: Tensor) -> None:
        if tensor not in self._at[number]:
            self._at[number].append(tensor)

    def dead(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())


@dataclass(frozen=True)
class NetworkWide:
    """Maps stay for the whole iteration, as if allocated once; gradients (weights' too) go after their last use."""

    name: ClassVar[str] = "network-wide"
    summary: ClassVar[str] = "every map stays for the whole iteration; gradients go after their last use"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, context: PlanContext) -> Releases:
        releases = Releases()
        for tensor, uses in context.uses.items():
            if tensor.kind in ("gradient map", "weight gradient"):
                releases.add(uses[-1].number, tensor)
        return releases


@dataclass(frozen=True)
class LayerWise:
    """Every tensor goes after its last use; one that is offloaded or dropped, also after its last forward use."""

    name: ClassVar[str] = "layer-wise"
    summary: ClassVar[str] = "every tensor goes after its last use"
    needs: ClassVar = NOTHING
    offers: ClassVar[frozenset[Feature]] = frozenset({"release"})

    def bind(self, context: PlanContext) -> Releases:
        releases = Releases()
        for tensor, uses in context.uses.items():
            if not uses:
                continue
            if tensor in context.fates:
                releases.add(context.last_forward_use(tensor), tensor)
            releases.add(context.last_use(tensor), tensor)
        return releases


@dataclass(frozen=True)
class MemoryOptimal:
    """The algorithm with the least workspace; of several such the fastest."""

    name: ClassVar[str] = "memory"
    summary: ClassVar[str] = "the least workspace, and the fastest algorithm with that"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, context: PlanContext) -> MemoryChooser:
        return MemoryChooser(context)


class MemoryChooser:
    def __init__(self, context: PlanContext) -> None:
        self._choices = context.machine.choices

    def choose(self, step: Step, call: Call, largest_hole: int) -> Choice:
        return min(self._choices(call), key=lambda choice: (choice.workspace_bytes, choice.seconds))


@dataclass(frozen=True)
class PerformanceOptimal:
    """The fastest algorithm, whatever its workspace."""

    name: ClassVar[str] = "performance"
    summary: ClassVar[str] = "the fastest algorithm, whatever its workspace"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, context: PlanContext) -> PerformanceChooser:
        return PerformanceChooser(context)


class PerformanceChooser:
    def __init__(self, context: PlanContext) -> None:
        self._choices = context.machine.choices

    def choose(self, step: Step, call: Call, largest_hole: int) -> Choice:
        return self._choices(call)[0]


@dataclass(frozen=True)
class FastestThatFits:
    """The fastest algorithm whose workspace fits the largest hole; where none does, the one with the least."""

    name: ClassVar[str] = "fastest-that-fits"
    summary: ClassVar[str] = "the fastest algorithm whose workspace fits what is free"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, context: PlanContext) -> FittingChooser:
        return FittingChooser(context)


class FittingChooser:
    def __init__(self, context: PlanContext) -> None:
        self._choices = context.machine.choices

    def choose(self, step: Step, call: Call, largest_hole: int) -> Choice:
        choices = self._choices(call)  # the fastest first
        for choice in choices:
            if choice.workspace_bytes <= largest_hole:
                return choice
        return min(choices, key=lambda choice: choice.workspace_bytes)  # the planner makes room, or says what misses


class Uncompressed:
    """The answers of a pinned memory without a limit, whose maps are left as they are."""

    limit: int | None = None

    def compressed_bytes(self, tensor: Tensor, step: Step) -> int | None:
        return None

    def emptied(self, tensor: Tensor) -> None:
        pass

    def wanted(self, step: Step) -> Iterable[Tensor]:
        return ()


@dataclass(frozen=True)
class BufferAMap:
    """One pinned buffer for every map that leaves, for the whole run."""

    compresses: ClassVar[bool] = False
    name: ClassVar[str] = "buffer-a-map"
    summary: ClassVar[str] = "one pinned buffer a map, for the whole run"
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, context: PlanContext) -> Buffers:
        return Buffers()


class Buffers(Uncompressed):
    def __init__(self) -> None:
        self.nbytes = 0

    def place(self, tensor: Tensor) -> int:
        address = self.nbytes
        self.nbytes += pinned_size(tensor.nbytes)
        return address

    def fetched(self, tensor: Tensor) -> bool:
        return False

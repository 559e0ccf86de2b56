"""The modules of the preset `baseline`, most of which do nothing, and what several papers build theirs from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory.tiers import HOST, pinned_size
from refimpl.network import Step, Tensor
from refimpl.slots import questions as slots
from refimpl.slots.context import Context


class Departures:
    """Step → the maps that leave after it: the bound object of an offload that knows them all beforehand."""

    def __init__(self) -> None:
        self._reasons: dict[Tensor, str] = {}
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)

    def add(self, number: int, tensor: Tensor, reason: str) -> None:
        self._reasons[tensor] = reason
        self._at[number].append(tensor)

    def offloads(self) -> Mapping[Tensor, str]:
        return self._reasons

    def leaves(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())


class Releases:
    """Step → the tensors that are released after it: the bound object of both kinds of liveness."""

    def __init__(self) -> None:
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)

    def add(self, number: int, tensor: Tensor) -> None:
        if tensor not in self._at[number]:
            self._at[number].append(tensor)

    def dead(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())


@dataclass(frozen=True)
class LayerWise(slots.Liveness):
    """Every tensor goes after its last use; one that is offloaded or dropped, also after its last forward use."""

    name: ClassVar[str] = "layer-wise"
    summary: ClassVar[str] = "every tensor goes after its last use"
    offers: ClassVar = frozenset({"release"})

    def bind(self, context: Context) -> Releases:
        releases = Releases()
        for tensor, uses in context.uses.items():
            if not uses:
                continue
            if tensor in context.fates:
                releases.add(context.last_forward_use(tensor), tensor)
            releases.add(context.last_use(tensor), tensor)
        return releases


class PinnedPlaces:
    """One buffer a map, side by side, in the first tier with room for it; `limits` in the order of preference."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = limits
        self._taken = dict.fromkeys(limits, 0)

    def place(self, tensor: Tensor) -> slots.Place | None:
        nbytes = pinned_size(tensor.nbytes)
        for tier, address in self._taken.items():
            if address + nbytes <= self.limits[tier]:
                self._taken[tier] += nbytes
                return slots.Place(address, tier)
        return None

    def fetched(self, tensor: Tensor) -> bool:
        return False


@dataclass(frozen=True)
class BufferAMap(slots.Pinned):
    """One buffer for every offloaded map in the host's pinned memory, for the whole run."""

    name: ClassVar[str] = "buffer-a-map"
    summary: ClassVar[str] = "one pinned buffer a map, for the whole run"

    def bind(self, context: Context) -> PinnedPlaces:
        return PinnedPlaces({HOST: context.tiers[HOST]})


# -- the preset `baseline`: a first reader stops here ------------------------------------------------------------------


@dataclass(frozen=True)
class NoRecompute(slots.Recompute):
    """Every map is kept or offloaded; none is dropped."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "no map is dropped"

    def bind(self, context: Context) -> NoRecompute:
        return self

    def drops(self) -> Mapping[Tensor, str]:
        return {}

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        return {}

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return False

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        return ()


@dataclass(frozen=True)
class NoOffload(slots.Offload):
    """Every map stays on the device."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "no map is offloaded"

    def bind(self, context: Context) -> Departures:
        return Departures()


@dataclass(frozen=True)
class NoPrefetch(slots.Prefetch):
    """An offloaded map is copied in when a step needs it, and that step waits."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "everything on demand"

    def bind(self, context: Context) -> NoPrefetch:
        return self

    def due(self, step: Step) -> Sequence[Tensor]:
        return ()


@dataclass(frozen=True)
class NoCache(slots.Cache):
    """A failed allocation fails."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "nothing is evicted"

    def bind(self, context: Context) -> NoCache:
        return self

    def enter(self, tensor: Tensor) -> None:
        pass

    def leave(self, tensor: Tensor) -> None:
        pass

    def touch(self, tensor: Tensor) -> None:
        pass

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return None


@dataclass(frozen=True)
class NetworkWide(slots.Liveness):
    """Maps stay for the whole iteration, as if allocated once; gradients (weights' too) go after their last use.

    In a network as PyTorch runs it every tensor goes after its last use: that is what PyTorch does by itself.
    """

    name: ClassVar[str] = "network-wide"
    summary: ClassVar[str] = "every map stays for the whole iteration; gradients go after their last use"

    def bind(self, context: Context) -> Releases:
        if context.network.conventions.as_pytorch:
            return LayerWise().bind(context)
        releases = Releases()
        for tensor, uses in context.uses.items():
            if tensor.kind in ("gradient map", "weight gradient", "momentum"):
                releases.add(uses[-1].number, tensor)
        return releases


# -- for prefetches of the other papers --------------------------------------------------------------------------------


class Arrivals:
    """Step → the maps that are prefetched at it: the bound object of a prefetch that knows them all beforehand."""

    def __init__(self) -> None:
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)

    def add(self, number: int, tensor: Tensor) -> None:
        self._at[number].append(tensor)

    def due(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())

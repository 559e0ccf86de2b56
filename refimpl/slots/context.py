"""The context: the facts that are known before an iteration is run or planned; a module reads them when it is bound.

The network, the machine and the budget; which steps use which tensor; each map's fate, as far as it is decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from refimpl.memory import UNLIMITED
from refimpl.memory.tiers import HOST, pinned_size
from refimpl.network import Network, Step, Tensor
from refimpl.slots.errors import PinnedDoesNotFit, Room

if TYPE_CHECKING:
    from refimpl.machine import Machine

FateName = Literal["keep", "offload", "drop"]


@dataclass(frozen=True, slots=True)
class Fate:
    """Keep, offload or drop: what a map does between its last forward and its first backward use, and who chose it."""

    name: FateName
    module: str
    reason: str


class Context:
    """What a module may read.  Step numbers are positions: 1..N forward, N+1..2N backward."""

    def __init__(self, network: Network, machine: Machine, budget: int | None = None) -> None:
        self.network, self.machine = network, machine
        self.budget = machine.memory_bytes if budget is None else budget  #: bytes
        self.batch = network.given  #: their host copies are the user's, and always there
        self.uses = uses_of(network)  #: managed tensor → the steps that use it, in order
        self.results = results_of(network)
        #: Tier → bytes for maps, the preferred tier first; the host's without the batch's and the results' buffers.
        self.tiers = {tier.name: UNLIMITED if tier.nbytes is None else tier.nbytes for tier in machine.tiers}
        fixed = sum(pinned_size(tensor.nbytes) for tensor in (*self.batch, *self.results))
        if self.tiers[HOST] < fixed:
            room = Room(HOST, self.tiers[HOST], self.tiers[HOST], self.tiers[HOST])
            raise PinnedDoesNotFit.of(None, "the batch and the results", fixed, [room])
        if self.tiers[HOST] < UNLIMITED:
            self.tiers[HOST] -= fixed
        #: Maps that do not stay → their fate.  Filled while the modules are bound.
        self.fates: dict[Tensor, Fate] = {}
        #: Checkpoint → the backward steps that rebuild something from it.  Filled when `recompute` has been bound.
        self.rebuilt_from: dict[Tensor, Sequence[int]] = {}

    def decide(self, name: FateName, module: str, chosen: Mapping[Tensor, str]) -> None:
        """Give maps a fate; a map that has a fate already keeps it.

        Args:
            name: the fate.
            module: the module that chose it.
            chosen: map → the reason.
        """
        for tensor, reason in chosen.items():
            self.fates.setdefault(tensor, Fate(name, module, reason))

    def is_dropped(self, tensor: Tensor) -> bool:
        return tensor in self.fates and self.fates[tensor].name == "drop"

    def is_offloaded(self, tensor: Tensor) -> bool:
        return tensor in self.fates and self.fates[tensor].name == "offload"

    def producer(self, tensor: Tensor) -> Step | None:
        """The step that first writes the tensor; None for the input batch."""
        return None if tensor.kind == "input" else self.uses[tensor][0]

    def last_forward_use(self, tensor: Tensor) -> int:
        """Number of the last forward step that uses the tensor; 0 if none does."""
        return last_forward_uses(self.network)[tensor]

    def last_forward_write(self, tensor: Tensor, before: int) -> int:
        """Number of the last forward step before step `before` that writes the tensor or changes it in place."""
        made = [s.number for s in self.uses[tensor] if s.forward and tensor in (*s.writes, *s.updates)]
        return max((number for number in made if number < before), default=0)

    def first_backward_use(self, tensor: Tensor) -> int:
        """Number of the first backward step that uses the tensor, rebuilding from it included; 0 if none does."""
        used = next((step.number for step in self.uses[tensor] if not step.forward), 0)
        return min((number for number in (used, *self.rebuilt_from.get(tensor, ())) if number), default=0)

    def last_use(self, tensor: Tensor) -> int:
        """Number of the last step that uses the tensor, rebuilding from it included; 0 if none does."""
        uses = self.uses[tensor]
        return max(uses[-1].number if uses else 0, max(self.rebuilt_from.get(tensor, ()), default=0))

    def maps_across(self) -> list[Tensor]:
        """Every map (the input batch too) that both forward and backward steps use: the maps that have a fate.

        A rebuild from a map is a use of it.
        """
        crossing = []
        for tensor, uses in self.uses.items():
            used_backward = uses and (not uses[-1].forward or tensor in self.rebuilt_from)
            if tensor.kind in ("map", "input") and used_backward and uses[0].forward:
                crossing.append(tensor)
        return crossing


@lru_cache(maxsize=8)
def uses_of(network: Network) -> Mapping[Tensor, Sequence[Step]]:
    """Managed tensor → the steps that use it, in order."""
    uses: dict[Tensor, list[Step]] = {tensor: [] for tensor in network.managed}
    for step in network.steps:
        for tensor in step.uses:
            uses[tensor].append(step)
    return uses


@lru_cache(maxsize=8)
def last_forward_uses(network: Network) -> Mapping[Tensor, int]:
    """Managed tensor → the number of the last forward step that uses it; 0 if none does."""
    uses = uses_of(network)
    return {tensor: max((step.number for step in uses[tensor] if step.forward), default=0) for tensor in uses}


@lru_cache(maxsize=8)
def results_of(network: Network) -> Sequence[Tensor]:
    """The network's outputs that a call writes: they are copied to the host."""
    written = {tensor for step in network.steps for call in step.calls for tensor in call.writes}
    return tuple(tensor for tensor in network.results if tensor in written)

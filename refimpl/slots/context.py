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
from refimpl.slots.errors import PinnedDoesNotFit, Room, SetupError

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
        self.held: Mapping[Tensor, int] = {}  #: map → the last forward step in which the module's variables hold it
        if network.conventions.as_pytorch:
            from refimpl.network.operation_calls import held_until

            self.held = held_until(network.layers)
        self.uses = uses_of(network)  #: managed tensor → the steps that use it, in order
        self.results = results_of(network)
        #: Tier → bytes for maps, the preferred tier first; the host's without the batch's and the results' buffers.
        self.tiers = {tier.name: UNLIMITED if tier.nbytes is None else tier.nbytes for tier in machine.tiers}
        fixed = sum(pinned_size(tensor.nbytes) for tensor in (*network.on_host, *self.batch, *self.results))
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

        Raises:
            SetupError: it drops what nothing rebuilds.
        """
        for tensor, reason in chosen.items():
            if name == "drop" and not self.can_be_rebuilt(tensor):
                why = "it is the batch" if tensor.kind == "input" else "it is made of a map that is written over later"
                raise SetupError(f"{module}: {tensor} cannot be dropped, {why}; keep it or offload it")
            self.fates.setdefault(tensor, self.fate(name, module, reason, tensor))

    def fate(self, name: FateName, module: str, reason: str, tensor: Tensor) -> Fate:
        """A fate, whose reason says what a network's convention has made the tensor for."""
        why = self.network.reasons.get(tensor)
        return Fate(name, module, f"{reason}; {why}" if why else reason)

    def is_dropped(self, tensor: Tensor) -> bool:
        return tensor in self.fates and self.fates[tensor].name == "drop"

    def is_offloaded(self, tensor: Tensor) -> bool:
        return tensor in self.fates and self.fates[tensor].name == "offload"

    def producer(self, tensor: Tensor) -> Step | None:
        """The step that first writes the tensor; None for the input batch."""
        return None if tensor.kind == "input" else self.uses[tensor][0]

    def last_forward_use(self, tensor: Tensor) -> int:
        """Number of the last forward step that uses the tensor, or in which a variable holds it; 0 if none does."""
        return max(last_forward_uses(self.network)[tensor], self.held.get(tensor, 0))

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
        return max(uses[-1].number if uses else 0, self.held.get(tensor, 0), *self.rebuilt_from.get(tensor, ()))

    def can_be_rebuilt(self, tensor: Tensor) -> bool:
        """Whether a map may be dropped, and made by forward steps again: not the batch, nor what is `made_once`."""
        return tensor.kind != "input" and tensor not in made_once(self.network)

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
def made_once(network: Network) -> Mapping[Tensor, int]:
    """The maps whose steps cannot run again → the last backward step in which others may be rebuilt from them, or 0.

    A step that reads a map before a later one changes it in place comes before that one, and only once: afterwards it
    would read the new value.  So the maps that it makes stay, or leave with a copy.  The other steps that write to such
    a map would destroy it, and cannot run again either.
    """
    uses, waiting = uses_of(network), list[Step]()
    changed, found = set[Tensor](), set[Tensor]()
    for step in reversed(network.steps[: network.depth]):
        if not changed.isdisjoint(step.reads):
            waiting.append(step)
        changed.update(step.updates)
    while waiting:
        step = waiting.pop()
        for y in {*step.writes, *step.updates} - found:
            found.add(y)
            waiting += [writer for writer in uses[y] if writer.forward and y not in writer.reads]
    last = {step.layer: step.number for step in network.steps}  # a layer's backward may have several parts
    readers = {x: [last[step.layer] for step in uses[x] if step.forward and x in step.reads] for x in found}
    return {x: max(readers[x], default=0) for x in uses if x in found}


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

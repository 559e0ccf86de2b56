"""A setup: a module in every slot.  `setup.replace(offload=...)` exchanges one; combinations without sense are refused.

A setup is written as its differences from the baseline, which offloads, drops and evicts nothing:

    Setup("vdnn-all", offload=ALL, prefetch=WINDOW, liveness=LayerWise(), copy_streams="shared", join=True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from refimpl.memory import Allocator, BestFit
from refimpl.memory.tiers import HOST
from refimpl.slots import baseline
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import PerformanceOptimal
from refimpl.slots.errors import SetupError
from refimpl.slots.module_text import module_text, text_of
from refimpl.slots.planner_only import PoolSearch

if TYPE_CHECKING:
    from refimpl.machine import Machine
    from refimpl.network import Network

#: Slot → the base class of its modules, in the order in which modules are bound and shown.
BASES: dict[str, type] = {
    "recompute": slots.Recompute,
    "offload": slots.Offload,
    "liveness": slots.Liveness,
    "prefetch": slots.Prefetch,
    "cache": slots.Cache,
    "algorithms": slots.Algorithms,
    "allocator": Allocator,
    "pinned": slots.Pinned,
}
SLOTS = tuple(BASES)
FIELDS = (*SLOTS, "copy_streams", "join", "barrier", "seams")

#: Slot → module or its name → slot → module.  `refimpl.names.modules` puts its own here: this room knows no names.
by_name: Callable[[Mapping[str, Any]], dict[str, Any]] = dict


@dataclass(frozen=True)
class Setup:
    """A module in every slot, and what beside them is fixed; its defaults are the baseline's."""

    name: str
    recompute: slots.Recompute = baseline.NoRecompute()
    offload: slots.Offload = baseline.NoOffload()
    liveness: slots.Liveness = baseline.NetworkWide()
    prefetch: slots.Prefetch = baseline.NoPrefetch()
    cache: slots.Cache = baseline.NoCache()
    algorithms: slots.Algorithms = PerformanceOptimal()
    allocator: Allocator = BestFit()
    pinned: slots.Pinned = baseline.BufferAMap()
    #: "shared": one stream copies both ways; "separate": one each.
    copy_streams: Literal["shared", "separate"] = "separate"
    #: Whether all streams join at the end of a layer that moved something.
    join: bool = False
    #: Whether they join between forward and backward.
    barrier: bool = False
    #: Whether a layer's backward step is cut in parts where that spares memory (`refimpl.network.seams`).
    seams: bool = False
    #: The setup that this one was made from by `replace`; None for one that was given its name.
    origin: Setup | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for slot in SLOTS:
            check_kind(slot, getattr(self, slot))
        if self.copy_streams not in ("shared", "separate"):
            raise SetupError(f"copy_streams is {self.copy_streams!r}; write 'shared' or 'separate'")
        modules = {slot: getattr(self, slot) for slot in SLOTS if slot != "allocator"}
        offered = {feature for module in modules.values() for feature in module.offers}
        for slot, module in modules.items():
            if missing := {*module.needs} - offered:
                from refimpl.slots.answers import unmet

                raise unmet(slot, modules, missing)

    def module(self, slot: str) -> Any:
        """The module in a slot."""
        return getattr(self, slot)

    def replace(self, **modules: Any) -> Setup:
        """The same setup with some modules (or `copy_streams`, `join`, `barrier`, `seams`) exchanged.

        A module may be given by its name, as `--set` takes it: `setup.replace(recompute="speed-centric")`.  Without a
        new `name` it is named after this one and what differs, as in "vdnn-all, join=no".
        """
        for name in modules:
            if name not in (*FIELDS, "name"):
                raise SetupError(f"a setup has no slot {name!r}; it has {', '.join(FIELDS)}")
        if "name" in modules:
            return dataclasses.replace(self, origin=None, name=modules.pop("name"), **by_name(modules))
        modules = by_name(modules)
        origin = self.origin or self
        made = dataclasses.replace(self, origin=origin, **modules)
        differs = [name for name in FIELDS if getattr(made, name) != getattr(origin, name)]
        changed = [f"{name.replace('_', '-')}={made.shown(name)}" for name in differs]
        return dataclasses.replace(made, name=", ".join([origin.name, *changed]))

    def shown(self, name: str) -> str:
        """A slot's module, or another field, as `--set` takes it."""
        return module_text(getattr(self, name)) if name in SLOTS else text_of(getattr(self, name))

    @property
    def preset(self) -> str:
        """The name without what was changed."""
        return (self.origin or self).name

    @property
    def slots(self) -> dict[str, str]:
        """Slot → its module, as `--set` takes it."""
        return {slot: module_text(self.module(slot)) for slot in SLOTS}

    # -- for the planner: a first reader stops here --------------------------------------------------------------------

    def cut(self, network: Network) -> Network:
        """The network in the steps that this setup plans."""
        if not self.seams:
            return network.whole or network
        from refimpl.network.seams import with_seams

        return with_seams(network)

    def check_tiers(self, machine: Machine) -> None:
        """Raise `SetupError` where maps move, and the machine has tiers that the module for `pinned` never uses."""
        others = [tier.name for tier in machine.tiers if tier.name != HOST]
        if others and not self.pinned.spans_tiers and "offload" in self.offload.offers | self.cache.offers:
            raise SetupError(
                f"pinned={self.pinned.name} uses the host's memory alone, and {machine.name} has other tiers "
                f"({', '.join(others)}); set pinned=superneurons-unified-pool, or leave them out"
            )

    @property
    def frugal(self) -> Setup:
        """The setup that decides whether a budget is enough; of a search, its candidate that needs least memory."""
        return self

    @property
    def quick(self) -> Setup:
        """The setup that a hint plans: this one; of a long search, one that tries fewer candidates."""
        if isinstance(self.allocator, PoolSearch):
            return dataclasses.replace(self, allocator=self.allocator.quick)
        return self

    @property
    def fixed_order(self) -> bool:
        """Whether an iteration's allocations are the same in every pool that they fit: no module follows the pool."""
        return not any(getattr(self, slot).follows_pool for slot in SLOTS if slot != "allocator")


def check_kind(slot: str, module: object) -> None:
    """Raise `SetupError` where `module` is not a module for `slot`."""
    if not isinstance(module, BASES[slot]) or not isinstance(getattr(module, "name", None), str):
        from refimpl.slots.answers import wrong_module

        raise wrong_module(slot, module, BASES)


#: Nothing is offloaded, dropped or evicted: a framework without a memory policy.
BASELINE = Setup("baseline")

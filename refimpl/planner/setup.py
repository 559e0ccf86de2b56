"""A setup: all slots filled.  `setup.replace(offload=...)` swaps one module; what makes no sense is refused at once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from refimpl.memory import Allocator
from refimpl.planner import slots

#: The slots, in the order in which their modules are bound and shown.
SLOTS = ("recompute", "offload", "liveness", "prefetch", "cache", "algorithms", "allocator", "pinned")


class SetupError(ValueError):
    """A combination of modules that makes no sense: one line that says which, and what would do."""


@dataclass(frozen=True)
class Setup:
    name: str
    recompute: slots.Recompute
    offload: slots.Offload
    liveness: slots.Liveness
    prefetch: slots.Prefetch
    cache: slots.Cache
    algorithms: slots.Algorithms
    allocator: Allocator
    pinned: slots.Pinned
    #: "shared": one stream copies both ways; "separate": one each.
    copy_streams: Literal["shared", "separate"] = "separate"
    #: Whether all streams join at the end of a layer that moved something.
    join: bool = False
    #: Whether they join between forward and backward.
    barrier: bool = False

    def __post_init__(self) -> None:
        offered = {feature for slot in SLOTS for feature in getattr(self.module(slot), "offers", ())}
        for slot in SLOTS:
            for feature in sorted(getattr(self.module(slot), "needs", ())):
                if feature not in offered:
                    raise SetupError(f"{slot}={self.module(slot).name} {WITHOUT[feature]}")

    def module(self, slot: str) -> Any:
        """The module in a slot."""
        return getattr(self, slot)

    def replace(self, **modules: Any) -> Setup:
        """The same setup with some modules (or `name`, `copy_streams`, `join`, `barrier`) exchanged."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in modules:
            if name not in known:
                raise SetupError(f"a setup has no slot {name!r}; there are {', '.join(SLOTS)}")
        return dataclasses.replace(self, **modules)

    @property
    def slots(self) -> dict[str, str]:
        """Slot → name of its module."""
        return {slot: self.module(slot).name for slot in SLOTS}


WITHOUT = {
    "release": "needs a liveness that releases tensors in between; set liveness=layer-wise",
    "offload": "brings back what an offload took away; set an offload, or prefetch=none",
    "rebuild": "needs a recompute that can rebuild what is dropped; set a recompute",
    "eviction": "needs a cache that can evict; set a cache",
}

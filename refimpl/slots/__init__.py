"""Everything that you write a module of your own with: each slot's base class, its protocol, helpers.

`MODULES` are those of this project, by slot and name: `slots.MODULES["prefetch"]["vdnn-window"]`.

A module is a frozen dataclass, a subclass of its slot's base class, with a `name` and a `summary`; its `bind` returns
an object that answers the protocol's questions for one plan.  Some such objects are here: `Departures` for an offload
that knows all its maps beforehand, `LastConsumerSends` for one that chooses layers by their inputs, `Releases` for a
liveness.  `Window` is a whole prefetch: the search of vDNN's Figure 10.
"""

from __future__ import annotations

from typing import Any

from refimpl.memory import Allocator, Pool
from refimpl.slots.algorithms import ByWorkspace
from refimpl.slots.baseline import Departures, PinnedPlaces, Releases
from refimpl.slots.last_consumer import LastConsumerSends
from refimpl.slots.planner_only import BoundStore, Codec
from refimpl.slots.questions import (
    Algorithms,
    BoundAlgorithms,
    BoundCache,
    BoundLiveness,
    BoundOffload,
    BoundPinned,
    BoundPrefetch,
    BoundRecompute,
    Cache,
    Feature,
    Liveness,
    Module,
    Offload,
    Pinned,
    Place,
    Prefetch,
    Recompute,
)
from refimpl.slots.window import Window

__all__ = [
    "MODULES", "Algorithms", "Allocator", "BoundAlgorithms", "BoundCache", "BoundLiveness", "BoundOffload",
    "BoundPinned", "BoundPrefetch", "BoundRecompute", "BoundStore", "ByWorkspace", "Cache", "Codec", "Departures",
    "Feature", "LastConsumerSends", "Liveness", "Module", "Offload", "Pinned", "PinnedPlaces", "Place", "Pool",
    "Prefetch", "Recompute", "Releases", "Window",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`MODULES` are the names' room's, which imports this one."""
    if name == "MODULES":
        from refimpl.names.modules import MODULES

        return MODULES
    raise AttributeError(f"refimpl.slots has no {name!r}")

"""Everything that you write a module of your own with: each slot's base class, its protocol, helpers.

`MODULES` are those of this project, by slot and name: `slots.MODULES["prefetch"]["vdnn-window"]`.

A module is a frozen dataclass, a subclass of its slot's base class, with a `name` and a `summary`; its `bind` returns
an object that answers the protocol's questions for one plan.
"""

from refimpl.memory import Allocator, Pool
from refimpl.names.modules import MODULES
from refimpl.planner.baseline import Buffers, ByWorkspace, Releases
from refimpl.planner.slots import (
    Algorithms,
    BoundAlgorithms,
    BoundCache,
    BoundCompression,
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

__all__ = [
    "MODULES", "Algorithms", "Allocator", "BoundAlgorithms", "BoundCache", "BoundCompression", "BoundLiveness",
    "BoundOffload", "BoundPinned", "BoundPrefetch", "BoundRecompute", "Buffers", "ByWorkspace", "Cache", "Feature",
    "Liveness", "Module", "Offload", "Pinned", "Place", "Pool", "Prefetch", "Recompute", "Releases",
]  # fmt: skip

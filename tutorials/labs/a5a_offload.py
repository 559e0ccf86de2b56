"""Lab A5: an Offload and a Prefetch of your own.  About four hours; after notebook 03.

vDNN offloads the inputs of all layers of some kinds, and prefetches by a window of layers.  It moves more than the
budget asks for, and looks at layers where it should look at seconds.  Do better.

What to write
    `Leave`: which maps are offloaded, and after which step each begins to leave.
    `Fetch`: which maps begin to come back while a step runs.
The names `offload` and `prefetch` at the end are what the tests take.  The other slots are the lab's: layer-wise
liveness, the fastest algorithms that fit once copies out are done, one stream for copies both ways, no join; addresses
are fixed last, so bytes decide what fits, and no holes.

What to know
    docs/slots/offload.md and docs/slots/prefetch.md.  `context.maps_across()` are the maps that forward and backward
    both use; `context.last_forward_use(t)` and `context.first_backward_use(t)` are numbers of steps.  A map must have
    left after its last forward use; a copy may begin once its last writer has run.  `context.budget` are the bytes;
    `context.machine.copy_seconds(nbytes, "in")` and `.seconds(call)` are the model's times.

Steps
    1. Offload every map that waits at least two steps.  Prefetch nothing: it fits, and stalls.
    2. Prefetch each map a fixed number of steps ahead.
    3. Ahead by time: a copy begins as late as the seconds of the steps before its use allow, one copy after another.
    4. Offload no more than the budget asks for, and first the maps that wait longest.

Test it: pytest tutorials/labs/test_a5.py --submission my_modules.py
    This skeleton                                                            0: it fits nothing
    Every map, none prefetched                                               99
    As few maps as the budget asks for, none prefetched                      100
    The same, ahead by time, whether there is room or not                    86: one case does not fit
    The fullest steps are relieved, ahead by time where there is room        100
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor


@dataclass(frozen=True)
class Leave(slots.Offload):
    """Which maps are offloaded, and when."""

    name: ClassVar[str] = "my-offload"
    summary: ClassVar[str] = "some maps leave"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Leaving:
        return Leaving(context)


class Leaving:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def offloads(self) -> Mapping[Tensor, str]:
        """Every map to be offloaded, and the reason."""
        return {}  # yours

    def leaves(self, step: Step) -> Sequence[Tensor]:
        """The maps whose copy out begins after the launches of this step."""
        return ()  # yours


@dataclass(frozen=True)
class Fetch(slots.Prefetch):
    """Which maps come back while a step runs."""

    name: ClassVar[str] = "my-prefetch"
    summary: ClassVar[str] = "maps come back in time"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Fetching:
        return Fetching(context)


class Fetching:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def due(self, step: Step) -> Sequence[Tensor]:
        """The maps to copy in now."""
        return ()  # yours


offload, prefetch = Leave(), Fetch()

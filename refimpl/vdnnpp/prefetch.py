"""vDNN++'s prefetch (§1): `findPrefetchLayer` of the authors' public code, and the layers that call it.

What a call does is vDNN's search (`refimpl.slots.window`): the nearest layer that offloaded its input and has no
prefetch yet; a CONV ends the search.  Two things are vDNN++'s:

- Every layer's backward calls it but a ReLU's, which the authors' code takes as part of the layer before, and a
  softmax's.  A POOL's does too, and that of kinds that the authors' code did not know (ours).
- No join follows.  The layer that reads the map waits for its copy, not the layer that prefetched it.

The authors' code allocates the map before the layer's own dX.  `WINDOW_LATE` allocates dX first, for the study of
fragmentation.

A POOL that searches holds the next CONV's X beside its own X, Y and dX: that takes memory, and gives the copy more
time.  As we read vDNN, its POOLs do not search: only so does it fit VGG-16 with 256 images into 12 GiB.
`WINDOW_NO_POOL` is that search, so that the two papers can be compared under the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.network.kinds import LayerKind
from refimpl.slots.window import Window


@dataclass(frozen=True)
class FindPrefetchLayer(Window):
    """At every backward but a ReLU's and a softmax's: the map of the nearest layer that offloaded."""

    name: str = "vdnnpp-window"
    summary: str = "vDNN's search, at every layer but ReLU and softmax; before dX"
    silent: tuple[LayerKind, ...] = ("relu", "softmax")


WINDOW = FindPrefetchLayer()
WINDOW_NO_POOL = FindPrefetchLayer(
    "vdnnpp-window-no-pool", "vDNN's search, at every layer but POOL, as vdnn-window; before dX", ("pool",)
)
WINDOW_LATE = FindPrefetchLayer(
    "vdnnpp-window-late", "the same search; dX is allocated before the map", order="between"
)

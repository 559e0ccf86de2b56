"""vDNN++'s release: no join at a layer's end (§1).

In vDNN a layer ends when its kernels *and* its copies have ended, so that its input can be freed there and then: where
a copy takes longer the GPU waits.  vDNN++ lets the next layer start as soon as the kernels are done, and frees a map
when both its last reader and its copy are done.  The only back-pressure is memory: an allocation that does not fit
waits for the oldest copy still running.  Between forward and backward all copies out are done.

The planner's release has these two phases for everybody, and makes no other wait than the bytes need.  So this module
is no code that waits: it is a set-up without vDNN's join, with a barrier between forward and backward, and a prefetch
that searches as vDNN's does.  The two formulas are what that does to a chain of layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.vdnn.prefetch import Window

#: The search is vDNN's, and every layer's backward makes it; a ReLU is part of the layer before it.
WINDOW = Window("vdnnpp-window", "vDNN's search, at every layer but ReLU and softmax; before dX", ("relu", "softmax"))
WINDOW_LATE = Window(
    "vdnnpp-window-late", "the same search; dX is allocated before what comes back", ("relu", "softmax"), "between"
)


def with_join(compute: Sequence[float], copies: Sequence[float]) -> float:
    """Seconds of vDNN's forward: every layer takes as long as its kernels or its copy, whichever is longer."""
    return sum(map(max, compute, copies))


def without_join(compute: Sequence[float], copies: Sequence[float]) -> float:
    """Seconds of vDNN++'s forward with memory enough: a copy starts when its layer does and the copy before is done."""
    computed = copied = 0.0
    for seconds, copy in zip(compute, copies, strict=True):
        copied = max(copied, computed) + copy
        computed += seconds
    return max(computed, copied)

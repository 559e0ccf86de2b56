"""vDNN++'s release (§1): no join at a layer's end.

In vDNN a layer ends when its kernels *and* its copies have ended, so that its input can be freed at once: where a copy
takes longer, the GPU waits.  In vDNN++ the next layer starts as soon as the kernels are done, and a map's bytes serve
another one when both its last reader and its copy are done.  The only back-pressure is memory: an allocation that does
not fit otherwise waits for the oldest copy.  Between forward and backward all copies out are done.

The planner releases every tensor in these two phases, and places only the waits that the bytes need.  So there is no
module here: `presets.static` is a setup without vDNN's join and with a barrier between forward and backward.  The two
formulas are what that does to a chain of layers.
"""

from __future__ import annotations

from collections.abc import Sequence


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

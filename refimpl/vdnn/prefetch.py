"""vDNN's prefetch (§3.2, Figure 10): while a layer runs backward, the map of at most one earlier layer is copied in.

The search, `find_prefetch_layer` of the paper, is in `refimpl.planner.window`, where vDNN++ finds it too.  Which layers
make it?  Read literally, every layer's backward does, a POOL's too, which then holds the next CONV's X beside its own
X, Y and dX.  VGG-16 with 256 images would not fit 12 GiB that way, and that it fits is the paper's headline.  So by
default a POOL's backward does not search; the literal reading is a module of its own.
"""

from __future__ import annotations

from refimpl.planner.window import Window

WINDOW = Window("vdnn-window", "the nearest offloaded layer's map, no farther than the next CONV", ("pool",))
LITERAL = Window("vdnn-window-literal", "the same, and a POOL's backward searches too", ())

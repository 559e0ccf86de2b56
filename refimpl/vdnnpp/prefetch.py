"""vDNN++'s prefetch (§1): vDNN's search, made by every layer's backward but a ReLU's and a softmax's.

A ReLU is part of the layer before it in the authors' public code.  That code copies a map in before it allocates dX;
`WINDOW_LATE` allocates dX first, for the study of fragmentation.
"""

from __future__ import annotations

from refimpl.network.layer import LayerKind
from refimpl.planner.window import Window

SILENT: tuple[LayerKind, ...] = ("relu", "softmax")  #: kinds of layers whose backward does not search

WINDOW = Window("vdnnpp-window", "vDNN's search, at every layer but ReLU and softmax; before dX", SILENT)
WINDOW_LATE = Window("vdnnpp-window-late", "the same search; dX is allocated before the map", SILENT, "between")

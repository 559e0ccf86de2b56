"""Networks: layers, shapes, and which tensor each call reads and writes.

`Builder`, of every layer, is imported when it is first used: the papers' networks need `PapersBuilder` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refimpl.network.call import CHOOSABLE, Call, Setting
from refimpl.network.conventions import SUPERNEURONS, VDNN, VDNNPP, Conventions
from refimpl.network.layer import Layer, NetworkError, Output, Parameter, Step
from refimpl.network.network import Network
from refimpl.network.routes import depth_first
from refimpl.network.tensor import Kind, Tensor

if TYPE_CHECKING:
    from refimpl.network.later_layers import Builder

__all__ = [
    "CHOOSABLE", "SUPERNEURONS", "VDNN", "VDNNPP", "Builder", "Call", "Conventions", "Kind", "Layer", "Network",
    "NetworkError", "Output", "Parameter", "Setting", "Step", "Tensor", "accounting", "depth_first",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "Builder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from refimpl.network.later_layers import Builder

    return Builder

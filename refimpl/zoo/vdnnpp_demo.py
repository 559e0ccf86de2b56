"""The network on which vDNN++'s authors show its best case."""

from __future__ import annotations

from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import VDNNPP, Conventions
from refimpl.network.network import Network
from refimpl.network.parts import classified


def vdnnpp_demo(batch: int = 32, conventions: Conventions = VDNNPP) -> Network:
    """Short and long convolutions in turn: without a join, the 5×5 after a 1×1 hides the copy of the 1×1's input."""
    b = PapersBuilder("vdnnpp-demo", (batch, 3, 224, 224), conventions)
    b.conv(64, 3, pad=1, name="conv0")
    b.relu(name="relu0")
    for i in range(1, 6):
        for window in (1, 5):
            b.conv(64, window, pad=window // 2, name=f"conv{i}_{window}x{window}")
            b.relu(name=f"relu{i}_{window}x{window}")
    b.pool(2, name="pool")
    b.conv(3, 1, name="conv6")
    b.relu(name="relu6")
    return classified(b, 2)

"""VGG (Simonyan, Zisserman, 2014): five groups of 3×3 convolutions, each halved by a pooling, and three FC layers.

vDNN made model D deeper by 20, 40, 60 and 80 convolutions in each group, to have networks that no GPU of its day held.
"""

from __future__ import annotations

from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.layer import NetworkError
from refimpl.network.network import Network
from refimpl.network.parts import classified, of_depth, spelled

FILTERS = (64, 128, 256, 512, 512)

#: Depth → convolutions in each group.
GROUPS = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)} | {
    16 + 5 * more: tuple(convolutions + more for convolutions in (2, 2, 3, 3, 3)) for more in (20, 40, 60, 80)
}


def vgg(depth: int, batch: int = 32, conventions: Conventions = VDNN) -> Network:
    """VGG with `depth` layers with weights: 11, 16, 19, 116, 216, 316 or 416."""
    if depth not in GROUPS:
        raise NetworkError(f"there is no VGG {depth} layers deep; there are {', '.join(map(str, GROUPS))}")
    b = PapersBuilder(spelled(f"vgg{depth}", conventions), (batch, 3, conventions.side, conventions.side), conventions)
    for group, (filters, convolutions) in enumerate(zip(FILTERS, GROUPS[depth], strict=True), 1):
        for i in range(1, convolutions + 1):
            b.conv(filters, 3, pad=1, name=f"conv{group}_{i}")
            b.relu(name=f"relu{group}_{i}")
        b.pool(2, name=f"pool{group}")
    for i in (6, 7):
        b.fc(4096, name=f"fc{i}")
        b.relu(name=f"relu{i}")
        if conventions.dropout:
            b.dropout(name=f"drop{i}")
    return classified(b, 1000, "fc8")


vgg11 = of_depth(vgg, 11, 64, "Model A, the one convnet-benchmarks measured.")
vgg16 = of_depth(vgg, 16, 256, "Model D.")
vgg19 = of_depth(vgg, 19, 64, "Model E.")
vgg116 = of_depth(vgg, 116, 32, "VGG-16 and 20 convolutions more in each group.")
vgg216 = of_depth(vgg, 216, 32, "VGG-16 and 40 convolutions more in each group.")
vgg316 = of_depth(vgg, 316, 32, "VGG-16 and 60 convolutions more in each group.")
vgg416 = of_depth(vgg, 416, 32, "VGG-16 and 80 convolutions more in each group.")

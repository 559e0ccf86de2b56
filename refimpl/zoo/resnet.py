"""ResNet (He, Zhang, Ren, Sun, 2015) of bottleneck units, and the deep family that SuperNeurons trained.

A unit is three convolutions, 1×1, 3×3 and 1×1 with four times the filters, added to the unit's input.  The first unit
of a group changes the size: its shortcut is a convolution too.  Depth = 3 (n1 + n2 + n3 + n4) + 2, ni units in group i.
"""

from __future__ import annotations

from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.network import Network
from refimpl.network.parts import classified, conv_norm, conv_norm_relu, of_depth, spelled

FILTERS = (64, 128, 256, 512)

#: Depth → units in each group, of the paper's own networks.
STANDARD = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}

SHALLOWEST_DEEP = 3 * (6 + 32 + 1 + 6) + 2  #: of the deep family, 137


def units(depth: int) -> tuple[int, int, int, int]:
    """Units in each group.  Of the deep family n1 = 6, n2 = 32, n4 = 6, and n3 follows from the depth."""
    if depth in STANDARD:
        return STANDARD[depth]
    if isinstance(depth, int) and depth >= SHALLOWEST_DEEP and (depth - 2) % 3 == 0:
        return 6, 32, (depth - 2) // 3 - 44, 6
    raise NetworkError(
        f"there is no ResNet {depth} layers deep: give 50, 101, 152 or 134 + 3n; "
        f"the nearest are {' and '.join(map(str, nearest(depth)))}"
    )


def nearest(depth: float) -> list[int]:
    """The two valid depths nearest to an invalid one, the smaller first."""
    step = SHALLOWEST_DEEP + 3 * max(0, int((depth - SHALLOWEST_DEEP) // 3))
    return sorted(sorted({*STANDARD, step, step + 3}, key=lambda known: abs(known - depth))[:2])


def resnet(depth: int, batch: int = 16, conventions: Conventions = VDNN) -> Network:
    """3×224², batch normalisation after every convolution, no biases but the last layer's.

    With SuperNeurons' conventions 3×227², and then the first pooling is not padded: its maps are 56² either way.
    """
    groups = units(depth)
    name = f"resnet{depth}" if depth in STANDARD else f"resnet:{depth}"
    b = PapersBuilder(spelled(name, conventions), (batch, 3, conventions.side, conventions.side), conventions)
    conv_norm_relu(b, "conv1", 64, 7, stride=2, pad=3)
    x = b.pool(3, 2, pad=1 if conventions.side == 224 else 0, name="pool1")
    for group, (filters, count) in enumerate(zip(FILTERS, groups, strict=True), 2):
        for i in range(1, count + 1):
            stride = 2 if i == 1 and group > 2 else 1
            x = bottleneck(b, f"{group}_{i}", x, filters, stride, widen=i == 1)
    b.pool(x.shape[2], mode="average", name="average")
    return classified(b, 1000)


def bottleneck(b: PapersBuilder, name: str, x: Layer, filters: int, stride: int, widen: bool) -> Layer:
    """One unit; the shortcut comes first, as in SuperNeurons' route."""
    around = conv_norm(b, f"{name}.around", 4 * filters, 1, stride, after=x) if widen else x
    conv_norm_relu(b, f"{name}.conv1", filters, 1, stride, after=x)
    conv_norm_relu(b, f"{name}.conv2", filters, 3, pad=1)
    through = conv_norm(b, f"{name}.conv3", 4 * filters, 1)
    b.join(around, through, name=f"{name}.join")
    return b.relu(name=f"{name}.relu")


resnet50 = of_depth(resnet, 50, 32, "Groups of 3, 4, 6 and 3 units.")
resnet101 = of_depth(resnet, 101, 32, "Groups of 3, 4, 23 and 3 units.")
resnet152 = of_depth(resnet, 152, 32, "Groups of 3, 8, 36 and 3 units.")

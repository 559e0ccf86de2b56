"""ShuffleNet v2 (Ma, Zhang, Zheng, Sun, 2018): half of the channels pass a unit as they are, and then all are shuffled.

Sizes are torchvision's, which are the paper's.
"""

from __future__ import annotations

from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.later_layers import Builder
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.parts import classified, conv_norm, conv_norm_relu, spelled

Shape = tuple[int, int, int]

#: Channels and units of each stage.
STAGES = ((116, 4), (232, 8), (464, 4))


def shufflenet_v2(
    batch: int = 128, conventions: Conventions = VDNN, shape: Shape = (3, 224, 224), classes: int = 1000
) -> Network:
    """The paper's table 5, 1×."""
    b = Builder(spelled("shufflenet-v2", conventions), (batch, *shape), conventions)
    conv_norm_relu(b, "conv1", 24, 3, 2, pad=1)
    x = b.pool(3, 2, pad=1, name="pool1")
    for stage, (channels, units) in enumerate(STAGES, 2):
        for i in range(1, units + 1):
            x = _unit(b, f"{stage}_{i}", x, channels, stride=2 if i == 1 else 1)
    conv_norm_relu(b, "conv5", 1024, 1)
    b.global_pool(name="mean")
    return classified(b, classes)


def _unit(b: Builder, name: str, x: Layer, channels: int, stride: int) -> Layer:
    """With a stride both halves are filtered, each from all channels."""
    half = channels // 2
    if stride == 1:
        around = b.take(half, name=f"{name}.around", after=x)
        into = b.take(half, half, name=f"{name}.half", after=x)
    else:
        conv_norm(b, f"{name}.around.depthwise", x.shape[1], 3, stride, pad=1, groups=x.shape[1], after=x)
        around, into = conv_norm_relu(b, f"{name}.around.conv", half, 1), x
    conv_norm_relu(b, f"{name}.conv1", half, 1, after=into)
    conv_norm(b, f"{name}.depthwise", half, 3, stride, pad=1, groups=half)
    b.concat(around, conv_norm_relu(b, f"{name}.conv2", half, 1), name=f"{name}.concat")
    return b.channel_shuffle(2, name=f"{name}.shuffle")

"""RegNet Y (Radosavovic, Kosaraju, Girshick, He, Dollár, "Designing network design spaces", 2020): residual units whose
3×3 convolutions have groups of eight channels, and gates.

Sizes are torchvision's, which are the paper's.
"""

from __future__ import annotations

from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.later_layers import Builder
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.parts import classified, conv_norm, conv_norm_relu, spelled

Shape = tuple[int, int, int]
GROUP = 8  #: channels

#: Channels and units of each stage.
STAGES = ((48, 1), (104, 3), (208, 6), (440, 6))


def regnet_y_400mf(
    batch: int = 128, conventions: Conventions = VDNN, shape: Shape = (3, 224, 224), classes: int = 1000
) -> Network:
    """The one of 400 million multiply-adds."""
    b = Builder(spelled("regnet-y-400mf", conventions), (batch, *shape), conventions)
    x = conv_norm_relu(b, "conv1", 32, 3, 2, pad=1)
    for stage, (channels, units) in enumerate(STAGES, 2):
        for i in range(1, units + 1):
            x = _unit(b, f"{stage}_{i}", x, channels, stride=2 if i == 1 else 1)
    b.global_pool(name="mean")
    return classified(b, classes)


def _unit(b: Builder, name: str, x: Layer, channels: int, stride: int) -> Layer:
    """A gate is found from a quarter of the channels that the unit reads."""
    changes = stride > 1 or x.shape[1] != channels
    around = conv_norm(b, f"{name}.around", channels, 1, stride, after=x) if changes else x
    conv_norm_relu(b, f"{name}.conv1", channels, 1, after=x)
    wide = conv_norm_relu(b, f"{name}.conv2", channels, 3, stride, pad=1, groups=channels // GROUP)
    b.global_pool(name=f"{name}.mean")
    b.conv(round(x.shape[1] / 4), 1, name=f"{name}.squeeze")
    b.relu(name=f"{name}.squeeze.relu")
    b.conv(channels, 1, name=f"{name}.excite")
    b.mul(wide, b.sigmoid(name=f"{name}.excite.sigmoid"), name=f"{name}.gated")
    b.join(conv_norm(b, f"{name}.conv3", channels, 1), around, name=f"{name}.join")
    return b.relu(name=f"{name}.relu")

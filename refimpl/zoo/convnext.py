"""ConvNeXt (Liu, Mao, Wu, Feichtenhofer, Darrell, Xie, "A ConvNet for the 2020s", 2022), and a small one.

A block filters every channel on its own, 7×7, normalises every position over its channels, and has two linear layers
at every position, four times as wide between; a learnt number a channel scales the result, which is added to the
block's input.  Sizes and options are torchvision's, which are the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.later_layers import Builder
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.parts import classified, spelled

Shape = tuple[int, int, int]
EPSILON = 1e-6  #: of layer normalisation
DROPPED = 0.1  #: how often the last block is dropped; earlier ones less


def convnext_tiny(
    batch: int = 64, conventions: Conventions = VDNN, shape: Shape = (3, 224, 224), classes: int = 1000
) -> Network:
    """Stages of 3, 3, 9 and 3 blocks, 96 to 768 channels; later blocks are dropped more often, up to a tenth."""
    b = Builder(spelled("convnext-tiny", conventions), (batch, *shape), conventions)
    return _convnext(b, 4, (96, 192, 384, 768), (3, 3, 9, 3), 1e-6, EPSILON, classes)


def tiny_convnext(
    batch: int = 32, conventions: Conventions = VDNN, shape: Shape = (3, 32, 32), classes: int = 10
) -> Network:
    """Stages of two blocks, 16 and 32 channels.

    Its epsilon is larger: where an image is blank, as around a digit, all channels of a position are alike at first,
    and a normalisation by next to nothing would make gradients as large.
    """
    b = Builder(spelled("tiny-convnext", conventions), (batch, *shape), conventions)
    return _convnext(b, 2, (16, 32), (2, 2), 0.1, 0.01, classes)


def _convnext(
    b: Builder, patch: int, channels: Sequence[int], blocks: Sequence[int], scale: float, epsilon: float, classes: int
) -> Network:
    """The first layer has patches of this size; `scale` is what a block's scales begin as."""
    b.conv(channels[0], patch, patch, name="patches")
    x, done = b.layernorm(epsilon, name="patches.norm"), 0
    for stage, (wide, count) in enumerate(zip(channels, blocks, strict=True), 1):
        if stage > 1:
            b.layernorm(epsilon, name=f"{stage}.norm")
            x = b.conv(wide, 2, 2, name=f"{stage}.halved")
        for i in range(1, count + 1):
            x = _block(b, f"{stage}_{i}", x, scale, epsilon, DROPPED * done / (sum(blocks) - 1))
            done += 1
    b.global_pool(name="mean")
    b.layernorm(epsilon, name="norm")
    return classified(b, classes)


def _block(b: Builder, name: str, x: Layer, scale: float, epsilon: float, dropped: float) -> Layer:
    channels = x.shape[1]
    b.conv(channels, 7, pad=3, groups=channels, name=f"{name}.depthwise", after=x)
    b.layernorm(epsilon, name=f"{name}.norm")
    b.conv(4 * channels, 1, name=f"{name}.widen")
    b.gelu(name=f"{name}.gelu")
    b.conv(channels, 1, name=f"{name}.narrow")
    through = b.scale(scale, name=f"{name}.scale")
    if dropped:
        through = b.drop_path(dropped, name=f"{name}.drop")
    return b.join(through, x, name=f"{name}.join")

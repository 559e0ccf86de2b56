"""Networks of inverted residual blocks whose channels have gates: MobileNetV3 and EfficientNet.

A block widens its input by a 1×1 convolution, filters every channel on its own, and narrows the result (Sandler and
others, "MobileNetV2", 2018).  Between the last two its channels are *squeezed* to their means, from which two small
layers find a gate for each: squeeze and excitation (Hu, Shen, Sun, 2018).  Sizes and options are torchvision's, which
are the papers' (Howard and others, "Searching for MobileNetV3", 2019; Tan and Le, "EfficientNet", 2019).
"""

from __future__ import annotations

from typing import NamedTuple

from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.later_layers import Builder
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.parts import classified, spelled

Shape = tuple[int, int, int]


class Style(NamedTuple):
    """What the blocks of a network have alike."""

    squeezed: str  #: the activation between the two small layers
    gate: str  #: the one after them
    momentum: float  #: of batch normalisation
    epsilon: float


class Inverted(NamedTuple):
    """An inverted residual block."""

    wide: int  #: channels of its middle
    filters: int  #: of its end
    window: int
    stride: int
    activation: str
    squeeze: int  #: channels between the two small layers; 0: there are no gates
    dropped: float = 0.0  #: the probability that an image takes the way around it alone (stochastic depth)


MOBILE = Style("relu", "hardsigmoid", 0.01, 1e-3)
EFFICIENT = Style("silu", "sigmoid", 0.1, 1e-5)


def _normed(b: Builder, style: Style, name: str, filters: int, window: int, stride: int = 1, groups: int = 1) -> Layer:
    """A convolution that keeps the size, or divides it by its stride, and batch normalisation."""
    b.conv(filters, window, stride, pad=window // 2, bias=False, name=name, groups=groups)
    return b.batchnorm(style.momentum, style.epsilon, name=f"{name}.norm")


def _activated(b: Builder, kind: str, name: str) -> Layer:
    made: Layer = getattr(b, kind)(name=f"{name}.{kind}")
    return made


def _block(b: Builder, style: Style, name: str, block: Inverted) -> Layer:
    """With a join around it where nothing changes its input's shape."""
    x = b.last
    if block.wide != x.shape[1]:
        _normed(b, style, f"{name}.expand", block.wide, 1)
        _activated(b, block.activation, f"{name}.expand")
    _normed(b, style, f"{name}.depthwise", block.wide, block.window, block.stride, groups=block.wide)
    wide = _activated(b, block.activation, f"{name}.depthwise")
    if block.squeeze:
        b.global_pool(name=f"{name}.mean")
        b.conv(block.squeeze, 1, name=f"{name}.squeeze")
        _activated(b, style.squeezed, f"{name}.squeeze")
        b.conv(block.wide, 1, name=f"{name}.excite")
        b.mul(wide, _activated(b, style.gate, f"{name}.excite"), name=f"{name}.gated")
    through = _normed(b, style, f"{name}.project", block.filters, 1)
    if through.shape != x.shape:
        return through
    if block.dropped:
        through = b.drop_path(block.dropped, name=f"{name}.drop")
    return b.join(through, x, name=f"{name}.join")


def eighths(channels: float) -> int:
    """The next multiple of 8, and not less than nine tenths of what was asked."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8


#: Channels of the middle, filters, window, stride, whether it is the later kind of activation, and gates.
MOBILENET_V3_SMALL = (
    (16, 16, 3, 2, False, True), (72, 24, 3, 2, False, False), (88, 24, 3, 1, False, False),
    (96, 40, 5, 2, True, True), (240, 40, 5, 1, True, True), (240, 40, 5, 1, True, True),
    (120, 48, 5, 1, True, True), (144, 48, 5, 1, True, True), (288, 96, 5, 2, True, True),
    (576, 96, 5, 1, True, True), (576, 96, 5, 1, True, True),
)  # fmt: skip


def mobilenet_v3_small(
    batch: int = 128, conventions: Conventions = VDNN, shape: Shape = (3, 224, 224), classes: int = 1000
) -> Network:
    """The paper's table 2."""
    b = Builder(spelled("mobilenet-v3-small", conventions), (batch, *shape), conventions)
    _normed(b, MOBILE, "conv1", 16, 3, 2)
    _activated(b, "hardswish", "conv1")
    for i, (wide, filters, window, stride, later, gates) in enumerate(MOBILENET_V3_SMALL, 1):
        activation, squeeze = "hardswish" if later else "relu", eighths(wide // 4) if gates else 0
        _block(b, MOBILE, f"block{i}", Inverted(wide, filters, window, stride, activation, squeeze))
    _normed(b, MOBILE, "conv2", 576, 1)
    _activated(b, "hardswish", "conv2")
    b.global_pool(name="mean")
    b.fc(1024, name="fc1")
    _activated(b, "hardswish", "fc1")
    b.dropout(0.2, name="drop")
    return classified(b, classes, "fc2")


#: How many times wider, window, stride, filters, blocks; the stride is the first block's.
EFFICIENTNET_B0 = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)  # fmt: skip


def efficientnet_b0(
    batch: int = 64, conventions: Conventions = VDNN, shape: Shape = (3, 224, 224), classes: int = 1000
) -> Network:
    """The paper's table 1, with stochastic depth as torchvision has it."""
    b = Builder(spelled("efficientnet-b0", conventions), (batch, *shape), conventions)
    _normed(b, EFFICIENT, "conv1", 32, 3, 2)
    _activated(b, "silu", "conv1")
    _stages(b, EFFICIENTNET_B0, dropped=0.2)
    _normed(b, EFFICIENT, "conv2", 1280, 1)
    _activated(b, "silu", "conv2")
    b.global_pool(name="mean")
    b.dropout(0.2, name="drop")
    return classified(b, classes)


def _stages(b: Builder, stages: tuple[tuple[int, int, int, int, int], ...], dropped: float = 0.0) -> None:
    """A gate is found from a quarter of the channels that a block reads.

    The later a block, the likelier an image takes the way around it: with probability 0 for the first block, and nearly
    `dropped` for the last.
    """
    total, before = sum(blocks for *_, blocks in stages), 0
    for stage, (wider, window, first, filters, blocks) in enumerate(stages, 2):
        for i in range(1, blocks + 1):
            channels, stride = b.last.shape[1], first if i == 1 else 1
            squeeze, share = max(1, channels // 4), dropped * before / total
            block = Inverted(wider * channels, filters, window, stride, "silu", squeeze, share)
            _block(b, EFFICIENT, f"{stage}_{i}", block)
            before += 1


def tiny_se(batch: int = 32, conventions: Conventions = VDNN, shape: Shape = (3, 32, 32), classes: int = 10) -> Network:
    """Three blocks as EfficientNet has them, of 16 and 24 filters."""
    b = Builder(spelled("tiny-se", conventions), (batch, *shape), conventions)
    _normed(b, EFFICIENT, "conv1", 16, 3)
    _activated(b, "silu", "conv1")
    _stages(b, ((2, 3, 1, 16, 1), (2, 3, 2, 24, 2)))
    b.global_pool(name="mean")
    return classified(b, classes)

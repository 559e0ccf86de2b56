"""Networks with a class for every pixel: their maps shrink, grow again, and end as large as the image.

A U-Net (Ronneberger, Fischer, Brox, 2015) halves its maps and doubles them again, and every map on the way down is
read once more at the same size on the way up: these long connections wait for most of an iteration.  A fully
convolutional network (Long, Shelhamer, Darrell, 2015) classifies coarse maps, and enlarges the result.
"""

from __future__ import annotations

from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.later_layers import Builder
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.parts import conv_norm, conv_norm_relu, spelled
from refimpl.zoo.resnet import FILTERS, STANDARD

Shape = tuple[int, int, int]


def unet(batch: int = 16, conventions: Conventions = VDNN, shape: Shape = (3, 256, 256), classes: int = 2) -> Network:
    """Five sizes, 64 to 1024 filters.

    Unlike the paper's its convolutions are padded, so that maps that meet have one size, and are normalised.
    """
    return _unet(
        Builder(spelled("unet", conventions), (batch, *shape), conventions), (64, 128, 256, 512, 1024), classes
    )


def tiny_unet(
    batch: int = 32, conventions: Conventions = VDNN, shape: Shape = (3, 32, 32), classes: int = 11
) -> Network:
    """Three sizes, 16 to 64 filters."""
    return _unet(Builder(spelled("tiny-unet", conventions), (batch, *shape), conventions), (16, 32, 64), classes)


def _unet(b: Builder, filters: tuple[int, ...], classes: int) -> Network:
    """Two convolutions a size on either way, poolings down and transposed convolutions up."""
    skipped: list[Layer] = []
    for size, count in enumerate(filters, 1):
        if skipped:
            b.pool(2, name=f"down{size}")
        skipped.append(_two(b, f"{size}", count))
    for size, count in [*enumerate(filters, 1)][-2::-1]:
        up = b.conv_transpose(count, 2, 2, name=f"up{size}")
        b.concat(skipped[size - 1], up, name=f"concat{size}")
        _two(b, f"{size}.up", count)
    return _ended(b, b.conv(classes, 1, name="classes"))


def _two(b: Builder, name: str, filters: int) -> Layer:
    conv_norm_relu(b, f"{name}.conv1", filters, 3, pad=1)
    return conv_norm_relu(b, f"{name}.conv2", filters, 3, pad=1)


def _ended(b: Builder, logits: Layer) -> Network:
    b.pixel_softmax(name="softmax", after=logits)
    return b.build()


def fcn_resnet50(
    batch: int = 16, conventions: Conventions = VDNN, shape: Shape = (3, 256, 256), classes: int = 21
) -> Network:
    """ResNet-50 whose last two groups dilate their filters instead of halving the maps, and torchvision's head.

    Without the auxiliary end that torchvision's has.
    """
    b = Builder(spelled("fcn-resnet50", conventions), (batch, *shape), conventions)
    conv_norm_relu(b, "conv1", 64, 7, stride=2, pad=3)
    x = b.pool(3, 2, pad=1, name="pool1")
    for group, (filters, count) in enumerate(zip(FILTERS, STANDARD[50], strict=True), 2):
        for i in range(1, count + 1):
            dilation = {4: (1, 2), 5: (2, 4)}.get(group, (1, 1))[i > 1]  # a group's first unit has the group's before
            x = _unit(b, f"{group}_{i}", x, filters, 2 if (group, i) == (3, 1) else 1, dilation, widen=i == 1)
    conv_norm_relu(b, "head.conv", 512, 3, pad=1)
    b.dropout(0.1, name="head.drop")
    b.conv(classes, 1, name="head.classes")
    return _ended(b, b.upsample_to((shape[1], shape[2]), "bilinear", name="large"))


def _unit(b: Builder, name: str, x: Layer, filters: int, stride: int, dilation: int, widen: bool) -> Layer:
    """A bottleneck unit as torchvision has it: its stride and its dilation are the 3×3 convolution's."""
    around = conv_norm(b, f"{name}.around", 4 * filters, 1, stride, after=x) if widen else x
    conv_norm_relu(b, f"{name}.conv1", filters, 1, after=x)
    conv_norm_relu(b, f"{name}.conv2", filters, 3, stride, pad=dilation, dilation=dilation)
    through = conv_norm(b, f"{name}.conv3", 4 * filters, 1)
    b.join(around, through, name=f"{name}.join")
    return b.relu(name=f"{name}.relu")

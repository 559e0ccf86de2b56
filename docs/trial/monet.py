"""The five networks of MONeT's table as its code builds them: torchvision's, and a U-Net of its own.

    refimpl plan docs/trial/monet.py:unet --batch 11 --machine v100 --policy combined

Shapes are those of torchvision 0.6 and of utsaslab/MONeT, `models/unet` and `examples/check_runtime_original.py`.
Left out are dropout, GoogLeNet's two auxiliary ends, and the sum of the outputs that stands for a loss there.
"""

from __future__ import annotations

import refimpl
from refimpl import Builder
from refimpl.network import Layer, Network


def vgg16(batch: int) -> Network:
    """As the zoo has it."""
    return refimpl.networks.build("vgg16", batch)


def _conv(b: Builder, name: str, filters: int, window: int, stride: int = 1, after: Layer | None = None) -> Layer:
    """A convolution without a bias, batch normalisation and a ReLU."""
    b.conv(filters, window, stride, pad=window // 2, bias=False, name=name, after=after)
    b.batchnorm(name=f"{name}.norm")
    return b.relu(name=f"{name}.relu")


def _ended(b: Builder) -> Network:
    b.global_pool(name="average")
    b.fc(1000, name="fc")
    b.softmax(name="softmax")
    return b.build()


def resnet50(batch: int) -> Network:
    """The 3×3 convolution of a unit has the stride."""
    b = Builder("resnet50", (batch, 3, 224, 224))
    _conv(b, "conv1", 64, 7, 2)
    x = b.pool(3, 2, pad=1, name="pool1")
    for stage, (filters, units) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for i in range(units):
            name, stride, around = f"{stage}_{i + 1}", 2 if i == 0 and stage > 2 else 1, x
            if i == 0:
                b.conv(4 * filters, 1, stride, bias=False, name=f"{name}.around")
                around = b.batchnorm(name=f"{name}.around.norm")
            _conv(b, f"{name}.conv1", filters, 1, after=x)
            _conv(b, f"{name}.conv2", filters, 3, stride)
            b.conv(4 * filters, 1, bias=False, name=f"{name}.conv3")
            b.join(around, b.batchnorm(name=f"{name}.conv3.norm"), name=f"{name}.join")
            x = b.relu(name=f"{name}.relu")
    return _ended(b)


#: Filters of a module: 1×1; 1×1 and 3×3; 1×1 and 3×3 (the paper's 5×5); 1×1 after the pooling; and a pooling after it.
INCEPTION = (
    (64, 96, 128, 16, 32, 32, 0), (128, 128, 192, 32, 96, 64, 3), (192, 96, 208, 16, 48, 64, 0),
    (160, 112, 224, 24, 64, 64, 0), (128, 128, 256, 24, 64, 64, 0), (112, 144, 288, 32, 64, 64, 0),
    (256, 160, 320, 32, 128, 128, 2), (256, 160, 320, 32, 128, 128, 0), (384, 192, 384, 48, 128, 128, 0),
)  # fmt: skip


def googlenet(batch: int) -> Network:
    """Normalised, with 3×3 convolutions in place of 5×5."""
    b = Builder("googlenet", (batch, 3, 224, 224))
    _conv(b, "conv1", 64, 7, 2)
    b.pool(3, 2, ceil=True, name="pool1")
    _conv(b, "conv2", 64, 1)
    _conv(b, "conv3", 192, 3)
    x = b.pool(3, 2, ceil=True, name="pool2")
    for i, (one, reduced, three, narrow, five, pooled, window) in enumerate(INCEPTION, 3):
        first = _conv(b, f"{i}.1x1", one, 1, after=x)
        _conv(b, f"{i}.3x3.reduce", reduced, 1, after=x)
        second = _conv(b, f"{i}.3x3", three, 3)
        _conv(b, f"{i}.5x5.reduce", narrow, 1, after=x)
        third = _conv(b, f"{i}.5x5", five, 3)
        b.pool(3, 1, pad=1, name=f"{i}.pool", after=x)
        fourth = _conv(b, f"{i}.pool.1x1", pooled, 1)
        x = b.concat(first, second, third, fourth, name=f"{i}.concat")
        if window:
            x = b.pool(window, 2, ceil=True, name=f"pool{i}")
    return _ended(b)


def unet(batch: int) -> Network:
    """Maps of 416×608; on the way up they are repeated, which is what its adaptive pooling does."""
    b = Builder("unet", (batch, 3, 416, 608))
    skipped: list[Layer] = []
    for size, filters in enumerate((64, 128, 256, 512, 512), 1):
        if skipped:
            b.pool(2, name=f"down{size}")
        _biased(b, f"{size}.conv1", filters)
        skipped.append(_biased(b, f"{size}.conv2", filters))
    for size, filters in ((4, 256), (3, 128), (2, 64), (1, 64)):
        up = b.upsample(2, name=f"up{size}")
        x = b.concat(skipped[size - 1], up, name=f"concat{size}")
        _biased(b, f"{size}.up.conv1", x.shape[1] // 2)
        _biased(b, f"{size}.up.conv2", filters)
    b.conv(1, 1, name="class")
    b.binary_cross_entropy(name="loss")
    return b.build()


def _biased(b: Builder, name: str, filters: int) -> Layer:
    """A convolution with a bias, batch normalisation and a ReLU."""
    b.conv(filters, 3, pad=1, name=name)
    b.batchnorm(name=f"{name}.norm")
    return b.relu(name=f"{name}.relu")


#: How many times wider, filters, blocks, and the stride of the first one.
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenetv2(batch: int) -> Network:
    """Inverted residuals with ReLU6."""
    b = Builder("mobilenetv2", (batch, 3, 224, 224))

    def layer(name: str, filters: int, window: int, stride: int = 1, groups: int = 1) -> Layer:
        b.conv(filters, window, stride, pad=window // 2, bias=False, name=name, groups=groups)
        b.batchnorm(name=f"{name}.norm")
        return b.relu(at_most=6, name=f"{name}.relu")

    x = layer("conv1", 32, 3, 2)
    for stage, (wider, filters, blocks, first) in enumerate(INVERTED, 2):
        for i in range(blocks):
            name, stride, wide = f"{stage}_{i + 1}", first if i == 0 else 1, wider * x.shape[1]
            if wider > 1:
                layer(f"{name}.expand", wide, 1)
            layer(f"{name}.depthwise", wide, 3, stride, groups=wide)
            b.conv(filters, 1, bias=False, name=f"{name}.project")
            through = b.batchnorm(name=f"{name}.project.norm")
            x = b.join(through, x, name=f"{name}.join") if through.shape == x.shape else through
    layer("conv2", 1280, 1)
    return _ended(b)

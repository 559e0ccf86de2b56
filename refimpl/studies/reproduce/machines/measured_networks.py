"""Networks as the benchmarks of `networks.csv` built them, where the zoo has them in another form or not at all."""

from __future__ import annotations

from refimpl.names.networks import PLAIN
from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import Conventions
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.parts import classified, conv_norm, conv_norm_relu

#: Depth → units of each stage, and whether a unit is three convolutions instead of two.
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False), "resnet34": ((3, 4, 6, 3), False), "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True), "resnet152": ((3, 8, 36, 3), True), "resnet200": ((3, 24, 36, 3), True),
}  # fmt: skip


def benchmarked(name: str, batch: int, input_gradient: bool) -> Network:
    """The network of a benchmark.

    Args:
        name: a ResNet, "caffenet", or a network of the zoo.
        batch: images.
        input_gradient: whether the first layer computes the gradient of the images, as some benchmarks do.
    """
    conventions = Conventions(input_gradient=input_gradient)
    if name in RESNETS:
        return _resnet(name, batch, conventions)
    if name == "caffenet":
        return _caffenet(batch, conventions)
    return PLAIN[name].make(batch=batch, conventions=conventions)


def _resnet(name: str, batch: int, conventions: Conventions) -> Network:
    """ResNet as in fb.resnet.torch: the 3×3 convolution of a wide unit has the stride, and not the 1×1 before it."""
    stages, wide = RESNETS[name]
    b = PapersBuilder(name, (batch, 3, 224, 224), conventions)
    conv_norm_relu(b, "conv1", 64, 7, stride=2, pad=3)
    x = b.pool(3, 2, pad=1, name="pool1")
    for stage, count in enumerate(stages):
        for i in range(count):
            x = _unit(b, f"{stage + 2}_{i + 1}", x, 64 << stage, 2 if i == 0 and stage else 1, wide)
    b.global_pool(name="average")
    return classified(b, 1000)


def _unit(b: PapersBuilder, name: str, x: Layer, filters: int, stride: int, wide: bool) -> Layer:
    put_out = 4 * filters if wide else filters
    changes = stride > 1 or x.shape[1] != put_out
    around = conv_norm(b, f"{name}.around", put_out, 1, stride, after=x) if changes else x
    if wide:
        conv_norm_relu(b, f"{name}.conv1", filters, 1, after=x)
        conv_norm_relu(b, f"{name}.conv2", filters, 3, stride, pad=1)
        through = conv_norm(b, f"{name}.conv3", put_out, 1)
    else:
        conv_norm_relu(b, f"{name}.conv1", filters, 3, stride, pad=1, after=x)
        through = conv_norm(b, f"{name}.conv2", filters, 3, pad=1)
    b.join(around, through, name=f"{name}.join")
    return b.relu(name=f"{name}.relu")


def _caffenet(batch: int, conventions: Conventions) -> Network:
    """AlexNet as in Caffe: two groups in convolutions 2, 4 and 5, and LRN.

    The benchmarks' images are 224².  Caffe rounds the size of a pooled map up, which gives the maps of 227² here.
    """
    b = PapersBuilder("caffenet", (batch, 3, 227, 227), conventions)
    convolutions = ((96, 11, 4, 0, 1), (256, 5, 1, 2, 2), (384, 3, 1, 1, 1), (384, 3, 1, 1, 2), (256, 3, 1, 1, 2))
    for i, (filters, window, stride, pad, groups) in enumerate(convolutions, 1):
        b.conv(filters, window, stride, pad, name=f"conv{i}", groups=groups)
        b.relu(name=f"relu{i}")
        if i in (1, 2):
            b.lrn(name=f"lrn{i}")
        if i in (1, 2, 5):
            b.pool(3, 2, name=f"pool{i}")
    for i in (6, 7):
        b.fc(4096, name=f"fc{i}")
        b.relu(name=f"relu{i}")
    return classified(b, 1000, "fc8")

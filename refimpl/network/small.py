"""Small networks for teaching and testing: a CPU trains them, and together they have every kind of layer but LRN.

`shape` is one image's: channels, height, width.  They also take the 1×8² of scikit-learn's digits.  `conventions` are
the choices by which the papers' versions of one network differ, such as a ReLU in place.
"""

from __future__ import annotations

from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.network import Network
from refimpl.network.parts import classified, conv_norm, conv_norm_relu, conv_relu, spelled

Shape = tuple[int, int, int]


def lenet(batch: int = 32, conventions: Conventions = VDNN, shape: Shape = (1, 28, 28), classes: int = 10) -> Network:
    """A plain chain, after LeCun, Bottou, Bengio, Haffner, 1998, with ReLU, maximum pooling and dropout."""
    b = PapersBuilder(spelled("lenet", conventions), (batch, *shape), conventions)
    for i, filters in ((1, 16), (2, 32)):
        b.conv(filters, 5, pad=2, name=f"conv{i}")
        b.relu(name=f"relu{i}")
        b.pool(2, name=f"pool{i}")
    b.fc(128, name="fc3")
    b.relu(name="relu3")
    b.dropout(0.25, name="drop3")
    return classified(b, classes, "fc4")


# -- the others: a first reader stops here -----------------------------------------------------------------------------


def tiny_vgg(
    batch: int = 32, conventions: Conventions = VDNN, shape: Shape = (3, 32, 32), classes: int = 10
) -> Network:
    """Three groups of two 3×3 convolutions, each halved by a pooling."""
    b = PapersBuilder(spelled("tiny-vgg", conventions), (batch, *shape), conventions)
    for group, filters in enumerate((8, 16, 32), 1):
        for i in (1, 2):
            b.conv(filters, 3, pad=1, name=f"conv{group}_{i}")
            b.relu(name=f"relu{group}_{i}")
        b.pool(2, name=f"pool{group}")
    b.fc(64, name="fc4")
    b.relu(name="relu4")
    return classified(b, classes, "fc5")


def tiny_resnet(
    batch: int = 32, conventions: Conventions = VDNN, shape: Shape = (3, 32, 32), classes: int = 10
) -> Network:
    """Two groups of two residual units of two 3×3 convolutions; batch normalisation, no biases."""
    b = PapersBuilder(spelled("tiny-resnet", conventions), (batch, *shape), conventions)
    x = conv_norm_relu(b, "conv1", 8, 3, pad=1)
    for group, filters in ((2, 8), (3, 16)):
        for i in (1, 2):
            unit, stride = f"{group}_{i}", 2 if group > 2 and i == 1 else 1
            around = conv_norm(b, f"{unit}.around", filters, 1, stride, after=x) if stride > 1 else x
            conv_norm_relu(b, f"{unit}.conv1", filters, 3, stride, pad=1, after=x)
            through = conv_norm(b, f"{unit}.conv2", filters, 3, pad=1)
            b.join(around, through, name=f"{unit}.join")
            x = b.relu(name=f"{unit}.relu")
    b.pool((x.shape[2], x.shape[3]), mode="average", name="average")
    return classified(b, classes)


def tiny_inception(
    batch: int = 32, conventions: Conventions = VDNN, shape: Shape = (3, 32, 32), classes: int = 10
) -> Network:
    """Two modules of three branches, 1×1, 3×3 and after a pooling, that meet in a concat."""
    b = PapersBuilder(spelled("tiny-inception", conventions), (batch, *shape), conventions)
    conv_relu(b, "conv1", 8, 3, pad=1)
    x = b.pool(2, name="pool1")
    for name, filters in (("2", 8), ("3", 16)):
        one = conv_relu(b, f"{name}.1x1", filters, 1, after=x)
        conv_relu(b, f"{name}.3x3.reduce", filters // 2, 1, after=x)
        three = conv_relu(b, f"{name}.3x3", filters, 3, pad=1)
        b.pool(3, 1, pad=1, name=f"{name}.pool", after=x)
        pooled = conv_relu(b, f"{name}.pool.1x1", filters // 2, 1)
        x = b.concat(one, three, pooled, name=f"{name}.concat")
    b.pool((x.shape[2], x.shape[3]), mode="average", name="average")
    return classified(b, classes)

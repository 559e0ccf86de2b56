"""AlexNet three times, as vDNN measured it and as SuperNeurons and vDNN++ built it; and OverFeat, which is like it."""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import SUPERNEURONS, VDNN, VDNNPP, Conventions
from refimpl.network.network import Network
from refimpl.network.parts import classified, spelled

#: Of the two at 227²: filters, window, stride and padding of each convolution.
WIDE = ((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1))


def alexnet(batch: int = 128, conventions: Conventions = VDNN) -> Network:
    """The single tower of Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.

    As convnet-benchmarks has it and vDNN measured it: 3×224², no groups, no LRN, no dropout.
    """
    b = PapersBuilder("alexnet", (batch, 3, 224, 224), conventions)
    convolutions = ((64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1))
    return five_convolutions(b, convolutions, pool=(3, 2))


def alexnet_superneurons(batch: int = 200, conventions: Conventions = SUPERNEURONS) -> Network:
    """The AlexNet of SuperNeurons' memory curves: 3×227², LRN, dropout, no groups; its layers' names are theirs."""
    b = PapersBuilder("alexnet:superneurons", (batch, 3, 227, 227), conventions)
    for i, (filters, window, stride, pad) in enumerate(WIDE, 1):
        b.conv(filters, window, stride, pad, name=f"CONV{i}")
        b.relu(name=f"RELU{i}")
        if i in (1, 2):
            b.lrn(k=2.0, name=f"LRN{i}")
        if i in (1, 2, 5):
            b.pool(3, 2, name=f"POOL{i}")
    for i in (1, 2):
        b.fc(4096, name=f"FC{i}")
        b.relu(name=f"RELU{5 + i}")
        b.dropout(name=f"DROP{i}")
    b.fc(1000, name="FC3")
    b.softmax(name="SOFTMAX")
    return b.build()


def alexnet_vdnnpp(batch: int = 128, conventions: Conventions = VDNNPP) -> Network:
    """The AlexNet of the chains that vDNN++'s authors made public: 3×227², no groups, no LRN, no dropout."""
    b = PapersBuilder("alexnet:vdnnpp", (batch, 3, 227, 227), conventions)
    return five_convolutions(b, WIDE, pool=(3, 2))


def overfeat(batch: int = 128, conventions: Conventions = VDNN) -> Network:
    """The fast model (Sermanet and others, 2013), as convnet-benchmarks has it and vDNN measured it: 3×231².

    2×2 pooling without overlap.
    """
    b = PapersBuilder(spelled("overfeat", conventions), (batch, 3, 231, 231), conventions)
    convolutions = ((96, 11, 4, 0), (256, 5, 1, 0), (512, 3, 1, 1), (1024, 3, 1, 1), (1024, 3, 1, 1))
    return five_convolutions(b, convolutions, pool=(2, 2), outputs=(3072, 4096))


def five_convolutions(
    b: PapersBuilder,
    convolutions: Sequence[tuple[int, int, int, int]],
    pool: tuple[int, int],
    outputs: tuple[int, int] = (4096, 4096),
) -> Network:
    """A chain like AlexNet's: five convolutions, three fully connected layers, a pooling after layers 1, 2 and 5.

    Args:
        b: the builder, with nothing in it.
        convolutions: filters, window, stride and padding of each.
        pool: window and stride.
        outputs: of the first two fully connected layers; the third has 1000.
    """
    for i, (filters, window, stride, pad) in enumerate(convolutions, 1):
        b.conv(filters, window, stride, pad, name=f"conv{i}")
        b.relu(name=f"relu{i}")
        if i in (1, 2, 5):
            b.pool(*pool, name=f"pool{i}")
    for i, count in enumerate(outputs, 6):
        b.fc(count, name=f"fc{i}")
        b.relu(name=f"relu{i}")
    return classified(b, 1000, "fc8")

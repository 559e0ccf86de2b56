"""Inception-v4 (Szegedy, Ioffe, Vanhoucke, Alemi, 2016): batch normalisation and ReLU after every convolution.

A stem takes 3×299² to 384×35²; then four modules A, a reduction, seven modules B, a reduction, three modules C.  Each
module is a few branches over one map that a concat joins.  Windows of 1×7 and 7×1 replace one of 7×7.
"""

from __future__ import annotations

from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.parts import classified, conv_norm_relu, spelled

#: One convolution: filters, window, and what the size becomes: "same", "valid" (no padding) or "half" (stride 2, none).
Conv = tuple[int, int | tuple[int, int], str]

ONE_BY_SEVEN, SEVEN_BY_ONE = (1, 7), (7, 1)
ONE_BY_THREE, THREE_BY_ONE = (1, 3), (3, 1)


def inceptionv4(batch: int = 32, conventions: Conventions = VDNN) -> Network:
    """3×299², whatever the conventions."""
    b = PapersBuilder(spelled("inceptionv4", conventions), (batch, 3, 299, 299), conventions)
    _stem(b)
    for i in range(1, 5):
        _module_a(b, f"A{i}")
    _reduction_a(b, "A.reduction")
    for i in range(1, 8):
        _module_b(b, f"B{i}")
    _reduction_b(b, "B.reduction")
    for i in range(1, 4):
        _module_c(b, f"C{i}")
    b.pool(8, mode="average", name="average")
    if conventions.dropout:
        b.dropout(0.2, name="drop")
    return classified(b, 1000)


def _convs(b: PapersBuilder, name: str, after: Layer, *convs: Conv) -> Layer:
    """A chain of convolutions after a layer."""
    for i, (filters, window, size) in enumerate(convs, 1):
        height, width = window if isinstance(window, tuple) else (window, window)
        pad = (height // 2, width // 2) if size == "same" else 0
        after = conv_norm_relu(b, f"{name}.{i}", filters, window, 2 if size == "half" else 1, pad=pad, after=after)
    return after


def _average(b: PapersBuilder, name: str, x: Layer, filters: int) -> Layer:
    """The mean of the neighbours, and a 1×1 convolution."""
    return _convs(b, name, b.pool(3, 1, pad=1, mode="average", name=f"{name}.pool", after=x), (filters, 1, "same"))


def _stem(b: PapersBuilder) -> None:
    x = _convs(b, "stem", b.input, (32, 3, "half"), (32, 3, "valid"), (64, 3, "same"))
    pooled = b.pool(3, 2, name="stem.a.pool", after=x)
    x = b.concat(pooled, _convs(b, "stem.a", x, (96, 3, "half")), name="stem.a.concat")
    left = _convs(b, "stem.b1", x, (64, 1, "same"), (96, 3, "valid"))
    tall = (64, 1, "same"), (64, SEVEN_BY_ONE, "same"), (64, ONE_BY_SEVEN, "same"), (96, 3, "valid")
    x = b.concat(left, _convs(b, "stem.b2", x, *tall), name="stem.b.concat")
    left = _convs(b, "stem.c", x, (192, 3, "half"))
    b.concat(left, b.pool(3, 2, name="stem.c.pool", after=x), name="stem.c.concat")


def _module_a(b: PapersBuilder, name: str) -> None:
    x = b.last
    b.concat(
        _average(b, f"{name}.average", x, 96),
        _convs(b, f"{name}.1x1", x, (96, 1, "same")),
        _convs(b, f"{name}.3x3", x, (64, 1, "same"), (96, 3, "same")),
        _convs(b, f"{name}.5x5", x, (64, 1, "same"), (96, 3, "same"), (96, 3, "same")),
        name=f"{name}.concat",
    )


def _reduction_a(b: PapersBuilder, name: str) -> None:
    x = b.last
    b.concat(
        b.pool(3, 2, name=f"{name}.pool", after=x),
        _convs(b, f"{name}.3x3", x, (384, 3, "half")),
        _convs(b, f"{name}.5x5", x, (192, 1, "same"), (224, 3, "same"), (256, 3, "half")),
        name=f"{name}.concat",
    )


def _module_b(b: PapersBuilder, name: str) -> None:
    x = b.last
    seven = (192, 1, "same"), (224, ONE_BY_SEVEN, "same"), (256, SEVEN_BY_ONE, "same")
    thirteen = (192, 1, "same"), (192, ONE_BY_SEVEN, "same"), (224, SEVEN_BY_ONE, "same")
    b.concat(
        _average(b, f"{name}.average", x, 128),
        _convs(b, f"{name}.1x1", x, (384, 1, "same")),
        _convs(b, f"{name}.7x7", x, *seven),
        _convs(b, f"{name}.13x13", x, *thirteen, (224, ONE_BY_SEVEN, "same"), (256, SEVEN_BY_ONE, "same")),
        name=f"{name}.concat",
    )


def _reduction_b(b: PapersBuilder, name: str) -> None:
    x = b.last
    long = (256, 1, "same"), (256, ONE_BY_SEVEN, "same"), (320, SEVEN_BY_ONE, "same"), (320, 3, "half")
    b.concat(
        b.pool(3, 2, name=f"{name}.pool", after=x),
        _convs(b, f"{name}.3x3", x, (192, 1, "same"), (192, 3, "half")),
        _convs(b, f"{name}.9x9", x, *long),
        name=f"{name}.concat",
    )


def _module_c(b: PapersBuilder, name: str) -> None:
    x = b.last
    average = _average(b, f"{name}.average", x, 256)
    one = _convs(b, f"{name}.1x1", x, (256, 1, "same"))
    three = _convs(b, f"{name}.3x3", x, (384, 1, "same"))
    flat = _convs(b, f"{name}.3x3.flat", three, (256, ONE_BY_THREE, "same"))
    tall = _convs(b, f"{name}.3x3.tall", three, (256, THREE_BY_ONE, "same"))
    five = _convs(b, f"{name}.5x5", x, (384, 1, "same"), (448, THREE_BY_ONE, "same"), (512, ONE_BY_THREE, "same"))
    flatter = _convs(b, f"{name}.5x5.flat", five, (256, ONE_BY_THREE, "same"))
    taller = _convs(b, f"{name}.5x5.tall", five, (256, THREE_BY_ONE, "same"))
    b.concat(average, one, flat, tall, flatter, taller, name=f"{name}.concat")

"""GoogLeNet v1 (Szegedy and others, "Going deeper with convolutions", 2014), as vDNN measured it.

Without LRN and without the two auxiliary ends; nine inception modules, each of four branches that a concat joins.
"""

from __future__ import annotations

from refimpl.network.builder import PapersBuilder
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.network import Network
from refimpl.network.parts import classified, conv_relu, spelled

#: Module → filters: 1×1; 1×1 and 3×3; 1×1 and 5×5; 1×1 after the pooling.
MODULES = {
    "3a": (64, (96, 128), (16, 32), 32),
    "3b": (128, (128, 192), (32, 96), 64),
    "4a": (192, (96, 208), (16, 48), 64),
    "4b": (160, (112, 224), (24, 64), 64),
    "4c": (128, (128, 256), (24, 64), 64),
    "4d": (112, (144, 288), (32, 64), 64),
    "4e": (256, (160, 320), (32, 128), 128),
    "5a": (256, (160, 320), (32, 128), 128),
    "5b": (384, (192, 384), (48, 128), 128),
}


def googlenet(batch: int = 128, conventions: Conventions = VDNN) -> Network:
    """3×224² (227² with SuperNeurons' conventions)."""
    b = PapersBuilder(spelled("googlenet", conventions), (batch, 3, conventions.side, conventions.side), conventions)
    conv_relu(b, "conv1", 64, 7, stride=2, pad=3)
    b.pool(3, 2, pad=1, name="pool1")
    conv_relu(b, "conv2.reduce", 64, 1)
    conv_relu(b, "conv2", 192, 3, pad=1)
    b.pool(3, 2, pad=1, name="pool2")
    for name, filters in MODULES.items():
        inception(b, name, *filters)
        if name in ("3b", "4e"):
            b.pool(3, 2, pad=1, name=f"pool{name[0]}")
    b.pool(b.last.shape[2], mode="average", name="average")
    if conventions.dropout:
        b.dropout(0.4, name="drop")
    return classified(b, 1000)


def inception(
    b: PapersBuilder, name: str, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int
) -> None:
    """Four branches over one map; the convolutions of 1×1 keep the larger ones cheap."""
    x = b.last
    first = conv_relu(b, f"{name}.1x1", one, 1, after=x)
    conv_relu(b, f"{name}.3x3.reduce", three[0], 1, after=x)
    second = conv_relu(b, f"{name}.3x3", three[1], 3, pad=1)
    conv_relu(b, f"{name}.5x5.reduce", five[0], 1, after=x)
    third = conv_relu(b, f"{name}.5x5", five[1], 5, pad=2)
    b.pool(3, 1, pad=1, name=f"{name}.pool", after=x)
    fourth = conv_relu(b, f"{name}.pool.1x1", pooled, 1)
    b.concat(first, second, third, fourth, name=f"{name}.concat")

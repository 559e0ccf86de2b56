"""The figures that SuperNeurons published, each with its source and its mark (`refimpl.reproduce.published`).

MB in the paper's memory figures is 2^20 bytes.  The memory curve of AlexNet(200) is beside this file, step by step:
read off the vector figure, and calculated with the paper's conventions; the two agree to 0.015 MiB.  The paper is Wang
et al., PPoPP 2018, arXiv 1801.04380.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from refimpl.reproduce.published import Published, Quantity

PAPER = "PPoPP 2018"
TEXT = f"{PAPER}, text"
CURVE = f"{PAPER}, memory curve of AlexNet(200)"
RECOMPUTATION = f"{PAPER}, table of recomputation"
CACHE = f"{PAPER}, table of the tensor cache"
DEPTH = f"{PAPER}, table of the deepest ResNet; the abstract has a ResNet2500"
BATCH = f"{PAPER}, table of the largest batches"
POOL = f"{PAPER}, on the memory pool"
POOL_SPEED = f"{PAPER}, table of the memory pool"
TOTALS = f"{PAPER}, Figure 2"
TIMES = f"{PAPER}, Figure 8a"
NEEDS = f"{PAPER}, Figure 8b"
CACHE_SPEED = f"{PAPER}, Figure 11"
WORKSPACES = f"{PAPER}, on dynamic workspaces (Figure 12): 203 and 240 images a second"
ABSTRACT = f"{PAPER}, abstract: 10^4 basic layers"

CLOSE_MIB = 0.02  #: of the curve; read off its vector figure to about 0.01
CLOSE_SHARE = 0.1  #: percentage points, of bytes by type of layer
CLOSE_TIME = 1.0  #: percentage points, of time by type of layer
EXACTLY = 0.0

TITLES = {
    "alexnet": "AlexNet", "vgg16": "VGG-16", "vgg19": "VGG-19", "inceptionv4": "Inception-v4",
    "resnet50": "ResNet-50", "resnet101": "ResNet-101", "resnet152": "ResNet-152",
}  # fmt: skip

# -- AlexNet(200), step by step ----------------------------------------------------------------------------------------

TOTAL = Published("AlexNet(200): every tensor allocated", 2189.437, "MiB", "P", TEXT, CLOSE_MIB)
TENSORS = Published("AlexNet(200): tensors", 36, "", "P", TEXT, EXACTLY)

#: Setup → its peak and the step of it, and how many of the 46 steps agree.
PEAKS = {
    "liveness": Published("liveness: peak", 1489.355, "MiB", "P", TEXT, CLOSE_MIB),
    "offload": Published(
        "offload and prefetch: peak", 1132.056, "MiB", "D", f"{CURVE}; the text prints 1132.155", CLOSE_MIB
    ),
    "recompute": Published(
        "recomputation: peak", 886.230, "MiB", "P", f"{RECOMPUTATION} and curve; the text prints 886.385", CLOSE_MIB
    ),
}
PEAK_STEPS = {
    "liveness": Published("liveness: step of the peak (POOL5)", 32, "", "P", TEXT, EXACTLY),
    "offload": Published("offload and prefetch: step of the peak (POOL2)", 39, "", "D", CURVE, EXACTLY),
    "recompute": Published("recomputation: step of the peak (LRN1)", 44, "", "P", TEXT, EXACTLY),
}
STEPS = {
    name: Published(f"{what}: steps that agree", 46, "", "D, C", f"{CURVE}, bytes and tensors", EXACTLY)
    for name, what in (("liveness", "liveness"), ("offload", "offload and prefetch"), ("recompute", "recomputation"))
}


@dataclass(frozen=True)
class Point:
    """A step of the published curve: MiB and tensors alive, by setup."""

    step: int
    direction: str
    layer: str
    mib: dict[str, float]
    tensors: dict[str, int]


def curve() -> list[Point]:
    """The 46 steps of AlexNet(200)."""
    with open(Path(__file__).with_name("alexnet200.csv"), encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    mib = [{name: float(row[f"{name}_mib"]) for name in PEAKS} for row in rows]
    tensors = [{name: int(row[f"{name}_tensors"]) for name in PEAKS} for row in rows]
    return [
        Point(int(row["step"]), row["direction"], row["layer"], alive, number)
        for row, alive, number in zip(rows, mib, tensors, strict=True)
    ]


# -- networks without any technique ------------------------------------------------------------------------------------

#: Network → MB (10^6 bytes) of all tensors, and of all tensors and the convolutions' workspaces.
NETWORK_BYTES = {
    network: (
        Published(f"{TITLES[network]}({batch}): memory", memory, "MB", "D", TOTALS),
        Published(f"{TITLES[network]}({batch}): memory with workspaces", both, "MB", "D", TOTALS),
    )
    for network, batch, memory, both in (
        ("alexnet", 200, 3046, 5662), ("vgg16", 32, 7373, 17271), ("vgg19", 32, 7937, 22745),
        ("inceptionv4", 32, 17778, 44245), ("resnet50", 32, 8418, 8600), ("resnet101", 32, 12795, 13121),
        ("resnet152", 32, 18109, 18552),
    )
}  # fmt: skip


def _shares(
    what: str, source: str, within: float, of: Quantity, kinds: str, **networks: str
) -> dict[str, dict[str, Published]]:
    """Network → type of layer → share in per cent; a network has no layer of a type whose share is 0."""
    return {
        network: {
            kind: Published(f"{TITLES[network]}, {kind}: {what}", float(share), "%", "D", source, within, of=of)
            for kind, share in zip(kinds.split(), shares.split(), strict=True)
            if float(share)
        }
        for network, shares in networks.items()
    }


TIME_SHARES = _shares(
    "share of time", TIMES, CLOSE_TIME, "time", "CONV FC DROPOUT SOFTMAX POOL ACT BN LRN",
    alexnet="62.1 9.2 8.1 5.2 5.2 8.1 0 2.3",
    vgg16="53.0 8.7 8.7 4.9 8.2 16.4 0 0",
    resnet50="48.8 1.1 0 1.6 0.7 17.5 19.0 0",
)  # fmt: skip
MEMORY_SHARES = _shares(
    "share of memory", NEEDS, CLOSE_SHARE, "bytes", "CONV POOL ACT BN LRN",
    alexnet="21.05 18.58 31.72 0 27.58", vgg16="37.26 15.84 46.78 0 0", resnet50="33.47 2.22 29.70 34.60 0",
)  # fmt: skip

# -- recomputation -----------------------------------------------------------------------------------------------------


WAYS = "speed-centric", "memory-centric", "cost-aware"


def _by_way(what: str, unit: str, within: float, figures: tuple[float, ...]) -> list[Published]:
    return [
        Published(what.format(way), figure, unit, "P", RECOMPUTATION, within)
        for way, figure in zip(WAYS, figures, strict=True)
    ]


#: Network → extra forward runs, and peaks, each of the three ways.
RECOMPUTED = {
    network: (
        _by_way(f"{title}, {{}}: extra runs", "", EXACTLY, runs),
        _by_way(f"{title}, {{}}: peak", "MiB", CLOSE_MIB, peaks),
    )
    for network, title, runs, peaks in (
        ("alexnet", "AlexNet(200)", (14, 23, 17), (993.018, 886.230, 886.230)),
        ("resnet50", "ResNet-50(32)", (84, 118, 85), (455.125, 401, 401)),
        ("resnet101", "ResNet-101(32)", (169, 237, 170), (455.125, 401, 401)),
    )
}  # fmt: skip

# -- the tensor cache --------------------------------------------------------------------------------------------------

#: Batch of AlexNet → GB moved in an iteration.
WITHOUT_CACHE = {
    batch: Published(f"AlexNet({batch}): moved without the cache", moved, "GB", "P", CACHE)
    for batch, moved in ((256, 2.56), (384, 3.72), (512, 4.88), (640, 6.03), (896, 8.35), (1024, 9.50))
}
WITH_CACHE = {
    batch: Published(f"AlexNet({batch}): moved with the cache", moved, "GB", "P", CACHE)
    for batch, moved in ((256, 0.0), (384, 0.0), (512, 0.0), (640, 0.0), (896, 0.0), (1024, 0.88))
}

#: Speed with the cache over the speed without it.
FASTER_WITH_CACHE = {
    network: Published(
        f"{TITLES[network]}({batch}): speed with the cache over without", ratio, "×", "D", CACHE_SPEED, of="time"
    )
    for network, batch, ratio in (
        ("alexnet", 128, 1.095), ("vgg16", 32, 1.083), ("inceptionv4", 32, 1.264),
        ("resnet50", 32, 1.500), ("resnet101", 32, 1.455), ("resnet152", 32, 1.410),
    )
}  # fmt: skip

# -- workspaces --------------------------------------------------------------------------------------------------------

FASTER_WITH_MEMORY = Published("AlexNet: speed in a pool of 5 GB over 3 GB", 1.182, "×", "p", WORKSPACES, of="time")

# -- 12 GB -------------------------------------------------------------------------------------------------------------

DEEPEST = Published("deepest ResNet, 16 images", 1920, "layers", "P", DEPTH)
BASIC_LAYERS = Published("ResNet2500: basic layers", 10_000, "layers", "P", ABSTRACT, 1000)

#: What others reached with the same GPU.  1920 over the deepest of them are the abstract's 3.2432 times, to the digit.
DEEPEST_OF_OTHERS = {"Caffe": 148, "MXNet": 480, "Torch": 152, "TensorFlow": 592}

LARGEST = {
    network: Published(f"{TITLES[network]}: largest batch", batch, "images", "P", BATCH)
    for network, batch in (
        ("alexnet", 1792), ("vgg16", 224), ("inceptionv4", 240),
        ("resnet50", 384), ("resnet101", 256), ("resnet152", 176),
    )
}  # fmt: skip
#: Caffe, MXNet, Torch, TensorFlow; None where the paper has no figure.
LARGEST_OF_OTHERS = {
    "alexnet": (768, 768, 1024, 1408),
    "vgg16": (48, 64, 48, 80),
    "inceptionv4": (16, None, None, 64),
    "resnet50": (24, 80, 32, 128),
    "resnet101": (16, 48, 16, 80),
    "resnet152": (16, 32, 16, 48),
}

# -- the pool ----------------------------------------------------------------------------------------------------------

DRIVER_SHARE = Published("ResNet-50: time in cudaMalloc and cudaFree", 36, "%", "P", POOL, of="time")

#: Network → its batch, and the speed with the pool over that with the driver's calls.
FASTER_WITH_POOL = {
    network: (
        batch, Published(f"{TITLES[network]}({batch}): speed of the pool", ratio, "×", "p", POOL_SPEED, of="time")
    )
    for network, batch, ratio in (
        ("alexnet", 128, 1.12), ("vgg16", 16, 1.19), ("inceptionv4", 16, 1.48),
        ("resnet50", 16, 1.52), ("resnet101", 16, 1.77), ("resnet152", 16, 1.77),
    )
}  # fmt: skip

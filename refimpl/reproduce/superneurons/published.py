"""The figures that SuperNeurons published, each with its source and its mark (`refimpl.reproduce.published`).

MB in the paper's memory figures is 2^20 bytes.  The memory curve of AlexNet(200) is beside this file, step by step:
read off the vector figure, and calculated with the paper's conventions; the two agree to 0.015 MiB.  The paper is Wang
et al., PPoPP 2018, arXiv 1801.04380.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from refimpl.reproduce.published import Published

PAPER = "PPoPP 2018"
TEXT = f"{PAPER}, text"
CURVE = f"{PAPER}, memory curve of AlexNet(200)"
RECOMPUTATION = f"{PAPER}, table of recomputation"
CACHE = f"{PAPER}, table of the tensor cache"
DEPTH = f"{PAPER}, table of the deepest ResNet; the abstract has a ResNet2500"
BATCH = f"{PAPER}, table of the largest batches"
POOL = f"{PAPER}, on the memory pool"

CLOSE_MIB = 0.02  #: of the curve; read off its vector figure to about 0.01
EXACTLY = 0.0

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
    for name, what in (
        ("liveness", "liveness"),
        ("offload", "offload and prefetch"),
        ("recompute", "recomputation"),
    )
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
        return [
            Point(
                int(row["step"]),
                row["direction"],
                row["layer"],
                {name: float(row[f"{name}_mib"]) for name in PEAKS},
                {name: int(row[f"{name}_tensors"]) for name in PEAKS},
            )
            for row in csv.DictReader(lines)
        ]


# -- recomputation -----------------------------------------------------------------------------------------------------


WAYS = "speed-centric", "memory-centric", "cost-aware"


def _extra_runs(network: str, mark: str, *counts: int) -> list[Published]:
    return [
        Published(f"{network}, {way}: extra runs", count, "", mark, RECOMPUTATION, EXACTLY)
        for way, count in zip(WAYS, counts, strict=True)
    ]


def _peaks(network: str, *peaks: float) -> list[Published]:
    return [
        Published(f"{network}, {way}: peak", peak, "MiB", "P", RECOMPUTATION, CLOSE_MIB)
        for way, peak in zip(WAYS, peaks, strict=True)
    ]


#: Network → extra forward runs, and peaks, each of the three ways.
RECOMPUTED = {
    "alexnet": (_extra_runs("AlexNet(200)", "P", 14, 23, 17), _peaks("AlexNet(200)", 993.018, 886.230, 886.230)),
    "resnet50": (_extra_runs("ResNet-50(32)", "p", 84, 118, 85), _peaks("ResNet-50(32)", 455.125, 401, 401)),
    "resnet101": (_extra_runs("ResNet-101(32)", "p", 169, 237, 170), _peaks("ResNet-101(32)", 455.125, 401, 401)),
}

# -- the tensor cache --------------------------------------------------------------------------------------------------

#: Batch of AlexNet → GB moved in an iteration.
WITHOUT_CACHE = {
    batch: Published(f"AlexNet({batch}): moved without the cache", moved, "GB", "p", CACHE)
    for batch, moved in ((256, 2.56), (384, 3.72), (512, 4.88), (640, 6.03), (896, 8.35), (1024, 9.50))
}
WITH_CACHE = {
    batch: Published(f"AlexNet({batch}): moved with the cache", moved, "GB", "p", CACHE)
    for batch, moved in ((256, 0.0), (384, 0.0), (512, 0.0), (640, 0.0), (896, 0.0), (1024, 0.88))
}

# -- 12 GB -------------------------------------------------------------------------------------------------------------

DEEPEST = Published("deepest ResNet, 16 images", 1920, "layers", "p", DEPTH)

#: What others reached with the same GPU.  1920 over the deepest of them are the abstract's 3.2432 times, to the digit.
DEEPEST_OF_OTHERS = {"Caffe": 148, "MXNet": 480, "Torch": 152, "TensorFlow": 592}

LARGEST = {
    network: Published(f"{title}: largest batch", batch, "images", "p", BATCH)
    for network, title, batch in (
        ("alexnet", "AlexNet", 1792),
        ("vgg16", "VGG-16", 224),
        ("inceptionv4", "Inception-v4", 240),
        ("resnet50", "ResNet-50", 384),
        ("resnet101", "ResNet-101", 256),
        ("resnet152", "ResNet-152", 176),
    )
}
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

DRIVER_SHARE = Published("ResNet-50: time in cudaMalloc and cudaFree", 36, "%", "P", POOL)

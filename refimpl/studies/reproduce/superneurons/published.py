"""The figures that SuperNeurons published, each with its source and its mark (`refimpl.studies.reproduce.published`).

MB in the paper's memory figures is 2^20 bytes; in Figure 2 it is 10^6.  The memory curve of AlexNet(200) is beside this
file, step by step: read off the vector figure, and calculated with the paper's conventions; the two agree to 0.015 MiB.
Its file has the calculated bytes (C), as 1132.056 MiB at step 39, where the paper draws 1132.05 and prints 1132.155.
The paper is Wang et al., PPoPP 2018, arXiv 1801.04380.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from refimpl.studies.reproduce.published import Published, Quantity

PAPER = "PPoPP 2018"
TEXT = f"{PAPER}, text"
CURVE = f"{PAPER}, memory curve of AlexNet(200)"
RECOMPUTATION = f"{PAPER}, table of recomputation"
CACHE = f"{PAPER}, table of the tensor cache"
DEPTH = f"{PAPER}, table of the deepest ResNet; the abstract has a ResNet2500"
BATCH = f"{PAPER}, table of the largest batches"
POOL = f"{PAPER}, on the memory pool"
POOL_SPEED = f"{PAPER}, Table 2, the memory pool"
TOTALS = f"{PAPER}, Figure 2"
TIMES = f"{PAPER}, Figure 8a"
NEEDS = f"{PAPER}, Figure 8b"
CACHE_SPEED = f"{PAPER}, Figure 11"
WORKSPACES = f"{PAPER}, Figure 12, AlexNet's workspaces"
COSTS = f"{PAPER}, Figure 13, memory at the largest batches"
SPEEDS = f"{PAPER}, Figure 14, TITAN Xp"
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
    "offload": Published("offload and prefetch: peak, drawn", 1132.05, "MiB", "D", CURVE, CLOSE_MIB),
    "recompute": Published("recomputation: peak", 886.230, "MiB", "P", f"{RECOMPUTATION} and curve", CLOSE_MIB),
}
#: The text prints two peaks that differ from the paper's own curve and table by 0.1 and 0.16 MiB.
PRINTED_PEAKS = {
    "offload": Published(
        "offload and prefetch: peak, printed", 1132.155, "MiB", "P", TEXT, CLOSE_MIB, in_medians=False
    ),
    "recompute": Published("recomputation: peak, in the text", 886.385, "MiB", "P", TEXT, CLOSE_MIB, in_medians=False),
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
class CurvePoint:
    """A step of the published curve: MiB and tensors alive, by setup."""

    step: int
    direction: str
    layer: str
    mib: dict[str, float]
    tensors: dict[str, int]


def curve() -> list[CurvePoint]:
    """The 46 steps of AlexNet(200)."""
    with open(Path(__file__).with_name("alexnet200.csv"), encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    mib = [{name: float(row[f"{name}_mib"]) for name in PEAKS} for row in rows]
    tensors = [{name: int(row[f"{name}_tensors"]) for name in PEAKS} for row in rows]
    return [
        CurvePoint(int(row["step"]), row["direction"], row["layer"], alive, number)
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
#: Network → speed with the convolutions' workspaces over the speed without.
FASTER_WITH_WORKSPACES = {
    network: Published(f"{TITLES[network]}: speed with workspaces over without", ratio, "×", "D", TOTALS, of="time")
    for network, ratio in (
        ("alexnet", 2.01), ("vgg16", 1.59), ("vgg19", 1.59), ("inceptionv4", 1.46), ("resnet50", 1.18),
        ("resnet101", 1.15), ("resnet152", 1.10),
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
    vgg19="57.1 8.4 6.4 3.9 6.4 17.7 0 0",
    inceptionv4="49.0 0.4 0.8 0.5 2.5 18.8 18.8 0",
    resnet50="48.8 1.1 0 1.6 0.7 17.5 19.0 0",
    resnet101="50.1 0.7 0 1.1 0.4 17.7 18.4 0",
    resnet152="49.0 0.4 0 0.9 0.2 18.5 19.0 0",
)  # fmt: skip
MEMORY_SHARES = _shares(
    "share of memory", NEEDS, CLOSE_SHARE, "bytes", "CONV POOL ACT BN LRN",
    alexnet="21.05 18.58 31.72 0 27.58", vgg16="37.26 15.84 46.78 0 0", vgg19="38.29 14.55 47.04 0 0",
    inceptionv4="39.17 12.08 24.37 24.37 0", resnet50="33.47 2.22 29.70 34.60 0",
    resnet101="33.42 1.48 30.91 34.18 0", resnet152="33.40 1.05 31.61 33.93 0",
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


@dataclass(frozen=True)
class Panel:
    """A panel of Figure 12 (D): the workspaces of AlexNet's convolution calls, MB; CONV1's need none."""

    batch: int | None  #: images; None: not at hand
    pool: int  #: GB
    rate: float | None  #: images a second
    assigned: tuple[int, ...]  #: by `WORKSPACE_STEPS`
    fastest: tuple[int, ...]  #: of the fastest algorithm

    @property
    def title(self) -> str:
        images = f"{self.batch} images" if self.batch else f"{self.rate:g} images a second"
        return f"{self.pool} GB, {images}"

    @property
    def served(self) -> Published:
        """Steps that are assigned the workspace of their fastest algorithm."""
        equal = sum(given == fastest for given, fastest in zip(self.assigned, self.fastest, strict=True))
        what = f"AlexNet, {self.title}: steps of {len(self.fastest)} with the fastest workspace"
        return Published(what, equal, "", "D", WORKSPACES, EXACTLY)


#: In the order of the figure: forward, then backward.
WORKSPACE_STEPS = (
    "CONV2 forward", "CONV3 forward", "CONV4 forward", "CONV5 forward",
    "CONV5 backward", "CONV4 backward", "CONV3 backward", "CONV2 backward",
)  # fmt: skip
PANELS = (
    Panel(100, 3, None, (286, 0, 0, 0, 233, 349, 241, 782), (286, 0, 0, 0, 233, 349, 241, 782)),
    Panel(300, 3, None, (427, 0, 0, 0, 0, 0, 0, 397), (427, 0, 0, 0, 943, 1642, 1273, 1358)),
    Panel(None, 3, 203, (640, 0, 0, 0, 0, 0, 0, 543), (640, 1208, 1573, 1208, 1208, 2154, 1704, 1934)),
    Panel(None, 5, 240, (640, 1208, 0, 1208, 0, 0, 1208, 844), (640, 1208, 1573, 1208, 1208, 2154, 1704, 1934)),
)
SERVED = [panel.served for panel in PANELS]
FASTER_WITH_MEMORY = Published(
    "AlexNet: speed in a pool of 5 GB over 3 GB", 1.182, "×", "D", f"{WORKSPACES}: 203 and 240 images a second",
    of="time",
)  # fmt: skip

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


@dataclass(frozen=True)
class PoolSpeed:
    """A network of Table 2: images a second with a driver call for every allocation, with the pool, and their ratio."""

    batch: int
    calls: Published
    pool: Published
    ratio: Published


def _pool_speed(network: str, batch: int, *, calls: float, pool: float, ratio: float) -> PoolSpeed:
    title = f"{TITLES[network]}({batch})"

    def figure(what: str, value: float, unit: str) -> Published:
        return Published(f"{title}: {what}", value, unit, "P", POOL_SPEED, of="time")

    return PoolSpeed(
        batch,
        figure("speed with cudaMalloc", calls, "images/s"),
        figure("speed with the pool", pool, "images/s"),
        figure("speed of the pool over cudaMalloc's", ratio, "×"),
    )


FASTER_WITH_POOL = {
    network: _pool_speed(network, batch, calls=calls, pool=pool, ratio=ratio)
    for network, batch, calls, pool, ratio in (
        ("alexnet", 128, 359.4, 401.6, 1.12), ("vgg16", 16, 12.1, 14.4, 1.19), ("inceptionv4", 16, 6.77, 10.0, 1.48),
        ("resnet50", 16, 21.5, 32.9, 1.53), ("resnet101", 16, 11.3, 18.95, 1.68), ("resnet152", 16, 7.46, 13.2, 1.77),
    )
}  # fmt: skip

# -- beside other frameworks -------------------------------------------------------------------------------------------

#: GB of memory, workspaces included, at the batches of `LARGEST`.
LARGEST_MEMORY = {
    network: Published(f"{TITLES[network]}({LARGEST[network].value:g}): memory", gb, "GB", "D", COSTS)
    for network, gb in (
        ("alexnet", 27.8), ("vgg16", 54.5), ("inceptionv4", 139.5), ("resnet50", 123.2), ("resnet101", 137.6),
        ("resnet152", 143.6),
    )
}  # fmt: skip
#: Caffe, TensorFlow, MXNet, Torch, each at its own largest batch.
LARGEST_MEMORY_OF_OTHERS = {
    "alexnet": (8.6, 15.8, 11.5, 12.9),
    "vgg16": (11.2, 15.9, 19.5, 13.0),
    "inceptionv4": (None, 37.5, None, None),
    "resnet50": (9.3, 37.3, 32.6, 13.2),
    "resnet101": (7.1, 35.5, 27.5, 11.0),
    "resnet152": (7.2, 30.4, 27.5, 10.1),
}

#: Network → batch → images a second (D).
SPEED_CURVES: dict[str, dict[int, int]] = {
    "alexnet": {
        128: 1606, 256: 1717, 384: 1746, 512: 1780, 640: 1784, 768: 1627, 896: 1356, 1024: 1270, 1152: 982, 1280: 956,
    },
    "vgg16": {16: 107, 32: 120, 48: 125, 64: 122, 80: 111, 96: 105, 112: 92, 128: 94, 144: 72},
    "inceptionv4": {16: 62, 32: 67, 48: 63, 64: 42, 80: 45},
    "resnet50": {16: 170, 32: 185, 48: 189, 64: 177, 96: 177, 112: 179, 128: 132, 144: 108, 160: 98},
    "resnet101": {16: 101, 32: 111, 48: 113, 64: 108, 80: 98, 96: 88, 112: 79},
    "resnet152": {16: 72, 32: 78, 48: 74, 64: 63, 80: 52},
}  # fmt: skip


@dataclass(frozen=True)
class SpeedCurve:
    """The shape of a curve of Figure 14: where it is highest, how high, and how far it has fallen at its end."""

    best_batch: Published
    best_rate: Published
    fallen: Published  #: the speed at the largest batch over the highest


def _speed_curve(network: str, rates: dict[int, int]) -> SpeedCurve:
    best, last = max(rates, key=lambda batch: rates[batch]), max(rates)
    title = TITLES[network]
    return SpeedCurve(
        Published(f"{title}: batch with the highest speed", best, "images", "D", SPEEDS, EXACTLY),
        Published(f"{title}: highest speed", rates[best], "images/s", "D", SPEEDS),
        Published(
            f"{title}: speed at {last} images over the highest", round(rates[last] / rates[best], 3), "×", "D", SPEEDS,
            of="time",
        ),
    )  # fmt: skip


SPEED_SHAPES = {network: _speed_curve(network, rates) for network, rates in SPEED_CURVES.items()}

"""The machines that have a name: the papers' GPUs here; in `cards.csv` data centres', and those that people own.

Rate, bandwidth and multiprocessors are the maker's peaks, memory is what a program can use, and a link is what copies
from pinned memory reach, one way.  `sources` says where each figure comes from; OWNER/NAME#NUMBER is an issue or a
pull request on GitHub.

What a library's kernels reach was fitted to public measurements, GPU by GPU (`refimpl.studies.reproduce.machines.fit`):
of Maxwell, Kepler, Pascal, Volta and Turing.  Of later ones there is no evidence: no figure in fp32 of a single call
was found, and V100's shares are assumed.  Our own kernels have run on no GPU: they are assumed to reach what cuDNN R2's
convolutions reached on Titan X.  The RTX cards, A10, L4 and L40S share half of their fp32 lanes with integer
arithmetic, so they may reach less.  MI300X and Apple's chips are data sheets alone: no kernel of ours runs there.
`refimpl profile` measures instead.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from refimpl.machine.model import Efficiency, Machine, Source

GIB, MIB = 1 << 30, 1 << 20

TITAN_X_EFFICIENCY = Efficiency(
    forward=0.413, backward=0.323, products=0.785, transforms=0.289, streaming=0.719, weights=0.908, early=0.583,
    half_tiles=3.9,
)  # fmt: skip


def shares(products: float, weights: float, transforms: float, streaming: float, half_tiles: float) -> Efficiency:
    """A GPU's own figures of a library's kernels; what its rows cannot tell is Titan X's."""
    return replace(
        TITAN_X_EFFICIENCY, products=products, weights=weights, transforms=transforms, streaming=streaming,
        half_tiles=half_tiles,
    )  # fmt: skip


K40C_EFFICIENCY = replace(shares(0.516, 0.624, 0.238, 0.445, 3.9), early=1.0)  # Kepler has one generation of kernels
TITAN_XP_EFFICIENCY = shares(0.970, 0.703, 0.287, 0.598, 2.32)
P100_EFFICIENCY = shares(0.776, 0.843, 0.341, 0.842, 1.34)
V100_EFFICIENCY = shares(1.000, 0.789, 0.579, 0.832, 1.08)
T4_EFFICIENCY = shares(0.647, 0.640, 0.639, 0.832, 0.89)
ASSUMED_EFFICIENCY = V100_EFFICIENCY  #: of a GPU without evidence

SIZES = ("memory_bytes", "flops", "bandwidth", "multiprocessors")
PEAKS = SIZES[1:]
MEMORY, LINK, SHARES = ("memory_bytes",), ("link",), ("efficiency",)
ASSUMED = Source("assumed", "V100's; no evidence", SHARES)


def fitted(where: str) -> Source:
    """Shares that a library's kernels reach; what our own do is assumed."""
    return Source("fitted", f"{where}; of our own kernels no evidence", SHARES)


# -- the papers' -------------------------------------------------------------------------------------------------------

TITAN_X = Machine(
    name="titan-x", memory_bytes=12 * GIB, flops=7e12, bandwidth=336e9, link=12.8e9,
    multiprocessors=24, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    sources=(Source("paper", "vDNN (MICRO-49)", (*SIZES, *LINK)),
             fitted("convnet-benchmarks, cnn-benchmarks, DeepBench")),
)  # fmt: skip
K40C = Machine(
    name="k40c", memory_bytes=12 * GIB, flops=4.29e12, bandwidth=288e9, link=8e9,
    multiprocessors=15, efficiency=K40C_EFFICIENCY, catalogue="cudnn4",
    sources=(Source("data sheet", "NVIDIA BD-06902-001", SIZES),
             Source("paper", "as SuperNeurons' authors reached it", LINK),
             fitted("cnn-benchmarks, TensorFlow on a K80")),
)  # fmt: skip
TITAN_XP = Machine(
    name="titan-xp", memory_bytes=12 * GIB, flops=12.15e12, bandwidth=547.7e9, link=12.8e9,
    multiprocessors=30, efficiency=TITAN_XP_EFFICIENCY, catalogue="cudnn4",
    sources=(Source("data sheet", "NVIDIA's announcement: 3,840 cores at 1,582 MHz", SIZES),
             Source("assumed", "Titan X's", LINK), fitted("DeepBench, cnn-benchmarks on a Titan X (Pascal)")),
)  # fmt: skip
GTX_970 = Machine(
    name="gtx-970", memory_bytes=3584 * MIB, flops=3.9e12, bandwidth=224e9, link=12.8e9,  # of 4 GiB: the rest is slower
    multiprocessors=13, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    sources=(Source("data sheet", "1,664 cores at 1,178 MHz; 3.5 GiB of full speed (AnandTech 8935)", SIZES),
             Source("assumed", "Titan X's", LINK), Source("assumed", "Titan X's", SHARES)),
)  # fmt: skip

# -- others' -----------------------------------------------------------------------------------------------------------

FITS = {
    "v100": (V100_EFFICIENCY, "DeepBench, PyTorch"), "p100": (P100_EFFICIENCY, "DeepBench, TensorFlow"),
    "t4": (T4_EFFICIENCY, "DeepBench"),
}  # fmt: skip


def of_card(row: dict[str, str]) -> Machine:
    """The machine of a line of `cards.csv`: MiB, TFLOP/s in fp32, GB/s."""
    name, memory_from = row["name"], row["memory is from"]
    peaks = Source("data sheet", row["data sheet"], PEAKS if memory_from else SIZES)
    shares, where = FITS.get(name, (ASSUMED_EFFICIENCY, ""))
    return Machine(
        name, int(row["MiB"]) * MIB, float(f"{row['TFLOP/s']}e12"), float(f"{row['GB/s']}e9"),
        float(f"{row['link']}e9"), int(row["SMs"]), shares,
        sources=(peaks, *([Source("measured", memory_from, MEMORY)] if memory_from else []),
                 Source("measured" if row["how"] == "measured" else "assumed", row["link is from"], LINK),
                 fitted(where) if where else ASSUMED),
    )  # fmt: skip


with open(Path(__file__).with_name("cards.csv"), encoding="utf-8", newline="") as file:
    CARDS = [of_card(row) for row in csv.DictReader(file)]
MACHINES = {made.name: made for made in (TITAN_X, K40C, TITAN_XP, GTX_970, *CARDS)}
H100, V100, P100, T4 = (MACHINES[name] for name in ("h100", "v100", "p100", "t4"))

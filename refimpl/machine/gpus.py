"""The machines that have a name: the papers' GPUs, today's data centre GPUs, and GPUs that people own.

Rate, bandwidth and multiprocessors are the maker's peaks, memory is what a program can use, and a link is what copies
from pinned memory reach, one way.  `sources` says where each figure comes from; OWNER/NAME#NUMBER is an issue or a
pull request on GitHub.

What a library's kernels reach was fitted to public measurements, GPU by GPU (`refimpl.studies.reproduce.machines.fit`):
of Maxwell, Kepler, Pascal, Volta and Turing.  Of A100, H100, H200, L4 and the RTX cards there is no evidence: no figure
in fp32 of a single call was found, and V100's shares are assumed.  Our own kernels have run on no GPU: they are assumed
to reach what cuDNN R2's convolutions reached on Titan X.  The RTX cards and L4 share half of their fp32
lanes with integer arithmetic, so they may reach less.  `refimpl profile` measures instead.
"""

from __future__ import annotations

from dataclasses import replace

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


def nvidia_smi(where: str) -> Source:
    """Memory as `nvidia-smi` reports it."""
    return Source("measured", f"nvidia-smi, {where}", MEMORY)


MODAL = nvidia_smi("modal-labs/modal-client#2797")

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

# -- data centres' -----------------------------------------------------------------------------------------------------

H100 = Machine(
    name="h100", memory_bytes=81_559 * MIB, flops=66.9e12, bandwidth=3.35e12, link=52.8e9,
    multiprocessors=132, efficiency=ASSUMED_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA H100 SXM5; compute capability 9.0", PEAKS), MODAL,
             Source("measured", "NVIDIA/nvbandwidth#24", LINK), ASSUMED),
)  # fmt: skip
H200 = Machine(
    name="h200", memory_bytes=143_771 * MIB, flops=66.9e12, bandwidth=4.8e12, link=52.8e9,
    multiprocessors=132, efficiency=ASSUMED_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA H200 SXM5; compute capability 9.0", PEAKS),
             Source("measured", "as its driver reports it", MEMORY), Source("assumed", "H100's", LINK), ASSUMED),
)  # fmt: skip
A100_40G = Machine(
    name="a100-40g", memory_bytes=40_960 * MIB, flops=19.5e12, bandwidth=1.555e12, link=25.1e9,
    multiprocessors=108, efficiency=ASSUMED_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA A100 40GB; compute capability 8.0", PEAKS), MODAL,
             Source("measured", "A100-SXM4-40GB, NVIDIA/nvbandwidth#42", LINK), ASSUMED),
)  # fmt: skip
A100_80G = Machine(
    name="a100-80g", memory_bytes=81_920 * MIB, flops=19.5e12, bandwidth=2.039e12, link=25.1e9,
    multiprocessors=108, efficiency=ASSUMED_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA A100 80GB SXM4; compute capability 8.0", PEAKS), MODAL,
             Source("assumed", "a100-40g's, PCIe 4.0 x16 too", LINK), ASSUMED),
)  # fmt: skip
V100 = Machine(
    name="v100", memory_bytes=16_160 * MIB, flops=15.7e12, bandwidth=900e9, link=12e9,
    multiprocessors=80, efficiency=V100_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA V100 SXM2 16GB; compute capability 7.0", PEAKS),
             nvidia_smi("4paradigm/k8s-vgpu-scheduler#7"),
             Source("measured", "by BaM's authors, ZaidQureshi/bam#54", LINK), fitted("DeepBench, PyTorch")),
)  # fmt: skip
P100 = Machine(
    name="p100", memory_bytes=16 * GIB, flops=10.6e12, bandwidth=732e9, link=12e9,
    multiprocessors=56, efficiency=P100_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA P100 SXM2 16GB; compute capability 6.0", SIZES),
             Source("assumed", "v100's, PCIe 3.0 x16 too", LINK), fitted("DeepBench, TensorFlow")),
)  # fmt: skip
L4 = Machine(
    name="l4", memory_bytes=23_034 * MIB, flops=30.3e12, bandwidth=300e9, link=25.6e9,
    multiprocessors=58, efficiency=ASSUMED_EFFICIENCY,  # 30.3e12 / (2 * 128 lanes * 2.04 GHz)
    sources=(Source("data sheet", "NVIDIA L4; compute capability 8.9", PEAKS), MODAL,
             Source("assumed", "rtx-4090's, PCIe 4.0 x16 too", LINK), ASSUMED),
)  # fmt: skip
T4 = Machine(
    name="t4", memory_bytes=15_360 * MIB, flops=8.1e12, bandwidth=320e9, link=12e9,
    multiprocessors=40, efficiency=T4_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA T4; compute capability 7.5", PEAKS), MODAL,
             Source("assumed", "v100's, PCIe 3.0 x16 too", LINK), fitted("DeepBench")),
)  # fmt: skip

# -- people's ----------------------------------------------------------------------------------------------------------

RTX_4090 = Machine(
    name="rtx-4090", memory_bytes=24_564 * MIB, flops=82.6e12, bandwidth=1.008e12, link=25.6e9,
    multiprocessors=128, efficiency=ASSUMED_EFFICIENCY,
    sources=(Source("data sheet", "GeForce RTX 4090; compute capability 8.9", PEAKS),
             nvidia_smi("RLinf/RLinf#255"),
             Source("measured", "the mean of eight, NVIDIA/nvbandwidth#15", LINK), ASSUMED),
)  # fmt: skip
RTX_3060 = Machine(
    name="rtx-3060", memory_bytes=12_288 * MIB, flops=12.7e12, bandwidth=360e9, link=25.6e9,
    multiprocessors=28, efficiency=ASSUMED_EFFICIENCY,
    sources=(Source("data sheet", "GeForce RTX 3060 12GB; compute capability 8.6", PEAKS),
             nvidia_smi("geerlingguy/raspberry-pi-pcie-devices#790"),
             Source("assumed", "rtx-4090's, PCIe 4.0 x16 too", LINK), ASSUMED),
)  # fmt: skip

MACHINES = {
    made.name: made
    for made in (
        TITAN_X, K40C, TITAN_XP, GTX_970, H100, H200, A100_40G, A100_80G, V100, P100, L4, T4, RTX_4090, RTX_3060,
    )
}  # fmt: skip

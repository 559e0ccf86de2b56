"""The machines that have a name: the papers' GPUs, today's data centre GPUs, and GPUs that people own.

Rate, bandwidth and multiprocessors are the maker's peaks, memory is what a program can use, and a link is what copies
from pinned memory reach, one way.  `sources` says where each figure comes from; OWNER/NAME#NUMBER is an issue or a
pull request on GitHub.

Efficiencies were fitted on Titan X alone (`refimpl.studies.reproduce.calibration`); that other GPUs reach the
same shares of their peaks is an assumption, and that our own kernels are as good as cuDNN 4's direct ones is another.
The RTX cards and L4 share half of their fp32 lanes with integer arithmetic, so they may reach less.  `refimpl profile`
measures instead.
"""

from __future__ import annotations

from refimpl.machine.model import Efficiency, Machine, Source

GIB, MIB = 1 << 30, 1 << 20

#: Fitted, except `streaming`.  `products` is at its limit: complex numbers can be multiplied in fewer operations
#: than the eight that are counted.
TITAN_X_EFFICIENCY = Efficiency(forward=0.413, backward=0.323, products=1.0, transforms=0.300, streaming=0.70)

SIZES = ("memory_bytes", "flops", "bandwidth", "multiprocessors")
PEAKS = SIZES[1:]
MEMORY, LINK, SHARES = ("memory_bytes",), ("link",), ("efficiency",)
ASSUMED = Source("assumed", "Titan X's", SHARES)


def nvidia_smi(where: str) -> Source:
    """Memory as `nvidia-smi` reports it."""
    return Source("measured", f"nvidia-smi, {where}", MEMORY)


MODAL = nvidia_smi("modal-labs/modal-client#2797")

# -- the papers' -------------------------------------------------------------------------------------------------------

TITAN_X = Machine(
    name="titan-x", memory_bytes=12 * GIB, flops=7e12, bandwidth=336e9, link=12.8e9,
    multiprocessors=24, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    sources=(Source("paper", "vDNN (MICRO-49)", (*SIZES, *LINK)),
             Source("fitted", "on convnet-benchmarks, cuDNN R4 and R2", SHARES)),
)  # fmt: skip
K40C = Machine(
    name="k40c", memory_bytes=12 * GIB, flops=4.29e12, bandwidth=288e9, link=8e9,
    multiprocessors=15, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    sources=(Source("data sheet", "NVIDIA BD-06902-001", SIZES),
             Source("paper", "as SuperNeurons' authors reached it", LINK), ASSUMED),
)  # fmt: skip
TITAN_XP = Machine(
    name="titan-xp", memory_bytes=12 * GIB, flops=12.15e12, bandwidth=547.7e9, link=12.8e9,
    multiprocessors=30, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    sources=(Source("data sheet", "NVIDIA's announcement: 3,840 cores at 1,582 MHz", SIZES),
             Source("assumed", "Titan X's", LINK), ASSUMED),
)  # fmt: skip
GTX_970 = Machine(
    name="gtx-970", memory_bytes=3584 * MIB, flops=3.9e12, bandwidth=224e9, link=12.8e9,  # of 4 GiB: the rest is slower
    multiprocessors=13, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    sources=(Source("data sheet", "1,664 cores at 1,178 MHz; 3.5 GiB of full speed (AnandTech 8935)", SIZES),
             Source("assumed", "Titan X's", LINK), ASSUMED),
)  # fmt: skip

# -- data centres' -----------------------------------------------------------------------------------------------------

H100 = Machine(
    name="h100", memory_bytes=81_559 * MIB, flops=66.9e12, bandwidth=3.35e12, link=52.8e9,
    multiprocessors=132, efficiency=TITAN_X_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA H100 SXM5; compute capability 9.0", PEAKS), MODAL,
             Source("measured", "NVIDIA/nvbandwidth#24", LINK), ASSUMED),
)  # fmt: skip
H200 = Machine(
    name="h200", memory_bytes=143_771 * MIB, flops=66.9e12, bandwidth=4.8e12, link=52.8e9,
    multiprocessors=132, efficiency=TITAN_X_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA H200 SXM5; compute capability 9.0", PEAKS),
             Source("measured", "as its driver reports it", MEMORY), Source("assumed", "H100's", LINK), ASSUMED),
)  # fmt: skip
A100_40G = Machine(
    name="a100-40g", memory_bytes=40_960 * MIB, flops=19.5e12, bandwidth=1.555e12, link=25.1e9,
    multiprocessors=108, efficiency=TITAN_X_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA A100 40GB; compute capability 8.0", PEAKS), MODAL,
             Source("measured", "A100-SXM4-40GB, NVIDIA/nvbandwidth#42", LINK), ASSUMED),
)  # fmt: skip
A100_80G = Machine(
    name="a100-80g", memory_bytes=81_920 * MIB, flops=19.5e12, bandwidth=2.039e12, link=25.1e9,
    multiprocessors=108, efficiency=TITAN_X_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA A100 80GB SXM4; compute capability 8.0", PEAKS), MODAL,
             Source("assumed", "a100-40g's, PCIe 4.0 x16 too", LINK), ASSUMED),
)  # fmt: skip
V100 = Machine(
    name="v100", memory_bytes=16_160 * MIB, flops=15.7e12, bandwidth=900e9, link=12e9,
    multiprocessors=80, efficiency=TITAN_X_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA V100 SXM2 16GB; compute capability 7.0", PEAKS),
             nvidia_smi("4paradigm/k8s-vgpu-scheduler#7"),
             Source("measured", "by BaM's authors, ZaidQureshi/bam#54", LINK), ASSUMED),
)  # fmt: skip
L4 = Machine(
    name="l4", memory_bytes=23_034 * MIB, flops=30.3e12, bandwidth=300e9, link=25.6e9,
    multiprocessors=58, efficiency=TITAN_X_EFFICIENCY,  # 30.3e12 / (2 * 128 lanes * 2.04 GHz)
    sources=(Source("data sheet", "NVIDIA L4; compute capability 8.9", PEAKS), MODAL,
             Source("assumed", "rtx-4090's, PCIe 4.0 x16 too", LINK), ASSUMED),
)  # fmt: skip
T4 = Machine(
    name="t4", memory_bytes=15_360 * MIB, flops=8.1e12, bandwidth=320e9, link=12e9,
    multiprocessors=40, efficiency=TITAN_X_EFFICIENCY,
    sources=(Source("data sheet", "NVIDIA T4; compute capability 7.5", PEAKS), MODAL,
             Source("assumed", "v100's, PCIe 3.0 x16 too", LINK), ASSUMED),
)  # fmt: skip

# -- people's ----------------------------------------------------------------------------------------------------------

RTX_4090 = Machine(
    name="rtx-4090", memory_bytes=24_564 * MIB, flops=82.6e12, bandwidth=1.008e12, link=25.6e9,
    multiprocessors=128, efficiency=TITAN_X_EFFICIENCY,
    sources=(Source("data sheet", "GeForce RTX 4090; compute capability 8.9", PEAKS),
             nvidia_smi("RLinf/RLinf#255"),
             Source("measured", "the mean of eight, NVIDIA/nvbandwidth#15", LINK), ASSUMED),
)  # fmt: skip
RTX_3060 = Machine(
    name="rtx-3060", memory_bytes=12_288 * MIB, flops=12.7e12, bandwidth=360e9, link=25.6e9,
    multiprocessors=28, efficiency=TITAN_X_EFFICIENCY,
    sources=(Source("data sheet", "GeForce RTX 3060 12GB; compute capability 8.6", PEAKS),
             nvidia_smi("geerlingguy/raspberry-pi-pcie-devices#790"),
             Source("assumed", "rtx-4090's, PCIe 4.0 x16 too", LINK), ASSUMED),
)  # fmt: skip

MACHINES = {
    made.name: made
    for made in (
        TITAN_X, K40C, TITAN_XP, GTX_970, H100, H200, A100_40G, A100_80G, V100, L4, T4, RTX_4090, RTX_3060,
    )
}  # fmt: skip

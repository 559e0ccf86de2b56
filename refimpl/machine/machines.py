"""The machines that have a name: the papers' GPUs and two of today's.

Peaks are the makers'; a link is what copies from pinned memory were measured to reach, one way.  `source` says where a
machine's figures come from.  Efficiencies were fitted on Titan X alone (`refimpl.machine.calibration`); that other GPUs
reach the same shares of their peaks is an assumption, and that our own kernels are as good as cuDNN 4's direct ones is
another: `refimpl profile` measures instead.
"""

from __future__ import annotations

from refimpl.machine.model import Efficiency, Machine

GIB, MIB = 1 << 30, 1 << 20
ASSUMED = "efficiencies: Titan X's, assumed"

#: Fitted, except `streaming`.  `products` is at its limit: complex numbers can be multiplied in fewer operations
#: than the eight that are counted.
TITAN_X_EFFICIENCY = Efficiency(forward=0.413, backward=0.323, products=1.0, transforms=0.300, streaming=0.70)

TITAN_X = Machine(
    name="titan-x", memory_bytes=12 * GIB, flops=7e12, bandwidth=336e9, link=12.8e9,
    multiprocessors=24, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    source="vDNN (MICRO-49) for sizes, peaks and link; efficiencies fitted on convnet-benchmarks, cuDNN R4",
)  # fmt: skip
K40C = Machine(
    name="k40c", memory_bytes=12 * GIB, flops=4.29e12, bandwidth=288e9, link=8e9,
    multiprocessors=15, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    source=f"NVIDIA BD-06902-001 for sizes and peaks; link as SuperNeurons' authors reached it; {ASSUMED}",
)  # fmt: skip
TITAN_XP = Machine(
    name="titan-xp", memory_bytes=12 * GIB, flops=12.15e12, bandwidth=547.7e9, link=12.8e9,
    multiprocessors=30, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    source=f"3,840 cores at 1,582 MHz, 547.7 GB/s (maker's announcement); link as Titan X's; {ASSUMED}",
)  # fmt: skip
GTX_970 = Machine(
    name="gtx-970", memory_bytes=3584 * MIB, flops=3.9e12, bandwidth=224e9, link=12.8e9,  # of 4 GiB: the rest is slower
    multiprocessors=13, efficiency=TITAN_X_EFFICIENCY, catalogue="cudnn4",
    source=f"1,664 cores at 1,178 MHz, 224 GB/s, 3.5 GiB of full speed (AnandTech 8935); link as Titan X's; {ASSUMED}",
)  # fmt: skip
H100 = Machine(
    name="h100", memory_bytes=81_559 * MIB, flops=66.9e12, bandwidth=3.35e12, link=52.8e9,
    multiprocessors=132, efficiency=TITAN_X_EFFICIENCY,
    source=f"SXM5's data sheet; memory as its driver reports it; link: NVIDIA/nvbandwidth, issue 24; {ASSUMED}",
)  # fmt: skip
H200 = Machine(
    name="h200", memory_bytes=143_771 * MIB, flops=66.9e12, bandwidth=4.8e12, link=52.8e9,
    multiprocessors=132, efficiency=TITAN_X_EFFICIENCY,
    source=f"SXM5's data sheet; memory as its driver reports it; link as H100's; {ASSUMED}",
)  # fmt: skip

MACHINES = {made.name: made for made in (TITAN_X, K40C, TITAN_XP, GTX_970, H100, H200)}

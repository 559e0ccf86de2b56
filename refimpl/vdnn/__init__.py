"""vDNN: virtualized deep neural networks, Rhu et al., MICRO-49 2016 (arXiv 1602.08124).

| module | the paper |
| --- | --- |
| `offload` | which feature maps are offloaded, which one is prefetched, and when: §3.2, Figure 10 |
| `presets` | vDNN-all, vDNN-conv, the dynamic policy that tries them, its greedy choice of algorithms: §3.3 |
"""

from refimpl.vdnn.offload import ALL, CONV, LITERAL, WINDOW, OffloadInputs
from refimpl.vdnn.presets import VDNN_ALL, VDNN_CONV, VDNN_DYN, Greedy, static

__all__ = [
    "ALL", "CONV", "LITERAL", "VDNN_ALL", "VDNN_CONV", "VDNN_DYN", "WINDOW", "Greedy", "OffloadInputs", "static",
]  # fmt: skip

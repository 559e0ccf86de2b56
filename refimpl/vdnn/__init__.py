"""vDNN: virtualized deep neural networks, Rhu et al., MICRO-49 2016 (arXiv 1602.08124).

| module | the paper |
| --- | --- |
| `offload` | which feature maps are offloaded, and when: §3.2 |
| `prefetch` | which one is prefetched, and when: §3.2, Figure 10 |
| `algorithms` | the greedy choice of convolution algorithms: §3.3 |
| `presets` | vDNN-all, vDNN-conv, and the dynamic policy that tries them: §3.3 |
"""

from refimpl.vdnn.algorithms import Greedy
from refimpl.vdnn.offload import ALL, CONV, OffloadInputs
from refimpl.vdnn.prefetch import LITERAL, WINDOW
from refimpl.vdnn.presets import VDNN_ALL, VDNN_CONV, VDNN_DYN, static

__all__ = [
    "ALL", "CONV", "LITERAL", "VDNN_ALL", "VDNN_CONV", "VDNN_DYN", "WINDOW", "Greedy", "OffloadInputs", "static",
]  # fmt: skip

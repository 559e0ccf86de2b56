"""vDNN: virtualized deep neural networks, Rhu et al., MICRO-49 2016 (arXiv 1602.08124).

| module | the paper |
| --- | --- |
| `offload` | which feature maps leave for the host, and when: §3.2 |
| `prefetch` | which one comes back, and when: §3.2, the search of Figure 10 |
| `algorithms` | the greedy choice of convolution algorithms: §3.3 |
| `policies` | vDNN-all, vDNN-conv, and the dynamic policy that tries them: §3.3 |
"""

from refimpl.vdnn.algorithms import Greedy
from refimpl.vdnn.offload import ALL, CONV, OffloadInputs
from refimpl.vdnn.policies import Dynamic, static
from refimpl.vdnn.prefetch import LITERAL, WINDOW, Window

__all__ = ["ALL", "CONV", "LITERAL", "WINDOW", "Dynamic", "Greedy", "OffloadInputs", "Window", "static"]

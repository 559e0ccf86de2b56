"""vDNN++: dynamic memory management without vDNN's stalls, Shriram, Garg, Kulkarni, IPDPS 2019.

Of the paper only the abstract was at hand; what the modules do was read off the behaviour of the authors' public code,
or is our reconstruction, and says so.

| module | what of vDNN it changes |
| --- | --- |
| `release` | no join at a layer's end: maps are freed when their reader and their copy are done |
| `offload` | whose inputs leave: of all layers, of conv, of every second conv |
| `presets` | the static policies, and which one is taken, by what fits |
| `pool_search` | fragmentation: how large the pool must be, and where what stays is placed |
| `pinned` | pinned memory on demand, and maps compressed by threads of the host |

It extends vDNN, and so takes vDNN's search and its way to offload; its modules go with the other papers' modules too.
"""

from refimpl.vdnnpp.offload import ALL, ALTERNATE_CONV, CONV, OffloadInputs
from refimpl.vdnnpp.pinned import Compressed, OnDemand
from refimpl.vdnnpp.prefetch import WINDOW, WINDOW_LATE
from refimpl.vdnnpp.presets import VDNNPP_ALL, VDNNPP_ALTERNATE_CONV, VDNNPP_CONV, VDNNPP_DYN, static

__all__ = [
    "ALL", "ALTERNATE_CONV", "CONV", "VDNNPP_ALL", "VDNNPP_ALTERNATE_CONV", "VDNNPP_CONV", "VDNNPP_DYN", "WINDOW",
    "WINDOW_LATE", "Compressed", "OffloadInputs", "OnDemand", "static",
]  # fmt: skip

"""vDNN++: dynamic memory management without vDNN's stalls, Shriram, Garg, Kulkarni, IPDPS 2019.

Only the abstract of the paper was at hand; what the modules do was read off the behaviour of the authors' public code,
or is our reconstruction, and says so.

| module | what of vDNN it changes |
| --- | --- |
| `prefetch` | `findPrefetchLayer` is called by more layers: §1 |
| `offload` | whose inputs are offloaded: of all layers, of CONVs, of every second CONV: §2 |
| `presets` | no join at a layer's end: §1; the static policies, and which one is taken, by what fits: §2 |
| `pool_search` | fragmentation: how large the pool must be, and where blocks that stay are placed: §3 |
| `pinned` | pinned buffers on demand: §4 |
| `compression` | which maps threads of the host compress, and when: §4 |
| `packing` | how: a codec for zeros: §4 |

The search and the rule that the last reader of a map sends it are vDNN's (`refimpl.slots.window`, `last_consumer`).
The modules work beside the other papers' modules too.
"""

from refimpl.vdnnpp.compression import Compressed, never_negative, stored_bytes
from refimpl.vdnnpp.offload import ALL, ALTERNATE_CONV, CONV, VDNN_ALL, OffloadInputsOf
from refimpl.vdnnpp.pinned import OnDemand
from refimpl.vdnnpp.pool_search import FoundPool, find_pool
from refimpl.vdnnpp.prefetch import WINDOW, WINDOW_LATE, WINDOW_NO_POOL, FindPrefetchLayer
from refimpl.vdnnpp.presets import (
    VDNNPP_ALL,
    VDNNPP_ALTERNATE_CONV,
    VDNNPP_CONV,
    VDNNPP_DYN,
    VDNNPP_VDNN_ALL,
    static,
    with_join,
    without_join,
)

__all__ = [
    "ALL", "ALTERNATE_CONV", "CONV", "VDNNPP_ALL", "VDNNPP_ALTERNATE_CONV", "VDNNPP_CONV", "VDNNPP_DYN",
    "VDNNPP_VDNN_ALL", "VDNN_ALL", "WINDOW", "WINDOW_LATE", "WINDOW_NO_POOL", "Compressed", "FindPrefetchLayer",
    "FoundPool", "OffloadInputsOf", "OnDemand", "find_pool", "never_negative", "packing", "static", "stored_bytes",
    "with_join", "without_join",
]  # fmt: skip

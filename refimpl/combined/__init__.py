"""The four papers in one: every map is kept, offloaded or dropped, and the planner itself judges each choice.

It is ours, no paper's.

| module | what it has |
| --- | --- |
| `fates` | map → fate, as a thing to hold, print and edit |
| `carried_out` | the modules of recompute, offload and prefetch that carry fates out, and algorithms for them |
| `file` | fates in a file |
| `farthest` | a cache that evicts what is needed last |
| `papers` | the papers' setups, which the search begins from |
| `maps` | how long each map is away, and what rebuilding it costs |
| `seeds` | the two-parameter family of fates: read this first |
| `smaller_pool` | a pool of less than the budget, which has other holes |
| `judge` | the planner as the judge of a setup |
| `search` | the search, and the preset `combined` |
"""

from refimpl.combined.carried_out import Dropped, InTime, Offloaded, OnceDrained
from refimpl.combined.farthest import FarthestNextUse
from refimpl.combined.fates import Fates
from refimpl.combined.file import FILLED, Saved, load, saved, setup_with, text
from refimpl.combined.maps import Maps
from refimpl.combined.search import COMBINED, Combined
from refimpl.combined.seeds import ALGORITHMS, fates_of, prices, seed
from refimpl.planner.losses import Losses

__all__ = [
    "ALGORITHMS", "COMBINED", "FILLED", "Combined", "Dropped", "FarthestNextUse", "Fates", "InTime", "Losses",
    "Maps", "Offloaded", "OnceDrained", "Saved", "fates_of", "fixed", "fixed_pool", "load", "placing", "prices",
    "saved", "seed", "setup_with", "text",
]  # fmt: skip

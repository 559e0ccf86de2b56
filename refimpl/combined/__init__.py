"""The four papers in one: every map is kept, offloaded or dropped, and the planner itself judges each choice.

It is ours, no paper's.

| module | what it has |
| --- | --- |
| `fates` | map → fate, as a thing to hold, print and edit |
| `modules` | the modules of recompute, offload and prefetch that carry fates out |
| `file` | fates in a file |
"""

from refimpl.combined.fates import Fates
from refimpl.combined.file import Saved, load, saved, setup_with, text
from refimpl.combined.modules import Dropped, InTime, Offloaded

__all__ = ["Dropped", "Fates", "InTime", "Offloaded", "Saved", "load", "saved", "setup_with", "text"]

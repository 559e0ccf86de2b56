"""Four neighbours of the papers, as modules in the same slots.

sublinear           Chen et al. 2016: √n segments
rematerialization   DTR, Kirisame et al. 2021: an eviction heuristic, and recomputation on demand (`on_demand`)
rotor               Rotor, Beaumont et al. 2019: the optimal schedule of a chain
save_on_cpu         PyTorch's hooks that copy every saved tensor to the host
"""

from refimpl.studies.neighbours.rematerialization import DTR
from refimpl.studies.neighbours.rotor import ROTOR
from refimpl.studies.neighbours.save_on_cpu import SAVE_ON_CPU
from refimpl.studies.neighbours.sublinear import CHEN

__all__ = ["CHEN", "DTR", "ROTOR", "SAVE_ON_CPU"]

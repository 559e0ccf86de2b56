"""SuperNeurons' evaluation, part by part; `published.json` has the published figures, `memory` says where from.

memory      the curve of AlexNet(200), networks without and with each technique, types of layers, recomputation
speed       the tensor cache, workspaces, the heap, speed by batch
capacity    the largest batches and the deepest ResNet
"""

from refimpl.studies.reproduce.superneurons import capacity, memory, speed
from refimpl.studies.reproduce.superneurons.memory import FIGURES

PARTS = (*memory.PARTS, *speed.PARTS, *capacity.PARTS)

__all__ = ["FIGURES", "PARTS"]

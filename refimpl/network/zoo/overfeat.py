"""OverFeat, the fast model (Sermanet and others, 2013), as convnet-benchmarks has it and vDNN measured it."""

from __future__ import annotations

from refimpl.network.builder import Builder
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.network import Network
from refimpl.network.zoo.parts import five_convolutions, spelled


def overfeat(batch: int = 128, conventions: Conventions = VDNN) -> Network:
    """3×231², five convolutions, 2×2 pooling without overlap, three fully connected layers."""
    b = Builder(spelled("overfeat", conventions), (batch, 3, 231, 231), conventions)
    convolutions = ((96, 11, 4, 0), (256, 5, 1, 0), (512, 3, 1, 1), (1024, 3, 1, 1), (1024, 3, 1, 1))
    return five_convolutions(b, convolutions, pool=(2, 2), outputs=(3072, 4096))

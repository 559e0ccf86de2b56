"""OverFeat, the fast model (Sermanet and others, 2013), as convnet-benchmarks has it and vDNN measured it."""

from __future__ import annotations

from refimpl.network.builder import Builder
from refimpl.network.conventions import VDNN, Conventions
from refimpl.network.network import Network
from refimpl.network.zoo.parts import spelled


def overfeat(batch: int = 128, conventions: Conventions = VDNN) -> Network:
    """3×231², five convolutions, 2×2 pooling without overlap, three fully connected layers."""
    b = Builder(spelled("overfeat", conventions), (batch, 3, 231, 231), conventions)
    convolutions = ((96, 11, 4, 0), (256, 5, 1, 0), (512, 3, 1, 1), (1024, 3, 1, 1), (1024, 3, 1, 1))
    for i, (filters, window, stride, pad) in enumerate(convolutions, 1):
        b.conv(filters, window, stride, pad, name=f"conv{i}")
        b.relu(name=f"relu{i}")
        if i in (1, 2, 5):
            b.pool(2, name=f"pool{i}")
    for i, outputs in ((6, 3072), (7, 4096)):
        b.fc(outputs, name=f"fc{i}")
        b.relu(name=f"relu{i}")
    b.fc(1000, name="fc8")
    b.softmax(name="softmax")
    return b.build()

"""AccUDNN on this computer: ResNet-152 within a budget, and the same kernels without one."""

from __future__ import annotations

from refimpl.registry import planning
from refimpl.reproduce.measured import Comparison, Request


def rounds(backend: str, iterations: int) -> int:
    """How often `measure` calls its progress callback."""
    return 2 * iterations


def measure(ask: Request) -> Comparison:
    """Without a network of its own: 64 images of ResNet-152."""
    network = ask.build("resnet152", 64)
    return ask.compare(network, planning.budget_bytes(ask.budget, network, ask.machine))

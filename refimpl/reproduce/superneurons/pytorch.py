"""PyTorch within the same budget, on the CPU: its largest batch, with and without its ways of saving memory.

The paper compares SuperNeurons with Caffe, MXNet, Torch and TensorFlow on a GPU (Figures 13 and 14).  This is a small
comparison of the same kind, with a framework of today.

The bytes are those of all tensors that an iteration holds at once: weights, gradients, momentum, the batch, maps.
Scratch memory inside an operator is not among them.  PyTorch has one thread: several of them wait for each other on
a processor that others use too.  It is optional: `pip install torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from refimpl.backend.pytorch import Training
from refimpl.machine.timing import Run, by, least_in_turns
from refimpl.network import Network
from refimpl.reproduce.published import Watch


@dataclass(frozen=True)
class TorchRun:
    """PyTorch's largest batch in a budget.  Bytes, seconds of an iteration."""

    way: str
    batch: int
    peak_bytes: int
    pinned_bytes: int  #: of the copies on the host, at most
    seconds: float

    @property
    def images_rate(self) -> float:
        return self.batch / self.seconds


def largest(build: Callable[[int], Network], way: str, budget: int, iterations: int, watch: Watch) -> TorchRun | None:
    """The most images with which PyTorch trains a network within the budget; None if not one image fits.

    Args:
        build: batch → the network.
        way: one of `WAYS`.
        budget: bytes.
        iterations: timed ones; the least time counts.
        watch: called with the name of each timed iteration.
    """
    nbytes = {0: 0, 1: Training(build(1), way).peak().device}  # batch → what it takes
    fits, over = 0, 1
    while nbytes[over] <= budget:
        fits, over = over, 2 * over
        nbytes[over] = Training(build(over), way).peak().device
    while over - fits > 1:
        slope = (nbytes[over] - nbytes[fits]) / (over - fits)  # bytes are almost linear in images
        batch = min(max(fits + int((budget - nbytes[fits]) / slope), fits + 1), over - 1)
        nbytes[batch] = Training(build(batch), way).peak().device
        fits, over = (batch, over) if nbytes[batch] <= budget else (fits, batch)
    if not fits:
        return None
    training = Training(build(fits), way)
    peak = training.peak()

    def watched(run: Run, times: int) -> float:
        watch(f"{way}: an iteration")
        return by()(run, times)

    seconds = least_in_turns({way: training.step}, watched, iterations)[way]
    return TorchRun(way, fits, peak.device, peak.host, seconds)

"""What a plan of a network as PyTorch keeps it does not count, each with its least and its most bytes.

A plan predicts what `torch.cuda.max_memory_allocated` counts: the bytes of all tensors, rounded up.  Most items are a
part of that figure, too, and cannot be known before a run.  The others are beside it, and take device memory as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from refimpl.network import Layer, Network
from refimpl.network.tensor import ITEM_BYTES, Tensor
from refimpl.planner import Program
from refimpl.text import counted

BLOCK = 512  #: bytes: PyTorch's allocator hands out multiples of it
MIB = 1 << 20
RECURRENT = "lstm", "gru", "rnn_tanh", "rnn_relu"
CUDNN, OPTIMISER = "cuDNN's workspaces", "the optimiser's temporaries"
CUBLAS = 8_519_680, 32 * MIB  #: a handle's workspace: PyTorch's default before Hopper, and on it


class Uncounted(NamedTuple):
    """Bytes that a plan does not count; without a most, that is not known here."""

    name: str
    least: int
    most: int | None
    why: str
    allocated: bool = True  #: whether `max_memory_allocated` counts it


def uncounted(program: Program) -> list[Uncounted]:
    """The items of a network as PyTorch keeps it; none of any other."""
    network = program.network
    if not network.conventions.as_pytorch:
        return []
    there = [*network.resident, *_alive_at_the_peak(program)]
    rounded = program.setup.allocator.open(0).rounded
    rounding = sum(abs(tensor.nbytes + -tensor.nbytes % BLOCK - rounded(tensor.nbytes)) for tensor in there)
    learnt = sum(tensor.nbytes for tensor in network.managed if tensor.kind == "weight gradient")
    outputs = sum(x.nbytes for x in network.layers[-1].inputs)
    loss = [] if _counts_its_loss(network) else [Uncounted("the loss", 0, 2 * outputs, "it is not part of the module")]
    return [
        Uncounted("rounding", 0, rounding, f"of {counted(len(there), 'block')} to {BLOCK} bytes, beside this pool's"),
        Uncounted(CUDNN, 0, _columns(network.layers), "the most: a convolution by columns"),
        *_reserves(network.layers),
        Uncounted("cuBLAS's workspace", CUBLAS[0], CUBLAS[1], "its default, by the GPU"),
        Uncounted(OPTIMISER, 0, learnt, "of its steps for all parameters at once"),
        *loss,
        Uncounted("fragmentation", 0, None, "of what the allocator reserves", allocated=False),
        Uncounted("the context", 0, None, "of CUDA and its libraries", allocated=False),
    ]  # fmt: skip


def _alive_at_the_peak(program: Program) -> Iterable[Tensor]:
    step = max(program.rows, key=lambda row: row.transient_bytes).step.number
    return {
        life.tensor
        for life in program.lifetimes()
        if life.allocate.step <= step and (life.free is None or life.free.released >= step)
    }


def _columns(layers: Iterable[Layer]) -> int:
    """Bytes of the largest convolution's input as columns of a matrix: one for each output, one number for each tap."""
    found = [0]
    for layer in layers:
        if layer.operation is not None and layer.operation.operator.startswith("conv"):
            weight = next((one.weight for one in layer.uses if len(one.weight.shape) > 2), None)
            if weight is not None:
                found.append(layer.y.nbytes // layer.shape[1] * prod(weight.shape[1:]))
    return max(found)


def _reserves(layers: Iterable[Layer]) -> list[Uncounted]:
    """What cuDNN keeps of recurrent layers for backward, beside what a CPU keeps: its size is not published."""
    most = 0
    for layer in layers:
        op = layer.operation
        if op is None or op.operator not in RECURRENT:
            continue
        hidden = [one.storage.shape for one in op.state if "weight_hh" in one.source]
        directions = 2 if any("_reverse" in one.source for one in op.state) else 1
        for rows, width in hidden:
            steps = prod(op.makes[0].shape) // (width * directions)  # of all texts
            most += steps * (rows + 2 * width) * ITEM_BYTES
    why = "of recurrent layers; the most: gates, cell and output of every step"
    return [Uncounted("cuDNN's reserve", 0, most, why)] if most else []


def _counts_its_loss(network: Network) -> bool:
    """Whether the module returns its loss, alone or beside others, or the loss was seen beside it."""
    end = network.layers[-1]
    seen = end.operation is not None and bool(end.operation.backward_levels)
    return seen or 1 in [prod(x.shape) for x in end.inputs]

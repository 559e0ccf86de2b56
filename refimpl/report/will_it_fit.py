"""Whether training a PyTorch module fits a card: what it takes, beside what can be used.

A plan predicts the bytes of all tensors.  What it does not count has a least and a most (`uncounted`), and so has the
sum.  Two items are no part of it.  cuDNN's workspaces take what is left: where memory is short, PyTorch takes a smaller
one, or another algorithm.  And for fragmentation there is no figure.
"""

from __future__ import annotations

from typing import NamedTuple

from refimpl.machine import Machine
from refimpl.planner import Program
from refimpl.report.uncounted import CUDNN, NAMES, OPTIMISER, forward_only, uncounted
from refimpl.slots.context import uses_of
from refimpl.text import UNITS

#: Bytes of CUDA and its libraries in a process, an assumption: about 300 MB with kernels that are loaded when they are
#: first called (CUDA 11.7 and later; pytorch/pytorch#107667), and those that training calls.
CONTEXT = 512 << 20


class Need(NamedTuple):
    """Device memory of one iteration of training, in bytes, with weights and the optimiser's states."""

    predicted: int
    least: int
    most: int

    def __str__(self) -> str:
        unit, name = next(((unit, name) for unit, name in UNITS if self.least >= unit), (1, "bytes"))
        numbers = (nbytes / unit for nbytes in self)
        predicted, least, most = (f"{number:.3g}" if number < 1000 else f"{number:.0f}" for number in numbers)
        return f"{predicted} {name} ({least} to {most})"


def need(program: Program) -> Need:
    """What a program takes.

    Names in forward may keep maps while forward runs.  They count where the module runs as it is: a plan is for the
    maps that it orders, and its report says which of them others have kept.
    """
    network, plain = program.network, not moves(program)
    items = {one.name: one for one in uncounted(program)}
    around = [one for name, one in items.items() if one.allocated and name not in (CUDNN, NAMES, OPTIMISER)]
    least, most = sum(one.least for one in around), sum(one.most or 0 for one in around)
    uses = uses_of(network)
    ends = [(uses[tensor][-1].number, tensor.nbytes) for tensor in forward_only(network)] if plain else []
    levels = [
        row.transient_bytes + sum(nbytes for last, nbytes in ends if row.step.forward and last < row.step.number)
        for row in program.rows
    ]
    learnt = items[OPTIMISER].most or 0
    predicted = network.resident_bytes + max(row.transient_bytes for row in program.rows)
    highest = network.resident_bytes + max(*levels, 2 * learnt)  # the optimiser's step: gradients and temporaries
    return Need(predicted, predicted + least, highest + most)


def moves(program: Program) -> bool:
    """Whether a program offloads or recomputes a map."""
    decided = program.decisions()
    return bool(decided["predicted"]["out"]) or any(one["recomputed"] for one in decided["maps"].values())


def usable_bytes(machine: Machine) -> int:
    """Device memory without the context's; of a processor all."""
    on_processor = any("the CPU at hand" in source.where for source in machine.sources)
    return machine.memory_bytes - (0 if on_processor else CONTEXT)


def budget_of(plain: Program) -> int:
    """The budget for which a plan is made on a machine, in bytes: what can be used, with room for what is not counted.

    Args:
        plain: the program of the baseline.
    """
    items = [one for one in uncounted(plain) if one.allocated and one.name not in (CUDNN, NAMES, OPTIMISER)]
    return usable_bytes(plain.machine) - sum(one.most or 0 for one in items)

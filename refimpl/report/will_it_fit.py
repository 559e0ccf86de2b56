"""Whether training a PyTorch module fits a card: what it takes, beside what can be used.

A plan predicts the bytes of all tensors.  What it does not count has a least and a most (`uncounted`), and so has the
sum.  Two items are no part of it.  cuDNN's workspaces take what is left: where memory is short, PyTorch takes a smaller
one, or another algorithm.  And for fragmentation there is no figure.
"""

from __future__ import annotations

from typing import NamedTuple

from refimpl.machine import Machine
from refimpl.planner import Program
from refimpl.report.uncounted import CUDNN, OPTIMISER, Uncounted, uncounted
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
    """What a program of a network as PyTorch keeps it takes."""
    network = program.network
    items = {one.name: one for one in uncounted(program)}
    around = counted_around(program)
    least, most = sum(one.least for one in around), sum(one.most or 0 for one in around)
    peak = max(row.transient_bytes for row in program.rows)
    step = 2 * (items[OPTIMISER].most or 0)  # the optimiser's has gradients and temporaries
    predicted = network.resident_bytes + peak
    return Need(predicted, predicted + least, network.resident_bytes + max(peak, step) + most)


def counted_around(program: Program) -> list[Uncounted]:
    """What is there at every moment, and not counted."""
    return [one for one in uncounted(program) if one.allocated and one.name not in (CUDNN, OPTIMISER)]


def parts(program: Program) -> dict[str, int]:
    """What the memory is taken by where most of it is, in bytes, by the words of PyTorch's users."""
    network, row = program.network, max(program.rows, key=lambda row: row.transient_bytes)
    gradients = [life for life in program.lifetimes() if life.tensor.kind == "weight gradient"]
    there = (one for one in gradients if one.allocate.step <= row.step.number)
    made = sum(one.tensor.nbytes for one in there if one.free is None or one.free.step > row.step.number)
    of = dict.fromkeys(("weight", "momentum"), 0)
    for tensor in network.resident:
        if tensor.kind in of:
            of[tensor.kind] += tensor.nbytes
    return {
        "weights": of["weight"], "gradients": made, "optimiser": of["momentum"],
        "activations": row.transient_bytes - made, "batch and buffers": network.resident_bytes - sum(of.values()),
    }  # fmt: skip


def moves(program: Program) -> bool:
    """Whether a program offloads or recomputes a map."""
    decided = program.decisions()
    return bool(decided["predicted"]["out"]) or any(one["recomputed"] for one in decided["maps"].values())


def usable_bytes(machine: Machine) -> int:
    """Device memory without the context's; all of it where the CPU's is the same."""
    return machine.memory_bytes - (0 if has_one_memory(machine) else CONTEXT)


def has_one_memory(machine: Machine) -> bool:
    """Whether the machine is a processor, or a chip with one: what is offloaded there is in the same memory."""
    return any("the CPU" in source.where for source in machine.sources)


def budget_of(plain: Program) -> int:
    """The budget for which a plan is made on a machine, in bytes: what can be used, with room for what is not counted.

    Args:
        plain: the program of the baseline.
    """
    return usable_bytes(plain.machine) - sum(one.most or 0 for one in counted_around(plain))

"""The forward-only program beside a training program: in the same arena, with the same weights at the same addresses.

The resident tensors are placed first, in the same order and by the same allocator, so their addresses agree.  The
predictions come last: training does without them, but for those of the papers' loss, the softmax.
"""

from __future__ import annotations

from refimpl.backend.run_errors import RunError
from refimpl.planner import DoesNotFit, Program, SetupError, plan
from refimpl.slots.algorithms import MemoryOptimal
from refimpl.slots.baseline import LayerWise, NoCache, NoOffload, NoPrefetch, NoRecompute


def inference_program(training: Program) -> Program:
    """The program of `training.network.inference()` within the same budget.

    Raises `DoesNotFit`, and `RunError` where the weights of the training program were moved.
    """
    forward_only = {
        "recompute": NoRecompute(), "offload": NoOffload(), "prefetch": NoPrefetch(), "liveness": LayerWise(),
        "algorithms": MemoryOptimal(),
    }  # fmt: skip
    try:  # what pushes tensors out when memory is short may do so here too
        setup = training.setup.replace(**forward_only)
    except SetupError:
        setup = training.setup.replace(cache=NoCache(), **forward_only)
    network, machine = training.network.inference(), training.machine
    try:  # what is evaluated follows from the training alone, and not from which algorithm is the fastest here
        made = plan(network, setup, machine.with_algorithms(training.algorithms), training.budget)
    except DoesNotFit:
        made = plan(network, setup, machine, training.budget)
    if not dict(training.resident).items() <= dict(made.resident).items():
        raise RunError("this program cannot evaluate: its weights are not at the addresses that planning gives them")
    return made

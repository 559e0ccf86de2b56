"""A PyTorch module imported and planned in one call.  This file alone of its room needs the planner."""

from __future__ import annotations

from typing import Any

from refimpl.fit import by_name
from refimpl.network.imported import from_torch
from refimpl.planner import Program
from refimpl.planner.decisions import gradients_out
from refimpl.text import size
from refimpl.torch.planned_error import PlannedError


def plan(
    module: Any,
    example: Any,
    setup: Any = "combined",
    budget: Any = None,
    machine: Any = "h100",
    autocast: str | None = None,
) -> Program:
    """A program for the module as PyTorch trains it: `Planned(module, plan(module, images, "vdnn-all", "12GiB"))`.

    Args:
        module: a `torch.nn.Module`; its loss is left out.
        example: what it is called with, or the shape of that (`refimpl.networks.from_torch`).
        setup: a preset or a setup.
        budget: device bytes, or text as in "12GiB" (None: the machine's memory).
        machine: a GPU's name, or a machine.
        autocast: "bfloat16" or "float16": forward runs under `torch.autocast`.

    Raises:
        RefimplError: `torch.export` cannot follow the module, a name is unknown, no plan fits the budget, or the plan
            moves gradients to the host, which PyTorch's training cannot.
    """
    on_gpu = all(weight.device.type != "cpu" for weight in module.parameters())
    network = from_torch(module, example, keeps="pytorch" if on_gpu else "pytorch-cpu", autocast=autocast)
    program = by_name.plan(network, setup, machine, budget)
    if moved := gradients_out(program):
        raise PlannedError(
            f"{moves_gradients(program.setup.name, moved)}: take accudnn or a vDNN policy, or a larger budget (plain "
            "refimpl.plan does not refuse it, and Planned then takes more memory than is predicted)"
        )
    return program


def moves_gradients(name: str, nbytes: int) -> str:
    """Why PyTorch's training cannot carry a plan out in the memory that is predicted."""
    return f"{name} moves {size(nbytes)} of gradients to the host, which PyTorch's loop cannot"

"""A PyTorch module imported and planned in one call.  This file alone of its room needs the planner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refimpl.importing import from_torch
from refimpl.names import by_name
from refimpl.planner import Program


def plan(
    module: Any,
    example: Any,
    setup: Any = "combined",
    budget: Any = None,
    machine: Any = "h100",
    autocast: str | None = None,
    loss: Callable[[Any], Any] | None = None,
) -> Program:
    """A program for the module as PyTorch trains it: `Planned(module, plan(module, images, "vdnn-all", "12GiB"))`.

    Args:
        module: a `torch.nn.Module`.
        example: what it is called with, or the shape of that (`refimpl.networks.from_torch`).
        setup: a preset or a setup.
        budget: device bytes, or text as in "12GiB" (None: the machine's memory).
        machine: a GPU's name, or a machine.
        autocast: "bfloat16" or "float16": forward runs under `torch.autocast`.
        loss: a function of what the module returns, as in `lambda out: cross_entropy(out, labels)`: what it takes
            beside its gradients is counted (None: it is not, which matters where the outputs are large).

    Raises:
        RefimplError: `torch.export` cannot follow the module, a name is unknown, or no plan fits the budget.
    """
    on_gpu = all(weight.device.type != "cpu" for weight in module.parameters())
    keeps = "pytorch" if on_gpu else "pytorch-cpu"
    network = from_torch(module, example, keeps=keeps, autocast=autocast, outer_loss=loss)
    return by_name.plan(network, setup, machine, budget)

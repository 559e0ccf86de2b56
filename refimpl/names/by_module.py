"""A PyTorch module imported and planned in one call.  This file alone of its room needs the planner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refimpl.importing import from_torch
from refimpl.names import by_name
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.network import Network
from refimpl.network.layer import NetworkError
from refimpl.planner import Program
from refimpl.report.will_it_fit import budget_of
from refimpl.text import offer

#: An optimiser of PyTorch → the network's with the same states, and its name in a title.
OPTIMISERS = {
    "adamw": ("adamw", "AdamW"), "adam": ("adamw", "Adam"), "sgd": ("sgd", "SGD with momentum"),
    "sgd:momentum=0": ("sgd:momentum=0", "SGD without momentum"),
}  # fmt: skip


def plan(
    module: Any,
    example: Any,
    setup: Any = "combined",
    budget: Any = None,
    machine: Any = "h100",
    autocast: str | None = None,
    loss: Callable[[Any], Any] | str | None = None,
    optimiser: str = "adamw",
) -> Program:
    """A program for the module as PyTorch trains it: `Planned(module, plan(module, images, "vdnn-all", "12GiB"))`.

    Args:
        module: a `torch.nn.Module`.
        example: what it is called with, or the shape of that (`refimpl.networks.from_torch`).
        setup: a preset or a setup.
        budget: device bytes, or text as in "12GiB" (None: the machine's memory without that of CUDA's context, and
            with room for what a plan does not count).
        machine: a GPU's name, or a machine.
        autocast: "bfloat16" or "float16": forward runs under `torch.autocast`.
        loss: a function of what the module returns, as in `lambda out: cross_entropy(out, labels)`, or "softmax",
            "pixel_softmax", "mean_squared_error" or "binary_cross_entropy": what it takes beside its gradients is
            counted (None: it is not, which matters where the outputs are large).
        optimiser: "adamw", "adam", "sgd" (with momentum) or "sgd:momentum=0": its states are counted.

    Raises:
        RefimplError: the module depends on a tensor's values, a name is unknown, or no plan fits the budget.
    """
    on_gpu = all(weight.device.type != "cpu" for weight in module.parameters())
    network = described(module, example, autocast, loss, "pytorch" if on_gpu else "pytorch-cpu")
    if optimiser not in OPTIMISERS:
        raise NetworkError(f"there is no optimiser {optimiser!r}{offer(optimiser, OPTIMISERS)}")
    network = network.trained_by(OPTIMISERS[optimiser][0])
    machine = by_name.machine_with(machine, ())
    if budget is None:
        budget = budget_of(unlimited_baseline(network, machine))
    return by_name.plan(network, setup, machine, budget)


def described(
    module: Any,
    example: Any,
    autocast: str | None = None,
    loss: Callable[[Any], Any] | str | None = None,
    keeps: str = "pytorch",
) -> Network:
    """The network of a module as PyTorch trains it; the arguments are those of `plan` and of `from_torch`."""
    if isinstance(loss, str):
        import torch

        from refimpl.importing.any_module import named_loss

        loss = named_loss(torch, loss)
    return from_torch(module, example, keeps=keeps, autocast=autocast, outer_loss=loss)

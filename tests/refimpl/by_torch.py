"""The same network trained by PyTorch: its own operators, its own gradients, its own optimiser.

Layers are read off the network one by one, so fork layers, in-place choices and routes play no part here.  Only dropout
is ours: its mask is drawn as the kernels draw it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernels.checks import reference
from refimpl.network import Layer, Network
from refimpl.studies.bench.pytorch_twins import Dropout, by_torch, loss_by_torch
from tests.refimpl.plainly import SETTINGS, arrays_of, draw_batch, new_state, run_plainly

Arrays = dict[str, np.ndarray]


def run_torch(
    network: Network, state: Arrays, images: np.ndarray, labels: np.ndarray, settings: Mapping[str, float]
) -> Arrays:
    """One iteration from `state`, which stays as it is; returned are weights, momentum, running statistics, losses.

    In double precision, so that what differs is our rounding.
    """
    weights = {
        parameter.weight.name: torch.tensor(
            state[parameter.weight.name], dtype=torch.float64, requires_grad=not parameter.frozen
        )
        for _, _, parameter in network.parameters()
    }
    running = {
        tensor.name: torch.tensor(state[tensor.name], dtype=torch.float64)
        for layer in network.layers
        for name, tensor in layer.statistics.items()
        if name.startswith("running")
    }
    maps: dict[Layer, Any] = {}
    given = arrays_of(network, images, labels)
    for data, x in zip(network.data, network.inputs, strict=True):
        maps[data] = torch.tensor(given[x.name], dtype=torch.float64 if x.dtype == "float32" else None)
    for layer in network.layers:
        inputs = [maps[producer] for producer in layer.producers]
        maps[layer] = by_torch(layer, inputs, weights | running, _dropout(settings))
    losses = {
        output.losses.name: loss_by_torch(
            output, maps[output.layer], torch.tensor(given[output.labels.name]), each=True
        )
        for output in network.outputs
    }
    sum(output.layer.weight * losses[output.losses.name].mean() for output in network.outputs).backward()

    after = _stepped(network, state, weights, settings) | running | losses
    return {name: value.detach().numpy() for name, value in after.items()}


def trains_as_in_torch(
    network: Network,
    settings: Mapping[str, float] = SETTINGS,
    start: Arrays | None = None,
    rungs: Sequence[str] = ("fast",),
    least: float = 1e-6,
) -> Arrays:
    """One iteration by each rung's kernels beside PyTorch's in double precision; our last state.

    Args:
        start: the state before it; None: a new one.
        least: of the largest number of a tensor, of which a ten-thousandth is the room.
    """
    batch, state = draw_batch(network), start or new_state(network)
    expected = run_torch(network, state, *batch, settings)
    for rung in rungs:
        state = {name: values.copy() for name, values in (start or new_state(network)).items()}
        run_plainly(network, state, *batch, settings, rung=rung)
        for name, value in expected.items():
            room = 1e-4 * max(float(np.abs(value).max()), least)
            np.testing.assert_allclose(state[name], value, rtol=0, atol=room, err_msg=f"{rung}: {name}")
    return state


def _stepped(network: Network, state: Arrays, weights: dict[str, Any], settings: Mapping[str, float]) -> dict[str, Any]:
    """The weights and the optimiser's states after its step, by PyTorch's optimiser and its clipping."""
    learning = network.learning
    trained = [parameter for _, _, parameter in network.parameters() if not parameter.frozen]
    if learning.clip is not None:
        torch.nn.utils.clip_grad_norm_([weights[p.weight.name] for p in trained], learning.clip)
    groups = [
        {"params": [weights[p.weight.name]], "weight_decay": settings["decay"] * learning.decays(p.weight.shape)}
        for p in trained
    ]
    optimiser: Any
    if learning.optimiser == "sgd":
        names = {"momentum": "momentum_buffer"}
        optimiser = torch.optim.SGD(groups, lr=settings["rate"], momentum=settings["momentum"])
    else:
        names = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
        betas = settings["beta1"], settings["beta2"]
        optimiser = torch.optim.AdamW(groups, lr=settings["rate"], betas=betas, eps=settings["epsilon"])
    kept = {}
    for parameter in trained:
        of_this = optimiser.state[weights[parameter.weight.name]]
        if learning.optimiser == "adamw":
            of_this["step"] = torch.tensor(float(settings["iteration"]))
        for name, tensor in parameter.states.items():
            of_this[names[name]] = torch.tensor(state[tensor.name], dtype=torch.float64)
        kept[parameter] = of_this
    optimiser.step()
    return weights | {
        tensor.name: kept[parameter][names[name]] for parameter in trained for name, tensor in parameter.states.items()
    }


def _dropout(settings: Mapping[str, float]) -> Dropout:
    """A dropout whose mask is drawn as the kernels draw it."""

    def dropped(layer: Layer, x: torch.Tensor) -> torch.Tensor:
        drawn: dict[str, Any] = {"seed": settings["seed"], "layer": layer.number, "iteration": settings["iteration"]}
        mask = getattr(reference, f"{layer.kind}_forward")(
            np.ones(x.shape, np.float32), layer.options["probability"], **drawn
        )
        return x * torch.tensor(mask, dtype=x.dtype)

    return dropped

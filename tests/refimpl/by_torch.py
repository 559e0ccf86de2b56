"""The same network trained by PyTorch: its own operators, its own gradients, its own optimiser.

Layers are read off the network one by one, so fork layers, in-place choices and routes play no part here.  Only dropout
is ours: its mask is drawn as the kernels draw it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kernels import reference
from refimpl.network import Layer, Network
from refimpl.studies.bench.pytorch import Dropout, by_torch, loss_by_torch

Arrays = dict[str, np.ndarray]


def run_torch(
    network: Network,
    state: Arrays,
    images: np.ndarray,
    labels: np.ndarray,
    settings: Mapping[str, float],
    precision: torch.dtype = torch.float64,
) -> Arrays:
    """One iteration from `state`, which stays as it is; returned are weights, momentum, running statistics, losses.

    In double precision, so that what differs is our rounding.
    """
    weights = {
        parameter.weight.name: torch.tensor(state[parameter.weight.name], dtype=precision, requires_grad=True)
        for _, _, parameter in network.parameters()
    }
    running = {
        tensor.name: torch.tensor(state[tensor.name], dtype=precision)
        for layer in network.layers
        for name, tensor in layer.statistics.items()
        if name.startswith("running")
    }
    maps: dict[Layer, Any] = {}
    batch = torch.tensor(images, dtype=precision)
    for layer in network.layers:
        inputs = [maps.get(producer, batch) for producer in layer.producers]  # the data layer is not among the layers
        maps[layer] = by_torch(layer, inputs, weights | running, _dropout(settings))
    losses = loss_by_torch(network.output, maps[network.layers[-1]], torch.tensor(labels), each=True)
    losses.mean().backward()

    optimiser = torch.optim.SGD(
        weights.values(), lr=settings["rate"], momentum=settings["momentum"], weight_decay=settings["decay"]
    )
    for _, _, parameter in network.parameters():
        velocity = torch.tensor(state[parameter.momentum.name], dtype=precision)
        optimiser.state[weights[parameter.weight.name]]["momentum_buffer"] = velocity
    optimiser.step()
    after = {name: weight.detach() for name, weight in weights.items()} | running | {"losses": losses.detach()}
    for _, _, parameter in network.parameters():
        after[parameter.momentum.name] = optimiser.state[weights[parameter.weight.name]]["momentum_buffer"]
    return {name: value.numpy() for name, value in after.items()}


def _dropout(settings: Mapping[str, float]) -> Dropout:
    """A dropout whose mask is drawn as the kernels draw it."""

    def dropped(layer: Layer, x: torch.Tensor) -> torch.Tensor:
        drawn: dict[str, Any] = {"seed": settings["seed"], "layer": layer.number, "iteration": settings["iteration"]}
        mask = reference.dropout_forward(np.ones(x.shape, np.float32), layer.options["probability"], **drawn)
        return x * torch.tensor(mask, dtype=x.dtype)

    return dropped

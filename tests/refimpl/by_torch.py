"""The same network trained by PyTorch: its own operators, its own gradients, its own optimiser.

Layers are read off the network one by one, so fork layers, in-place choices and routes play no part here.  Only dropout
is ours: its mask is drawn as the kernels draw it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from kernels import reference
from refimpl.network import Layer, Network

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
        maps[layer] = _forward(layer, inputs, weights, running, settings)
    losses = functional.cross_entropy(maps[network.layers[-1]], torch.tensor(labels).long(), reduction="none")
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


def _forward(layer: Layer, inputs: list[Any], weights: Any, running: Any, settings: Mapping[str, float]) -> Any:
    y = _own(layer, inputs, weights, running, settings)
    return functional.relu(y) if layer.has_relu else y


def _own(layer: Layer, inputs: list[Any], weights: Any, running: Any, settings: Mapping[str, float]) -> Any:
    x, options = inputs[0], layer.options
    given = {name: weights[parameter.weight.name] for name, parameter in layer.parameters.items()}
    if layer.kind == "conv":
        return functional.conv2d(x, given["w"], given.get("b"), options["stride"], options["pad"])
    if layer.kind == "fc":
        return functional.linear(x.flatten(1), given["w"], given.get("b"))
    if layer.kind == "pool":
        pool = {"max": functional.max_pool2d, "average": functional.avg_pool2d}[options["mode"]]
        return pool(x, options["window"], options["stride"], options["pad"], ceil_mode=options["ceil"])
    if layer.kind == "relu":
        return functional.relu(x)
    if layer.kind == "lrn":
        return functional.local_response_norm(x, options["size"], options["alpha"], options["beta"], options["k"])
    if layer.kind == "batchnorm":
        moved = [running[layer.statistics[name].name] for name in ("running_mean", "running_variance")]
        how = {"training": True, "momentum": options["momentum"], "eps": options["epsilon"]}
        return functional.batch_norm(x, *moved, given["gamma"], given["beta"], **how)
    if layer.kind == "dropout":
        drawn = {"seed": settings["seed"], "layer": layer.number, "iteration": settings["iteration"]}
        mask = reference.dropout_forward(np.ones(x.shape, np.float32), options["probability"], **drawn)
        return x * torch.tensor(mask, dtype=x.dtype)
    if layer.kind == "concat":
        return torch.cat(inputs, 1)
    if layer.kind == "join":
        return sum(inputs[1:], inputs[0])
    assert layer.kind in ("fork", "softmax")  # cross_entropy takes what the softmax reads
    return x

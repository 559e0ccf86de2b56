"""What training starts from: values from the file or module that a network came from, or else drawn parameters.

These follow from a seed and from their names, and from nothing else.  Each tensor has a stream of random numbers of its
own (NumPy's Philox, its key a hash of seed and name).  So every set-up, backend and batch size starts from the same
weights, and adding a layer does not change the others'.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import prod, sqrt

import numpy as np

from refimpl.network import Layer, Network, Tensor

#: The kinds of tensors that training changes and an iteration does not start from scratch.
STATE_KINDS = ("weight", "weight gradient", "momentum", "statistic")


def state_tensors(network: Network) -> list[Tensor]:
    """The tensors that make up the state of training, in the network's order."""
    return [tensor for tensor in (*network.resident, *network.on_host) if tensor.kind in STATE_KINDS]


def drawn(name: str, shape: tuple[int, ...], spread: float, seed: int) -> np.ndarray:
    """Normally distributed around 0 with this standard deviation."""
    key = int.from_bytes(
        hashlib.blake2b(f"{seed}/{name}".encode(errors="backslashreplace"), digest_size=16).digest(), "little"
    )
    random = np.random.Generator(np.random.Philox(key=key))
    found: np.ndarray = random.standard_normal(shape, dtype=np.float32) * np.float32(spread)
    return found


def spread(layer: Layer, shape: tuple[int, ...]) -> float:
    """He's rule, sqrt(2 / inputs of one output), which keeps the variance through a ReLU; before the softmax, none.

    He, Zhang, Ren, Sun: "Delving deep into rectifiers", 2015, eq. 10.  A layer's own option "spread" comes before it.
    """
    if "spread" in layer.options:
        return float(layer.options["spread"])
    gain = 1 if any(consumer.traits.work == "loss" for consumer in layer.consumers) else 2
    terms = layer.traits.terms(layer) if layer.traits.terms else prod(shape[1:])
    return sqrt(gain / terms)


def first_values(network: Network) -> Iterator[tuple[Tensor, float, float]]:
    """Every tensor of the state, its first value, and the standard deviation of what is drawn instead; 0: nothing."""
    values: dict[Tensor, tuple[float, float]] = {}
    for layer in network.layers:
        weights = {name: parameter.weight for name, parameter in layer.own.items()}
        for name, tensor in (weights | layer.statistics).items():
            first = layer.options.get("first", layer.traits.first[name])
            values[tensor] = (0.0, spread(layer, tensor.shape)) if first is None else (first, 0.0)
    for tensor in state_tensors(network):
        yield tensor, *values.get(tensor, (0.0, 0.0))


def constants(network: Network) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Every tensor of whole numbers that nothing changes, with its numbers; they are no part of the state."""
    for layer in network.layers:
        values = layer.traits.constants(layer)
        yield from ((tensor, np.array(values[name], np.int32)) for name, tensor in layer.constants.items())


def initial_state(network: Network, seed: int) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Every tensor of the state with its first values, one after another: they need not be in memory all at once."""
    for tensor, value, deviation in first_values(network):
        if tensor.name in network.initial:
            yield tensor, network.initial[tensor.name].values
        elif deviation:
            yield tensor, drawn(tensor.name, tensor.shape, deviation, seed)
        else:
            yield tensor, np.full(tensor.shape, value, np.float32)

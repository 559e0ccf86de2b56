"""Networks made from another one: that learn in another way, forward only, or trained by several ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

from refimpl.network import calls, later_calls
from refimpl.network.call import Call
from refimpl.network.conventions import Conventions
from refimpl.network.data_parallel import data_parallel_calls
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.learning import OPTIMISERS, Optimisation
from refimpl.network.network import Network


def trained_by(network: Network, learning: Optimisation) -> Network:
    """`Network.trained_by`: the same layers, described again."""
    if learning == network.learning:
        return network
    if learning.optimiser not in OPTIMISERS and not network.conventions.as_pytorch:
        raise NetworkError(f"{network.name} has no kernel of {learning.optimiser}; give {' or '.join(OPTIMISERS)}")
    if network.ranks > 1:
        raise NetworkError(f"{network.name} is trained by {network.ranks} ranks: call trained_by before data_parallel")
    other = of_layers(network, described_again((*network.data, *network.layers)), learning)
    other.script = network.script
    return other


def of_layers(
    network: Network, again: Mapping[Layer, Layer], learning: Optimisation, conventions: Conventions | None = None
) -> Network:
    """The network of layers like another's: its own → one like it, without tensors and steps.

    Without `conventions` it has the other's.
    """
    data, ends = ([again[layer] for layer in found] for found in (network.data, network.output_of))
    layers = [again[layer] for layer in network.layers] if network.conventions.as_pytorch else None
    other = Network(network.name, data, ends, conventions or network.conventions, learning, layers)
    other.file, other.initial, other.origins = network.file, network.initial, network.origins
    other.cannot_run, other.opaque = network.cannot_run, network.opaque
    return other


def described_again(layers: Iterable[Layer]) -> dict[Layer, Layer]:
    """Layers like these, without tensors and steps: old → new.  Each comes after its producers."""
    again: dict[Layer, Layer] = {}
    for old in layers:
        again[old] = new = Layer(old.name, old.kind, tuple(again[x] for x in old.producers), old.options)
        new.weight, new.operation = old.weight, old.operation
        new.number, new.shape, new.has_relu, new.relu_options = old.number, old.shape, old.has_relu, old.relu_options
    for old, new in again.items():
        new.shares, new.own_bias = again[old.shares] if old.shares else None, old.own_bias
        new.consumers = [again[consumer] for consumer in old.consumers]
    return again


def inference(network: Network) -> Network:
    """`Network.inference`: other steps over the same layers and tensors."""
    network = network.whole or network
    other = copy(network)
    other.name, other.ranks, other.steps = f"{network.name}, forward only", 1, []
    for layer in network.layers:
        other.add_step(layer, _inference_calls(network, layer))
    used = {tensor for step in other.steps for tensor in step.uses}
    other.managed = [tensor for tensor in network.managed if tensor in used]
    other.resident = list(dict.fromkeys((*network.resident, *(one.predictions for one in network.outputs))))
    return other


def _inference_calls(network: Network, layer: Layer) -> list[Call]:
    """The calls of a layer's step: running statistics, nothing is dropped, a loss fills its output's predictions."""
    if layer.operation is not None:
        return network.forward_calls(layer)
    if layer.kind == "batchnorm":
        given = {"x": layer.x, **calls.weights_of(layer)}
        given |= {name: layer.statistics[name] for name in ("running_mean", "running_variance")}
        arguments = {**given, "y": layer.y, "epsilon": layer.options["epsilon"]}
        return [Call("batchnorm.inference", arguments, given.values(), [layer.y])]
    if layer.kind in ("dropout", "drop_path"):
        return [Call("elementwise.copy", {"x": layer.x, "y": layer.y}, [layer.x], [layer.y])]
    if layer.kind == "pool":
        return calls.pool_forward(network, layer)
    if layer.traits.loss is not None:
        if network.conventions.lean:
            from refimpl.network import lean

            if (made := lean.inference(network, layer)) is not None:
                return made
        fill = {"softmax": calls.softmax_into, **later_calls.LOSSES}[layer.kind]
        return fill(network, layer, network.output_of[layer].predictions)
    return network.forward_calls(layer)


def data_parallel(network: Network, ranks: int, bucket_bytes: int | None) -> Network:
    """`Network.data_parallel`: other backward steps over the same layers and tensors."""
    network = network.whole or network
    if ranks < 1 or (bucket_bytes is not None and bucket_bytes < 1):
        raise NetworkError(f"{ranks} ranks with buckets of {bucket_bytes} bytes: give at least 1 of each")
    if network.ranks > 1:
        raise NetworkError(f"{network.name} is trained by {network.ranks} ranks already")
    if ranks == 1:
        return network
    if network.conventions.as_pytorch:
        raise NetworkError(f"{network.name} is described as PyTorch keeps it, on one GPU: plan it for one rank")
    other = copy(network)
    other.ranks, other.steps = ranks, network.steps[: network.depth]
    backward = network.steps[network.depth :]
    for step, listed in zip(backward, data_parallel_calls(backward, ranks, bucket_bytes), strict=True):
        other.add_step(step.layer, listed, step.direction)
    return other

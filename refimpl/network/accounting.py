"""The static baseline, "network-wide": the bytes of training if everything were allocated once and nothing released.

It is an accounting and not a program: a forked network could not run with two gradient buffers.  Each published system
compares with its own, so the network's conventions say which one applies:

    vDNN           weights, their gradients, every map (a ReLU in place has none; the input batch and the last output
                   included), two buffers of the largest gradient map, one workspace
    SuperNeurons   every map and every gradient map, no resident tensor; one workspace

Weights are all learnt parameters, biases and the parameters of batch normalisations included.  Momentum, statistics,
labels and losses are not counted: vDNN's own figures have none.
"""

from __future__ import annotations

from refimpl.network.network import Network


def network_wide(network: Network, workspace_bytes: int = 0) -> dict[str, int]:
    """The static baseline of a network.

    Args:
        network: its conventions say which accounting applies.
        workspace_bytes: the largest workspace of the chosen algorithms.

    Returns:
        Kind of memory → bytes.
    """
    gradients = [tensor.nbytes for tensor in network.managed if tensor.kind == "gradient map"]
    maps = sum(tensor.nbytes for tensor in network.managed if tensor.kind == "map")
    if not network.conventions.two_gradient_buffers:
        return {"map": maps, "gradient map": sum(gradients), "workspace": workspace_bytes}
    weights = sum(parameter.weight.nbytes for _, _, parameter in network.parameters())
    return {
        "weight": weights,
        "weight gradient": weights,
        "map": maps + network.input.nbytes,
        "gradient map": 2 * max(gradients, default=0),
        "workspace": workspace_bytes,
    }


def network_wide_bytes(network: Network, workspace_bytes: int = 0) -> int:
    """The sum of `network_wide`."""
    return sum(network_wide(network, workspace_bytes).values())

"""The words that name a network above a table, and how much of it is opaque."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from refimpl.machine import Machine
from refimpl.machine.seconds import fastest_seconds
from refimpl.network import Network


class Opaque(NamedTuple):
    """What operators without a kernel have of a network."""

    layers: int
    seconds: float  #: their share of the time of all steps
    nbytes: float  #: their share of the bytes of all maps


@lru_cache(maxsize=8)
def opaque_shares(network: Network, machine: Machine) -> Opaque:
    """The shares of a network's opaque layers: their time is estimated from operations and bytes alone."""
    seconds = fastest_seconds(network, machine)
    maps = {tensor for tensor in network.managed if tensor.kind == "map"}
    layers = [layer for layer in network.layers if layer.traits.opaque and layer.traits.work != "loss"]
    made = {tensor for layer in layers for tensor in layer.outputs if not layer.in_place and tensor in maps}
    those = {*layers}
    took = sum(long for step, long in zip(network.steps, seconds, strict=True) if step.layer in those)
    nbytes = [sum(tensor.nbytes for tensor in tensors) for tensors in (made, maps)]
    return Opaque(len(layers), took / (sum(seconds) or 1.0), nbytes[0] / (nbytes[1] or 1))


def heading(network: Network, machine: Machine) -> str:
    """The network and its batch; with the share of time and bytes that is opaque, if any is."""
    return f"{network.name}, batch {network.batch}{mark(network, machine)}"


def mark(network: Network, machine: Machine) -> str:
    """The addition to a network's name where some of it is opaque."""
    if not network.opaque:
        return ""
    shares = opaque_shares(network, machine)
    return f" ({shares.seconds:.0%} of the time and {shares.nbytes:.0%} of the bytes opaque)"

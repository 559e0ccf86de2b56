"""Seconds of a network's calls and steps on a machine, each with its fastest algorithm."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate

from refimpl.machine.model import Machine
from refimpl.network import Call, Network


@lru_cache(maxsize=8)
def call_seconds(network: Network, machine: Machine) -> dict[Call, float]:
    """Seconds of every call, with its fastest algorithm if it has several."""
    return {call: machine.seconds(call) for step in network.steps for call in step.calls}


@lru_cache(maxsize=8)
def fastest_seconds(network: Network, machine: Machine) -> tuple[float, ...]:
    """Seconds of every step with the fastest algorithms, in the order of the steps."""
    seconds = call_seconds(network, machine)
    return tuple(sum(seconds[call] for call in step.calls) for step in network.steps)


@lru_cache(maxsize=8)
def fastest_rest(network: Network, machine: Machine) -> tuple[float, ...]:
    """Seconds that every step and all later ones take at least, in the order of the steps."""
    return tuple(accumulate(reversed(fastest_seconds(network, machine))))[::-1]

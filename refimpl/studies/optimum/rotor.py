"""Rotor: the optimal schedule of a chain whose maps are recomputed and never offloaded (arXiv 1911.13214).

Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova's dynamic programme, with this project's calls.  For the stages s to
t of a chain and m bytes, the map that s reads apart, it takes the better of two ways to go forward and back:

    all         run s and keep its map for its backward; then s + 1 to t within what is left; then the backward of s
    checkpoint  run s to j - 1 and keep the last map alone; then j to t; then s to j - 1 once more, from their beginning

Its class is smaller than it may seem.  A backward needs its stage's map and the map before it, and in the second way
the stages s to j - 1 are all run again, though the map of j - 1 was kept as a checkpoint.  So no schedule is in the
class that drops one map, keeps the next, and rebuilds the first alone: SuperNeurons' do that when they drop the maps of
pools and keep those of convolutions.  Such a schedule may be faster than Rotor's optimum, which is therefore no bound
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, inf

import numpy as np

from refimpl.machine import Machine
from refimpl.network import Network, Step, Tensor

SLOTS = 500  #: parts of the memory that the programme counts in; every map is rounded up to whole ones


@dataclass
class Stage:
    """A layer with a map of its own, and the layers after it that change this map in place."""

    map_bytes: int
    forward: float  #: seconds
    forward_workspace: int
    backward: float = 0.0  #: seconds
    backward_bytes: int = 0  #: the most that a backward step needs beside the stage's map and the map that it reads


def is_chain(network: Network) -> bool:
    """Whether every layer reads one map, and that of the layer before."""
    return all(layer.producers == [before] for before, layer in pairwise(network.layers))


def chain_seconds(network: Network, machine: Machine, budget: int) -> float:
    """Rotor's optimum for an iteration of a chain, with the least workspaces: seconds; infinite where none fits.

    Holes are left out, as in the paper.
    """
    room = budget - network.resident_bytes - (network.input.nbytes if network.input.managed else 0)
    return machine.copy_seconds(network.input.nbytes, "in") + rotor(stages(network, machine), room)


def stages(network: Network, machine: Machine) -> list[Stage]:
    """A chain's stages, with the algorithms that need the least workspace."""
    found: list[Stage] = []
    known: set[Tensor] = set()
    for layer in network.layers:
        maps = [tensor for tensor in layer.forward.writes if tensor.kind == "map"]
        seconds, workspace = frugal(layer.forward, machine)
        if maps:
            found.append(Stage(sum(tensor.nbytes for tensor in maps), seconds, workspace))
            known = {*layer.inputs, *maps}
        else:
            found[-1].forward += seconds
        seconds, workspace = frugal(layer.backward, machine)
        beside = sum(tensor.nbytes for tensor in layer.backward.uses if tensor not in known)
        found[-1].backward += seconds
        found[-1].backward_bytes = max(found[-1].backward_bytes, beside + workspace)
    return found


def frugal(step: Step, machine: Machine) -> tuple[float, int]:
    """Seconds and workspace of a step, each call with the least workspace there is."""
    seconds, workspace = 0.0, 0
    for call in step.calls:
        if call.choosable:
            choice = min(machine.choices(call), key=lambda choice: (choice.workspace_bytes, choice.seconds))
            seconds, workspace = seconds + choice.seconds, max(workspace, choice.workspace_bytes)
        else:
            seconds += machine.seconds(call)
    return seconds, workspace


def rotor(chain: list[Stage], room: int, slots: int = SLOTS) -> float:
    """The least seconds of the stages' forward and backward within `room` bytes; infinite where no schedule fits."""
    if room <= 0:
        return inf
    last = len(chain) - 1
    map_ = [ceil(stage.map_bytes * slots / room) for stage in chain]
    workspace = [ceil(stage.forward_workspace * slots / room) for stage in chain]
    beside = [ceil(stage.backward_bytes * slots / room) for stage in chain]
    run = [0.0, *accumulate(stage.forward for stage in chain)]

    def at_least(need: int, seconds: np.ndarray | float) -> np.ndarray:
        """Seconds by the slots that there are; infinite below `need`."""
        return np.where(np.arange(slots + 1) >= need, seconds, inf)

    def without(kept: int, seconds: np.ndarray) -> np.ndarray:
        """Seconds by the slots that there are, if `kept` of them are taken."""
        return np.concatenate([np.full(min(kept, slots + 1), inf), seconds[: max(0, slots + 1 - kept)]])

    best: dict[tuple[int, int], np.ndarray] = {}  # first and last stage → seconds by slots
    for length in range(len(chain)):
        for s in range(len(chain) - length):
            t = s + length
            gradient = map_[t] if t < last else 0  # that of the last stage's map waits while they run forward
            forward = gradient + map_[s] + workspace[s]
            both = chain[s].forward + chain[s].backward
            need = max(forward, map_[s] + beside[s])
            if s == t:
                best[s, t] = at_least(need, both)
                continue
            found = at_least(need, both + without(map_[s], best[s + 1, t]))
            for j in range(s + 1, t + 1):
                again = run[j] - run[s] + without(map_[j - 1], best[j, t]) + best[s, j - 1]
                found = np.minimum(found, at_least(forward, again))
                forward = max(forward, gradient + map_[j - 1] + map_[j] + workspace[j])
            best[s, t] = found
    return float(best[0, last][slots])

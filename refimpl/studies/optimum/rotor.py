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

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from refimpl.machine import Machine
from refimpl.network import Layer, Network, Step, Tensor

SLOTS = 500  #: parts of the memory that the programme counts in; every map is rounded up to whole ones


@dataclass
class Stage:
    """A layer with a map of its own, and the layers after it that change this map in place."""

    map_bytes: int
    forward: float  #: seconds
    forward_workspace: int
    backward: float = 0.0  #: seconds
    backward_bytes: int = 0  #: the most that a backward step needs beside the stage's map and the map that it reads
    layers: list[Layer] = field(default_factory=list)

    @property
    def maps(self) -> list[Tensor]:
        """What the first layer writes; the others work on it in place."""
        return [tensor for tensor in self.layers[0].forward.writes if tensor.kind == "map"]


class StageForward(NamedTuple):
    """A stage runs forward; without `keeps` its map is dropped once the next stage has run."""

    stage: int
    keeps: bool


class StageBackward(NamedTuple):
    """A stage runs backward; with `drops` the map that it read, a checkpoint, is dropped then, to be computed again."""

    stage: int
    drops: bool


def is_chain(network: Network) -> bool:
    """Whether every layer reads one map, and that of the layer before."""
    return all(layer.producers == [before] for before, layer in pairwise(network.layers))


def chain_seconds(network: Network, machine: Machine, budget: int) -> float:
    """Rotor's optimum for an iteration of a chain, with the least workspaces: seconds; infinite where none fits.

    Holes are left out, as in the paper.
    """
    return machine.copy_seconds(network.input.nbytes, "in") + rotor(stages(network, machine), room_in(budget, network))


def room_in(budget: int, network: Network) -> int:
    """Bytes of a budget that are left for maps and gradients."""
    return budget - network.resident_bytes - (network.input.nbytes if network.input.managed else 0)


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
        found[-1].layers.append(layer)
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
    return Optima(chain, room, slots).seconds if room > 0 else inf


class Optima:
    """The optimum of every part of a chain, within every number of slots."""

    def __init__(self, chain: list[Stage], room: int, slots: int = SLOTS) -> None:
        self.slots, self.last = slots, len(chain) - 1
        self.map_ = [ceil(stage.map_bytes * slots / room) for stage in chain]
        self.best: dict[tuple[int, int], np.ndarray] = {}  #: first and last stage → seconds by slots
        #: First and last stage → by slots the stage after the checkpoint; 0: the first stage's map is kept.
        self.split: dict[tuple[int, int], np.ndarray] = {}
        self._fill(
            chain,
            [ceil(stage.forward_workspace * slots / room) for stage in chain],
            [ceil(stage.backward_bytes * slots / room) for stage in chain],
        )

    def _fill(self, chain: list[Stage], workspace: list[int], beside: list[int]) -> None:
        slots, last, map_, best = self.slots, self.last, self.map_, self.best
        run = [0.0, *accumulate(stage.forward for stage in chain)]

        def at_least(need: int, seconds: np.ndarray | float) -> np.ndarray:
            """Seconds by the slots that there are; infinite below `need`."""
            return np.where(np.arange(slots + 1) >= need, seconds, inf)

        def without(kept: int, seconds: np.ndarray) -> np.ndarray:
            """Seconds by the slots that there are, if `kept` of them are taken."""
            return np.concatenate([np.full(min(kept, slots + 1), inf), seconds[: max(0, slots + 1 - kept)]])

        for length in range(len(chain)):
            for s in range(len(chain) - length):
                t = s + length
                gradient = map_[t] if t < last else 0  # that of the last stage's map waits while they run forward
                forward = gradient + map_[s] + workspace[s]
                both = chain[s].forward + chain[s].backward
                need = max(forward, map_[s] + beside[s])
                split = self.split[s, t] = np.zeros(slots + 1, int)
                if s == t:
                    best[s, t] = at_least(need, both)
                    continue
                found = at_least(need, both + without(map_[s], best[s + 1, t]))
                for j in range(s + 1, t + 1):
                    again = run[j] - run[s] + without(map_[j - 1], best[j, t]) + best[s, j - 1]
                    again = at_least(forward, again)
                    split[again < found] = j
                    found = np.minimum(found, again)
                    forward = max(forward, gradient + map_[j - 1] + map_[j] + workspace[j])
                best[s, t] = found

    @property
    def seconds(self) -> float:
        """Of the whole chain; infinite where no schedule fits."""
        return float(self.best[0, self.last][self.slots])

    def schedule(self) -> Iterator[StageForward | StageBackward]:
        """What runs when, in the fastest schedule; where none fits all slots, nothing."""
        return self._schedule(0, self.last, self.slots, False) if self.seconds < inf else iter(())

    def frugal(self) -> Iterator[StageForward | StageBackward]:
        """What runs when, in the schedule that needs the fewest slots."""
        return self._schedule(0, self.last, int(np.isfinite(self.best[0, self.last]).argmax()), False)

    def _schedule(self, s: int, t: int, slots: int, drops: bool) -> Iterator[StageForward | StageBackward]:
        """The part from stage s to t; `drops`: the map that s reads is a checkpoint that is computed again."""
        j = int(self.split[s, t][slots])
        if s == t or not j:
            yield StageForward(s, True)
            if s < t:
                yield from self._schedule(s + 1, t, slots - self.map_[s], False)
            yield StageBackward(s, drops)
            return
        yield from (StageForward(stage, stage == j - 1) for stage in range(s, j))
        yield from self._schedule(j, t, slots - self.map_[j - 1], True)
        yield from self._schedule(s, j - 1, slots, drops)


class ChainPlan:
    """The fastest schedule within `room` bytes, by what it runs forward before each stage's backward.

    Where none fits, it is the one that needs least.
    """

    def __init__(self, chain: list[Stage], room: int) -> None:
        plenty = sum(2 * stage.map_bytes + stage.forward_workspace + stage.backward_bytes for stage in chain)
        self.stages = chain
        self.before: dict[int, list[StageForward]] = {}
        self.dropping: list[int] = []  #: stages whose backward drops the checkpoint that it has read
        runs: list[StageForward] = []
        for operation in list(Optima(chain, max(room, 1)).schedule()) or Optima(chain, plenty).frugal():
            if isinstance(operation, StageForward):
                runs.append(operation)
            else:
                self.before[operation.stage], runs = runs, []
                self.dropping += [operation.stage] * operation.drops
        self.first = self.before.pop(len(chain) - 1)  #: forward as it always is

"""Rotor: the optimal schedule of a chain whose maps are recomputed and never offloaded (arXiv 1911.13214).

Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains" (2019): their
dynamic programme, with this project's calls.  For the stages s to t of a chain and m bytes, the map that s reads apart,
it takes the better of two ways to go forward and back:

    all         run s and keep its map for its backward; then s + 1 to t within what is left; then the backward of s
    checkpoint  run s to j - 1 and keep the last map alone; then j to t; then s to j - 1 once more, from their beginning

Its class is smaller than it may seem.  A backward needs its stage's map and the map before it, and in the second way
the stages s to j - 1 are all run again, though the map of j - 1 was kept as a checkpoint.  So no schedule is in the
class that drops one map, keeps the next, and rebuilds the first alone: SuperNeurons' do that when they drop the maps of
pools and keep those of convolutions.  Such a schedule may be faster than Rotor's optimum, which is therefore no bound
here, but a yardstick.  As a policy, two modules carry its schedule out:

| the schedule | here |
| --- | --- |
| a stage runs forward and its map is dropped | `recompute`: the map's fate is *drop* |
| the stages s to j - 1 run once more before the backward of j - 1 | `recompute`: the chain of forward steps for it |
| a checkpoint is dropped after the backward of j: it is computed again | `liveness`: it is released there |

The programme knows no holes.  Where its schedule for the whole budget does not fit for them, the setup takes the one
for some per cent less.  First fit leaves the fewest holes.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import ceil, inf
from typing import ClassVar, NamedTuple

import numpy as np

from refimpl.machine import Machine
from refimpl.memory import FirstFit
from refimpl.network import Layer, Network, Step, Tensor
from refimpl.planner import BASELINE, Context, Search, Setup, SetupError
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import MemoryOptimal
from refimpl.slots.baseline import LayerWise, Releases
from refimpl.studies.neighbours.on_demand import BoundRematerialized

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


class StageRun(NamedTuple):
    """A stage runs forward; without `keeps` its map is dropped once the next stage has run."""

    stage: int
    keeps: bool


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


def backward_steps(network: Network) -> dict[Layer, list[int]]:
    """Layer → the numbers of its backward steps: one, or more where they are cut at their seams."""
    found: dict[Layer, list[int]] = {layer: [] for layer in network.layers}
    for step in network.steps[network.depth :]:
        found[step.layer].append(step.number)
    return found


class ChainPlan:
    """The fastest schedule within `room` bytes, by what it runs forward before each stage's backward.

    Where none fits, it is the one that needs least.
    """

    def __init__(self, chain: list[Stage], room: int) -> None:
        self.stages, self._optima = chain, Optima(chain, max(room, 1))
        self.before: dict[int, list[StageRun]] = {}
        self.dropping: list[int] = []  #: stages whose backward drops the checkpoint that it has read
        self._runs: list[StageRun] = []
        slots, last = self._optima.slots, len(chain) - 1
        if self._optima.seconds == inf:
            plenty = sum(2 * stage.map_bytes + stage.forward_workspace + stage.backward_bytes for stage in chain)
            self._optima = Optima(chain, plenty)
            slots = int(np.isfinite(self._optima.best[0, last]).argmax())
        self._carry_out(0, last, slots, False)
        self.first = self.before.pop(last)  #: forward as it always is

    def _carry_out(self, s: int, t: int, slots: int, drops: bool) -> None:
        """The part from stage s to t; `drops`: the map that s reads is a checkpoint that is computed again."""
        map_, j = self._optima.map_, int(self._optima.split[s, t][slots])
        if s == t or not j:
            self._runs.append(StageRun(s, True))
            if s < t:
                self._carry_out(s + 1, t, slots - map_[s], False)
            self.before[s], self._runs = self._runs, []
            self.dropping += [s] * drops
        else:
            self._runs += [StageRun(stage, stage == j - 1) for stage in range(s, j)]
            self._carry_out(j, t, slots - map_[j - 1], True)
            self._carry_out(s, j - 1, slots, drops)


# -- as a policy -------------------------------------------------------------------------------------------------------


def planned(context: Context, slack: float) -> ChainPlan:
    """The schedule for the budget less a share `slack` of what is left for maps."""
    network = context.network
    if not is_chain(network):
        raise SetupError(f"rotor plans chains, and {network.name} has branches; take chen-sqrt or dtr")
    return ChainPlan(stages(network, context.machine), int(room_in(context.budget, network) * (1 - slack)))


@dataclass(frozen=True)
class RotorRecompute(slots.Recompute):
    """Drops what the schedule drops, and runs before each stage's backward what it runs."""

    slack: float = 0.0  #: the share of the room that is left for holes
    name: ClassVar[str] = "rotor"
    summary: ClassVar[str] = "a chain's maps are dropped and computed again by Rotor's optimal schedule"
    follows_pool: ClassVar[bool] = True
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> BoundSchedule:
        return BoundSchedule(context, planned(context, self.slack))


class BoundSchedule(BoundRematerialized):
    def __init__(self, context: Context, plan: ChainPlan) -> None:
        super().__init__(context)
        self._plan = plan
        self._of = {layer: number for number, stage in enumerate(plan.stages) for layer in stage.layers}
        self._backward = backward_steps(context.network)

    def drops(self) -> Mapping[Tensor, str]:
        gone = {y for run in self._plan.first if not run.keeps for y in self._plan.stages[run.stage].maps}
        return {tensor: "Rotor computes it again" for tensor in self.context.maps_across() if tensor in gone}

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """What a stage's runs begin from is read by that stage's backward."""
        read: defaultdict[Tensor, list[int]] = defaultdict(list)
        for number, runs in self._plan.before.items():
            for x in self._plan.stages[runs[0].stage].layers[0].inputs if runs else ():
                if x.managed:
                    read[x] += [n for layer in self._plan.stages[number].layers for n in self._backward[layer]]
        return read

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """What the schedule runs before this stage's backward; on demand, where something else is gone."""
        runs = [] if step.forward else self._plan.before.get(self._of[step.layer], [])
        if all(tensor not in self._plan.stages[run.stage].maps for run in runs):
            yield from super().chain(tensor, step, is_there)
            runs = []
        dropped: list[Tensor] = []  # the map of the stage before
        for run in runs:
            for layer in self._plan.stages[run.stage].layers:
                yield layer.forward, dropped
                dropped = []
            dropped = [] if run.keeps else self._plan.stages[run.stage].maps


@dataclass(frozen=True)
class RotorLiveness(slots.Liveness):
    """Every tensor goes after its last use, and a checkpoint as soon as the schedule computes it again."""

    slack: float = 0.0
    name: ClassVar[str] = "rotor"
    summary: ClassVar[str] = "a checkpoint goes as soon as Rotor computes it again, all else after its last use"
    needs: ClassVar = frozenset({"rebuild"})
    offers: ClassVar = frozenset({"release"})

    def bind(self, context: Context) -> Releases:
        releases, plan = LayerWise().bind(context), planned(context, self.slack)
        backward = backward_steps(context.network)
        for stage in map(plan.stages.__getitem__, plan.dropping):
            for x in stage.layers[0].inputs:
                releases.add(backward[stage.layers[0]][-1], x)
        return releases


def with_slack(slack: float) -> Setup:
    """The schedule for the budget less a share of it."""
    return BASELINE.replace(
        name=f"slack {slack:g}", recompute=RotorRecompute(slack), liveness=RotorLiveness(slack),
        algorithms=MemoryOptimal(), allocator=FirstFit(),
    )  # fmt: skip


ROTOR = dataclasses.replace(
    Search.over("rotor", with_slack(1), *map(with_slack, (0, 0.03, 0.1, 0.2)), instead="take chen-sqrt or dtr"),
    searched=("recompute", "liveness"),
)

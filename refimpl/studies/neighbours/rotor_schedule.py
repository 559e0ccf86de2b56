"""Rotor: Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains" (2019).

The dynamic programme (arXiv 1911.13214) is in `refimpl.studies.optimum.rotor`, as a yardstick.  Here its schedule is
carried out, by two modules:

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
from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory import FirstFit
from refimpl.network import Step, Tensor
from refimpl.planner import BASELINE, Context, Search, Setup, SetupError
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import MemoryOptimal
from refimpl.slots.baseline import LayerWise, Releases
from refimpl.studies.neighbours.on_demand import BoundRematerialized
from refimpl.studies.optimum.rotor import ChainPlan, is_chain, room_in, stages


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

    def drops(self) -> Mapping[Tensor, str]:
        gone = {y for run in self._plan.first if not run.keeps for y in self._plan.stages[run.stage].maps}
        return {tensor: "Rotor computes it again" for tensor in self.context.maps_across() if tensor in gone}

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """What a stage's runs begin from is read by that stage's backward."""
        read: defaultdict[Tensor, list[int]] = defaultdict(list)
        for number, runs in self._plan.before.items():
            for x in self._plan.stages[runs[0].stage].layers[0].inputs if runs else ():
                if x.managed:
                    read[x] += [layer.backward.number for layer in self._plan.stages[number].layers]
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
        for stage in map(plan.stages.__getitem__, plan.dropping):
            for x in stage.layers[0].inputs:
                releases.add(stage.layers[0].backward.number, x)
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

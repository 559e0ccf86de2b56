"""What the tests of recomputation share: a planner that is watched, and small networks rich in cheap layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refimpl.network import SUPERNEURONS, Builder, Conventions, Layer, Network, Step, Tensor
from refimpl.planner import PlanContext, Program, Setup
from refimpl.planner.mover import Mover, Workspace
from refimpl.superneurons import COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC, Recompute
from refimpl.superneurons import presets as stages
from refimpl.superneurons.recompute import BoundRecompute
from refimpl.superneurons.segments import Segmentation
from tests.refimpl.modules import machine, planner

PLENTY = 64 << 30
MACHINE = machine()
STRATEGIES = (SPEED_CENTRIC, MEMORY_CENTRIC, COST_AWARE)

#: Of drawn networks: more cheap layers than usual.
KINDS = ("conv", "conv", "pool", "relu", "relu", "lrn", "batchnorm", "dropout", "join", "concat")


@dataclass(frozen=True)
class Run:
    """`layer`'s calls go to the device in `step`; what a rebuild runs is not the step's own layer's."""

    step: Step
    layer: Layer
    rebuild: bool
    alive: frozenset[Tensor]


class Watching(Mover):
    """Notes which managed tensors are on the device whenever a step runs, or runs again."""

    runs: list[Run]

    def launch(self, step: Step, workspace: Workspace, rebuild: bool = False) -> None:
        assert self.order.step is not None
        alive = frozenset(t for t in self.memory.managed() if t.kind != "workspace")
        self.runs.append(Run(self.order.step, step.layer, rebuild, alive))
        super().launch(step, workspace, rebuild)


class Watched:
    """A program that was planned and verified, and what was on the device at each launch."""

    def __init__(self, network: Network, setup: Setup, budget: int = PLENTY, **given: Any) -> None:
        planning = planner(network, setup, given.get("machine", MACHINE), budget, Watching)
        self.runs: list[Run] = []
        planning.mover.runs = self.runs  # type: ignore[attr-defined]
        self.recompute, self.context = planning.mover.recompute, planning.context
        self.program: Program = planning.plan()
        self.program.verify()

    @property
    def again(self) -> dict[str, list[str]]:
        """Layer whose backward step rebuilds → the layers that run again in it, in order."""
        found: dict[str, list[str]] = {}
        for run in self.runs:
            if run.rebuild:
                found.setdefault(run.step.layer.name, []).append(run.layer.name)
        return found

    def alive(self, layer: str) -> set[str]:
        """What is on the device when a layer's backward runs, by name."""
        (run,) = (r for r in self.runs if not r.rebuild and not r.step.forward and r.layer.name == layer)
        return {tensor.name for tensor in run.alive}

    @property
    def segmentation(self) -> Segmentation:
        assert isinstance(self.recompute, BoundRecompute)
        return self.recompute.segmentation

    def segment_maps(self, layer: Layer) -> set[Tensor]:
        """All that the segment puts out which a layer belongs to or reads from; nothing if there is none."""
        near = (s for s in self.segmentation.segments if layer in s.layers or layer.producers[0] in s.layers)
        return {y for segment in near for inside in segment.layers for y in inside.outputs}


def nbytes(tensors: set[Tensor] | frozenset[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors if tensor.managed)


def watched(network: Network, how: Recompute, offload: object = None) -> Watched:
    setup = stages.recompute(how)
    return Watched(network, setup.replace(offload=offload) if offload else setup)


def segmentation(network: Network, how: Recompute = COST_AWARE) -> Segmentation:
    return how.bind(PlanContext(network, MACHINE)).segmentation


def chain(*kinds: str, conventions: Conventions = SUPERNEURONS) -> Network:
    """Of 4×8² maps, 1 KiB an image and one image; a pooling halves the sides.  Layers are named after their kinds."""
    b = Builder("chain", (1, 1, 8, 8), conventions)
    for kind in kinds:
        if kind == "conv":
            b.conv(4, 1, bias=False)
        elif kind == "pool":
            b.pool(2)
        else:
            getattr(b, kind)()
    b.fc(3)
    b.softmax()
    return b.build()

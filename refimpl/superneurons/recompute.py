"""SuperNeurons' recomputation (§3.4): cheap layers' outputs are dropped, and rebuilt from the checkpoint in backward.

`segments` says which maps are dropped and which segments keep what they rebuild.  This file is the rest: the chain of
forward steps that run again when a backward step reads a dropped map, from the first layer after the checkpoint up to
the last whose output the step reads.  Layers whose outputs are on the device are skipped.

A segment that keeps (speed-centric) runs each of its layers at most once more, where it does not branch.  In one that
does not keep (memory-centric) a map is freed as soon as the layers that read it have run again; a chain of n layers
then runs up to n (n + 1) / 2 times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from refimpl.network import Layer, Step, Tensor
from refimpl.slots import questions as slots
from refimpl.slots.context import Context
from refimpl.superneurons.segments import CHEAP, Segmentation, Strategy


@dataclass(frozen=True)
class RecomputeSegments(slots.Recompute):
    """Drops the outputs of cheap layers, and rebuilds them by one of the three strategies."""

    strategy: Strategy
    name: str
    summary: str
    cheap: tuple[str, ...] = CHEAP  #: kinds of layers
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> BoundSegments:
        return BoundSegments(Segmentation(self.strategy, context, self.cheap), context)


SPEED_CENTRIC = RecomputeSegments(
    "speed", "speed-centric", "cheap maps are dropped; what is rebuilt is kept for its segment"
)
MEMORY_CENTRIC = RecomputeSegments(
    "memory", "memory-centric", "cheap maps are dropped; what is rebuilt is dropped again at once"
)
COST_AWARE = RecomputeSegments("cost", "cost-aware", "speed-centric for segments that fit the memory-centric peak")


class BoundSegments:
    def __init__(self, segmentation: Segmentation, context: Context) -> None:
        self.segmentation, self._context = segmentation, context
        #: Cheap layer → the checkpoints that it is rebuilt from: of those of its segment, where that joins branches.
        self._checkpoints: dict[Layer, Iterable[Tensor]] = {}
        for layer in segmentation.of:
            pairs = zip(layer.producers, layer.inputs, strict=True)
            before = [self._checkpoints.get(producer, (x,)) for producer, x in pairs]
            self._checkpoints[layer] = before[0] if len(before) == 1 else dict.fromkeys(chain.from_iterable(before))

    def drops(self) -> Mapping[Tensor, str]:
        sources = {tensor: [x.name for x in self._sources_of(tensor)] for tensor in self.segmentation.dropped}
        return {x: f"its layer can run again from {' and '.join(names) or 'weights'}" for x, names in sources.items()}

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """A checkpoint is read by every backward step that reads a map which is rebuilt from it.

        Also by a step that finds that map on the device: a cache may have evicted it by then.
        """
        read: defaultdict[Tensor, list[int]] = defaultdict(list)
        for step in self.segmentation.backward:
            for checkpoint in dict.fromkeys(x for t in self._dropped_of(step) for x in self._sources_of(t)):
                if checkpoint.managed:
                    read[checkpoint].append(step.number)
        return read

    def _sources_of(self, tensor: Tensor) -> Iterable[Tensor]:
        """The checkpoints that a dropped map is rebuilt from."""
        network = self._context.network
        return self._checkpoints[network.steps[self._context.last_forward_write(tensor, network.depth + 1) - 1].layer]

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return tensor in self.segmentation.dropped

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """The forward steps to run again, in order, each with the maps to free after it."""
        again = [layer.forward for layer in self._path(self._targets(tensor, step))]
        last_reader = {x: one for one in again for x in one.reads}
        for one in again:
            yield one, [x for x in one.reads if last_reader[x] is one and self._was_a_means(x, step)]

    def _dropped_of(self, step: Step) -> list[Tensor]:
        """The dropped maps that a step reads."""
        return [t for t in (*step.reads, *step.updates) if t in self.segmentation.dropped]

    def _targets(self, tensor: Tensor, step: Step) -> list[Layer]:
        """The layers whose outputs are wanted.

        Backward wants every dropped map that the step reads: one run of the segment yields all of them.  In forward,
        and in the middle of a chain, a cache has evicted this one map; in-place layers still to come must not run.
        """
        wanted = self._dropped_of(step)
        if step.forward or tensor not in wanted:
            wanted = [tensor]
        return [self._context.network.steps[self._context.last_forward_write(t, step.number) - 1].layer for t in wanted]

    def _path(self, targets: list[Layer]) -> list[Layer]:
        """The cheap layers from the checkpoints to the targets, in forward order."""
        found: set[Layer] = set()
        while targets:
            layer = targets.pop()
            if layer in self.segmentation.of and layer not in found:
                found.add(layer)
                targets += layer.producers
        return sorted(found, key=lambda layer: layer.forward.number)

    def _was_a_means(self, x: Tensor, step: Step) -> bool:
        """Whether a map was rebuilt only to rebuild others, and is freed at once; never a checkpoint."""
        segment = self.segmentation.rebuilds(x)
        if segment is None:
            return False
        if segment.keeps:
            return self._context.last_use(x) < step.number
        return x not in step.uses and self._context.last_forward_use(x) < step.number

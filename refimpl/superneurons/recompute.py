"""SuperNeurons' cost-aware recomputation (§3.4): cheap layers' outputs are dropped, and made again in backward.

A *checkpoint* is the output of a layer that is not cheap: a convolution's, a fully connected layer's, the data's, the
softmax's and the structure layers'.  The cheap layers between two checkpoints are a *segment*.  What they put out is
dropped after its last forward use.  When a backward step reads a map that was dropped, the segment runs again, from the
first layer behind the checkpoint up to the last whose output the step reads; what is alive is not made again.

- Speed-centric: what was made again is kept for the segment's other backward steps; where segments do not branch, a
  layer runs once more at most.
- Memory-centric: what was made again only as a means is dropped at once, and the next step begins at the checkpoint; a
  segment of n layers runs up to n (n + 1) / 2 times.
- Cost-aware: speed-centric where a segment that keeps everything needs no more than l_peak, memory-centric elsewhere.
  l_peak is what memory-centric needs anyway: the most that one layer's backward and its checkpoint take.

The paper weighs a segment without its checkpoint, at the step of its last layer.  That bounds nothing: the checkpoint
lies there too, and a layer that reads the segment's output may have larger gradients.  Here the checkpoint is counted
on both sides, and a segment weighs what it takes at the heaviest of all steps that read from it.  On the networks of
the paper both come to the same choice.  So no backward step has more than l_peak for itself under memory-centric and
cost-aware; what waits for other steps comes on top: checkpoints that stay, gradients of other branches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from refimpl.network import Layer, Step, Tensor
from refimpl.planner import slots
from refimpl.planner.context import PlanContext

#: Layers whose output is dropped.
CHEAP = ("pool", "relu", "lrn", "batchnorm", "dropout")

Strategy = Literal["speed", "memory", "cost"]


@dataclass(frozen=True)
class Recompute(slots.Recompute):
    """Drops what cheap layers put out, and rebuilds it by one of the three strategies."""

    strategy: Strategy
    name: str
    summary: str
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: PlanContext) -> BoundRecompute:
        return BoundRecompute(self.strategy, context)


SPEED_CENTRIC = Recompute("speed", "speed-centric", "cheap maps are dropped; what is rebuilt is kept for its segment")
MEMORY_CENTRIC = Recompute(
    "memory", "memory-centric", "cheap maps are dropped; what is rebuilt is dropped again at once"
)
COST_AWARE = Recompute("cost", "cost-aware", "speed-centric for segments that fit the memory-centric peak")


@dataclass(eq=False)
class Segment:
    """Cheap layers behind one checkpoint, in forward order.  Where there are no fork layers it may branch."""

    checkpoint: Tensor  #: what it is rebuilt from
    layers: list[Layer]
    keeps: bool = True  #: what is rebuilt, for the segment's other backward steps


def segments(layers: Iterable[Layer]) -> dict[Layer, Segment]:
    """Cheap layer → its segment: that of its producer, or a new one behind a checkpoint."""
    found: dict[Layer, Segment] = {}
    for layer in layers:
        if layer.kind in CHEAP:
            segment = found.get(layer.producers[0]) or Segment(layer.x, [])
            segment.layers.append(layer)
            found[layer] = segment
    return found


class BoundRecompute:
    """The segments of one network, and what each strategy makes of them."""

    def __init__(self, strategy: Strategy, context: PlanContext) -> None:
        self._context = context
        self.backward = context.network.steps[context.network.depth :]  #: steps
        self._segment = segments(context.network.layers)
        self.segments = list(dict.fromkeys(self._segment.values()))  #: in forward order
        #: Every map that is dropped, with the segment that puts it out.
        self.dropped = {t: segment for t in context.maps_across() if (segment := self._put_out_by(t))}
        if strategy == "cost":
            l_peak = self.l_peak()
            for segment in self.segments:
                segment.keeps = self.weight(segment) <= l_peak
        else:
            for segment in self.segments:
                segment.keeps = strategy == "speed"

    def _put_out_by(self, tensor: Tensor) -> Segment | None:
        """The segment that a map comes from; None for a checkpoint and the input batch."""
        producer = self._context.producer(tensor)
        return self._segment.get(producer.layer) if producer else None

    # -- what cost-aware weighs ----------------------------------------------------------------------------------------

    def l_peak(self) -> int:
        """The memory-centric peak: the most that one layer's backward and its nearest checkpoint take.  Bytes."""
        return max(nbytes({*step.uses, *self.nearest(step.layer)}) for step in self.backward)

    def nearest(self, layer: Layer) -> Sequence[Tensor]:
        """The checkpoint that a layer's backward rebuilds from: behind its segment or itself, what it reads."""
        segment = self._segment.get(layer) or self._segment.get(layer.producers[0])
        return [segment.checkpoint] if segment else layer.inputs[:1]

    def weight(self, segment: Segment) -> int:
        """The most that a segment which keeps everything needs, at any backward step that reads from it.  Bytes.

        That is: of its maps those which this or a later step reads, what the step itself uses, and the checkpoint.
        """
        maps = {y for layer in segment.layers for y in layer.outputs if y in self.dropped}
        readers = {step for y in maps for step in self._context.uses[y] if not step.forward}
        kept = set[Tensor]()
        kept_bytes = most = 0
        for step in sorted(readers, key=lambda step: -step.number):  # from the last, so that `kept` only grows
            added = maps.intersection(step.uses) - kept
            kept |= added
            kept_bytes += nbytes(added)
            most = max(most, kept_bytes + nbytes({*step.uses, segment.checkpoint} - kept))
        return most

    # -- the slot's questions ------------------------------------------------------------------------------------------

    def drops(self) -> Mapping[Tensor, str]:
        return {t: f"its layer can run again from {segment.checkpoint.name}" for t, segment in self.dropped.items()}

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """A checkpoint is read by every backward step that reads something dropped behind it.

        Also by one that will find it alive: a cache may have pushed it out by then.
        """
        read: defaultdict[Tensor, list[int]] = defaultdict(list)
        for step in self.backward:
            for segment in dict.fromkeys(self.dropped[t] for t in self._dropped_of(step)):
                if segment.checkpoint.managed:
                    read[segment.checkpoint].append(step.number)
        return read

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return tensor in self.dropped

    def chain(self, tensor: Tensor, step: Step) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """The segment's forward steps from the checkpoint to the target, each with what it was the last to need."""
        for layer in self._path(self._target(tensor, step)):
            again = layer.forward
            yield again, [x for x in again.reads if self._was_a_means(x, step)]

    # -- how a chain goes ----------------------------------------------------------------------------------------------

    def _dropped_of(self, step: Step) -> list[Tensor]:
        """What a step reads that is dropped."""
        return [t for t in (*step.reads, *step.updates) if t in self.dropped]

    def _target(self, tensor: Tensor, step: Step) -> Layer:
        """The last layer to run again.

        In backward the step's own, if it reads what that put out, or else the one before: x and y are made on one way.
        In forward a cache has pushed the map out, and layers in place that are still to come must not run.
        """
        wanted = [tensor] if step.forward else self._dropped_of(step)
        last = max(self._context.last_forward_write(t, step.number) for t in wanted)
        return self._context.network.steps[last - 1].layer

    def _path(self, layer: Layer) -> list[Layer]:
        """From the first layer behind the checkpoint to this one."""
        path = []
        while layer in self._segment:
            path.append(layer)
            layer = layer.producers[0]
        return path[::-1]

    def _was_a_means(self, x: Tensor, step: Step) -> bool:
        """Whether a map is freed as soon as the layer that reads it has run again; never a checkpoint."""
        segment = self._put_out_by(x)
        if segment is None:
            return False
        if segment.keeps:
            return self._context.last_use(x) < step.number  # nobody will read it
        return x not in step.uses and self._context.last_forward_use(x) < step.number


def nbytes(tensors: Iterable[Tensor]) -> int:
    """Of the managed ones."""
    return sum(tensor.nbytes for tensor in tensors if tensor.managed)

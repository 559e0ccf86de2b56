"""SuperNeurons' cost-aware recomputation (§3.4): cheap layers' outputs are dropped, and made again in backward.

A *checkpoint* is a layer whose output is not dropped: a convolution, a fully connected layer, the data, the softmax and
the structure layers.  The cheap layers between two checkpoints are a *segment*.  When a backward step reads a map that
was dropped, its segment is run again, from the first layer behind the checkpoint up to the step's own layer.

- Speed-centric: what was made again is kept, and serves the segment's other backward steps; each layer runs at most
  once more.
- Memory-centric: what was made again only as a means is dropped at once; every backward step begins anew.
- Cost-aware: speed-centric where a whole segment does not need more than the memory-centric peak, memory-centric
  elsewhere.  Fewer runs than memory-centric, and no more memory.  The paper's formula leaves the checkpoint out, on both
  sides of the comparison, and then does not bound anything: here it is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from refimpl.network import Layer, Step, Tensor
from refimpl.planner.slots import Feature
from refimpl.planner.walk import Walk

#: Layers whose output is dropped.
CHEAP = ("pool", "relu", "lrn", "batchnorm", "dropout")

Strategy = Literal["speed", "memory", "cost"]


@dataclass(frozen=True)
class Recompute:
    strategy: Strategy
    name: str
    summary: str
    needs: ClassVar[frozenset[Feature]] = frozenset({"release"})
    offers: ClassVar[frozenset[Feature]] = frozenset({"rebuild"})

    def bind(self, walk: Walk) -> BoundRecompute:
        return BoundRecompute(self.strategy, walk)


SPEED_CENTRIC = Recompute("speed", "speed-centric", "cheap maps are dropped; what is rebuilt is kept for its segment")
MEMORY_CENTRIC = Recompute(
    "memory", "memory-centric", "cheap maps are dropped; what is rebuilt is dropped again at once"
)
COST_AWARE = Recompute("cost", "cost-aware", "speed-centric for segments that fit the memory-centric peak")


@dataclass
class Segment:
    """Cheap layers behind one checkpoint, in forward order.  Without fork layers it may branch."""

    checkpoint: Tensor  #: what it is rebuilt from
    layers: list[Layer] = field(default_factory=list)
    keeps: bool = True  #: what is rebuilt, for the segment's other backward steps


class BoundRecompute:
    def __init__(self, strategy: Strategy, walk: Walk) -> None:
        self._walk = walk
        self.segment: dict[Layer, Segment] = segments(walk.network.layers)  #: of every cheap layer
        self._dropped = {t: layer for t in walk.maps_across() if (layer := self._cheap_producer(t))}
        peak = self.memory_centric_peak()
        for segment in self.segments():
            segment.keeps = {"speed": True, "memory": False, "cost": self.whole(segment) <= peak}[strategy]

    def _cheap_producer(self, tensor: Tensor) -> Layer | None:
        producer = self._walk.producer(tensor)
        return producer.layer if producer is not None and producer.layer in self.segment else None

    def segments(self) -> list[Segment]:
        """Every segment once, in forward order."""
        return list({id(segment): segment for segment in self.segment.values()}.values())

    # -- what cost-aware weighs ----------------------------------------------------------------------------------------

    def memory_centric_peak(self) -> int:
        """l_peak: the most that one layer's backward needs, with the checkpoint it is rebuilt from.  Bytes."""
        return max(nbytes({*layer.backward.uses, *self.nearest(layer)}) for layer in self._walk.network.layers)

    def whole(self, segment: Segment) -> int:
        """Bytes of all a segment puts out, its last layer's backward and the checkpoint."""
        made = {tensor for layer in segment.layers for tensor in layer.outputs}
        return nbytes({*made, *segment.layers[-1].backward.uses, segment.checkpoint})

    def nearest(self, layer: Layer) -> Sequence[Tensor]:
        """The checkpoint's output that a layer's backward may rebuild from."""
        segment = self.segment.get(layer) or self.segment.get(layer.producers[0])
        return [segment.checkpoint] if segment else layer.inputs[:1]

    # -- the slot's questions ------------------------------------------------------------------------------------------

    def drops(self) -> Mapping[Tensor, str]:
        return {
            tensor: f"{layer.name} can make it again from {self.segment[layer].checkpoint.name}"
            for tensor, layer in self._dropped.items()
        }

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """A checkpoint's output is read by every backward step that reads something dropped behind it."""
        read: defaultdict[Tensor, list[int]] = defaultdict(list)
        for step in self._walk.network.steps[self._walk.network.depth :]:
            wanted = (tensor for tensor in (*step.reads, *step.updates) if tensor in self._dropped)
            for checkpoint in {self.segment[self._dropped[tensor]].checkpoint: None for tensor in wanted}:
                if checkpoint.managed:
                    read[checkpoint].append(step.number)
        return read

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return tensor in self._dropped

    def chain(self, tensor: Tensor, step: Step) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """The segment's forward steps up to the layer whose backward wants the tensor."""
        for layer in self._path(self._target(tensor, step)):
            again = layer.forward
            yield again, [] if self.segment[layer].keeps else [x for x in again.reads if self._spare(x, step)]

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _target(self, tensor: Tensor, step: Step) -> Layer:
        """The step's own layer, if it is cheap; else its producer, and in forward the last that changed the tensor."""
        if not step.forward and self.segment.get(step.layer) is self.segment[self._dropped[tensor]]:
            return step.layer
        return self._walk.network.steps[self._walk.last_forward_write(tensor, step.number) - 1].layer

    def _path(self, layer: Layer) -> list[Layer]:
        """From the first layer behind the checkpoint to this one."""
        path = []
        while layer in self.segment:
            path.append(layer)
            layer = layer.producers[0]
        return path[::-1]

    def _spare(self, tensor: Tensor, step: Step) -> bool:
        """Whether it was only a means: dropped, not used by the running step nor by a forward step that is to come."""
        return tensor in self._dropped and tensor not in step.uses and self._walk.last_forward_use(tensor) < step.number


def segments(layers: Iterable[Layer]) -> dict[Layer, Segment]:
    """Cheap layer → its segment: the one of its producer, or a new one behind a checkpoint."""
    found: dict[Layer, Segment] = {}
    for layer in layers:
        if layer.kind in CHEAP:
            segment = found[layer] = found.get(layer.producers[0]) or Segment(layer.x)
            segment.layers.append(layer)
    return found


def nbytes(tensors: Iterable[Tensor]) -> int:
    """Of the managed ones."""
    return sum(tensor.nbytes for tensor in tensors if tensor.managed)

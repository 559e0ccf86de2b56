"""SuperNeurons' segments (§3.4): which maps are dropped, and which segments keep what they rebuild.

A *checkpoint* is the output of a layer that is not cheap: of the data, a CONV, an FC, a softmax or a structure layer.
The cheap layers between two checkpoints are a *segment*.  Their outputs are dropped after their last forward use, and
a backward step that reads one runs the segment again (`recompute`).

| the paper | here |
| --- | --- |
| checkpoints, segments | `segments` |
| speed-centric | every segment keeps what it rebuilds, for its other backward steps |
| memory-centric | no segment does; each backward step starts again at the checkpoint |
| cost-aware | a segment keeps it where its `weight` is no more than `l_peak` |
| l_peak | `l_peak`: what memory-centric needs anyway, the most that one layer's backward takes with its checkpoint |

In one point this differs from the formula as it is printed, which leaves the checkpoint out and weighs a segment at the
backward of its last layer.  That is no bound: the checkpoint is on the device too, and a layer that reads the segment's
output may have larger gradients.  Here both sides count the checkpoint, and a segment weighs what it takes at the
heaviest of all steps that read from it.  On the networks of the paper both come to the same choice.  So no backward
step needs more than l_peak for itself under memory-centric and cost-aware.  What waits for other steps comes on top:
checkpoints that stay, gradients of other branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from refimpl.network import Layer, Step, Tensor
from refimpl.network.kinds import with_new
from refimpl.slots.context import Context

#: Kinds of layers whose output is dropped; of those that the paper did not know, all that take one streaming pass
#: (ours).
CHEAP = with_new(("pool", "relu", "lrn", "batchnorm", "dropout"), lambda traits: traits.work == "pass")

Strategy = Literal["speed", "memory", "cost"]


@dataclass(eq=False)
class Segment:
    """Cheap layers that are connected through cheap layers only, in forward order.

    It has one checkpoint, unless a layer with several producers (a join, a concat) is said to be cheap.
    """

    checkpoints: list[Tensor] = field(default_factory=list)  #: what it is rebuilt from
    layers: list[Layer] = field(default_factory=list)
    keeps: bool = True  #: what is rebuilt, for the segment's other backward steps


def segments(layers: Iterable[Layer], cheap: Sequence[str] = CHEAP) -> dict[Layer, Segment]:
    """Cheap layer → its segment: that of its producers, or a new one after a checkpoint."""
    found: dict[Layer, Segment] = {}
    for layer in layers:
        if layer.kind not in cheap:
            continue
        before = list(dict.fromkeys(found[producer] for producer in layer.producers if producer in found))
        segment = before[0] if before else Segment()
        for other in before[1:]:  # the layer joins segments: they become one
            segment.checkpoints += [x for x in other.checkpoints if x not in segment.checkpoints]
            segment.layers = sorted({*segment.layers, *other.layers}, key=lambda one: one.forward.number)
            found.update(dict.fromkeys(other.layers, segment))
        for producer, x in zip(layer.producers, layer.inputs, strict=True):
            if producer not in found and x not in segment.checkpoints:
                segment.checkpoints.append(x)
        segment.layers.append(layer)
        found[layer] = segment
    return found


class Segmentation:
    """The segments of one network, the maps that they drop, and what a strategy decides for each segment."""

    def __init__(self, strategy: Strategy, context: Context, cheap: Sequence[str] = CHEAP) -> None:
        self._context = context
        self.backward: Sequence[Step] = context.network.steps[context.network.depth :]
        layers = [one for one in context.network.layers if all(map(context.can_be_rebuilt, made_by(one)))]
        self.of = segments(layers, cheap)  #: cheap layer that can run again → its segment
        self.segments = list(dict.fromkeys(self.of.values()))  #: in forward order
        #: What other layers overwrite: as a loss does with the logits.  No cheap layer makes what is there afterwards.
        self._overwritten = {
            layer.y for layer in context.network.layers if layer.in_place and layer not in self.of and layer.y
        }
        #: Every map that is dropped → the segment that rebuilds it.
        self.dropped = {t: segment for t in context.maps_across() if (segment := self.rebuilds(t))}
        l_peak = self.l_peak() if strategy == "cost" else 0
        for segment in self.segments:
            segment.keeps = strategy == "speed" or (strategy == "cost" and self.weight(segment) <= l_peak)

    def rebuilds(self, tensor: Tensor) -> Segment | None:
        """The segment whose layer outputs a map; None for a checkpoint, what a loss overwrites, and the input batch."""
        producer = None if tensor in self._overwritten else self._context.producer(tensor)
        return self.of.get(producer.layer) if producer else None

    def l_peak(self) -> int:
        """The memory-centric peak: the most that one layer's backward and its nearest checkpoint take.  Bytes."""
        return max(nbytes({*step.uses, *self.nearest(step.layer)}) for step in self.backward)

    def nearest(self, layer: Layer) -> Sequence[Tensor]:
        """The checkpoint that a layer's backward rebuilds from; for a layer after no segment, the map that it reads."""
        segment = self.of.get(layer) or next((self.of.get(producer) for producer in layer.producers[:1]), None)
        return segment.checkpoints if segment else layer.inputs[:1]

    def weight(self, segment: Segment) -> int:
        """The most that a segment which keeps everything needs, at any backward step that reads from it.  Bytes.

        That is: those of its maps that this or a later step reads, what the step itself uses, and the checkpoint.
        """
        maps = {y for layer in segment.layers for y in made_by(layer) if y in self.dropped}
        readers = {step for y in maps for step in self._context.uses[y] if not step.forward}
        kept = set[Tensor]()
        kept_bytes = most = 0
        for step in sorted(readers, key=lambda step: -step.number):  # from the last, so that `kept` only grows
            added = maps.intersection(step.uses) - kept
            kept |= added
            kept_bytes += nbytes(added)
            most = max(most, kept_bytes + nbytes({*step.uses, *segment.checkpoints} - kept))
        return most


def made_by(layer: Layer) -> Sequence[Tensor]:
    """What a layer's forward writes or changes in place."""
    return *layer.forward.writes, *layer.forward.updates


def nbytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the managed tensors among these."""
    return sum(tensor.nbytes for tensor in tensors if tensor.managed)

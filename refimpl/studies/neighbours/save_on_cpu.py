"""Offload everything: PyTorch's `torch.autograd.graph.save_on_cpu`, a pair of saved-tensor hooks.

Whatever autograd saves for backward is copied to the host when it is saved, and copied back when backward unpacks it.
Nothing overlaps: the copies run in the order of the kernels, as vDNN's would without its second stream.

| PyTorch | here |
| --- | --- |
| the pack hook copies a saved tensor | `SavedMaps`: every map that backward reads leaves as soon as it is complete |
| the copy is done before the next operator | one stream for copies, joined after every layer that moved something |
| the unpack hook copies it back | no prefetch: on demand, and the step waits |

What differs: PyTorch copies a tensor that two operators save twice, and saves parameters and the batch too.  Here a map
moves once, and the batch is on the host already.  Copies are from pinned memory (`pin_memory=True`); a pageable copy is
slower than the machine's link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.planner import Context, Setup
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import FastestThatFits
from refimpl.slots.baseline import Departures, LayerWise


@dataclass(frozen=True)
class SavedMaps(slots.Offload):
    """Offloads every map that backward reads, as soon as it is complete."""

    name: ClassVar[str] = "saved-tensors"
    summary: ClassVar[str] = "every map that backward reads leaves as soon as it is complete"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Departures:
        departures = Departures()
        backward = context.network.depth + 1
        for tensor in context.maps_across():
            if tensor not in context.fates:
                departures.add(max(1, context.last_forward_write(tensor, backward)), tensor, "autograd saves it")
        return departures


SAVE_ON_CPU = Setup(
    "save-on-cpu",
    offload=SavedMaps(),
    liveness=LayerWise(),
    algorithms=FastestThatFits(),
    copy_streams="shared",
    join=True,
)

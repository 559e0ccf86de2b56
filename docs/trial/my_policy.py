"""A policy of one's own: of the maps that wait for backward, those that wait longest are offloaded, as many as needed.

It is written from nothing in a few minutes; docs/study.md compares it with all presets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import refimpl
from refimpl import Context, slots
from refimpl.network import Step, Tensor


@dataclass(frozen=True)
class LongestWait(slots.Offload):
    """Offloads the maps that wait longest, until the others take a share of the budget."""

    share: float = 0.5  #: of the budget, for the maps that stay
    name: ClassVar[str] = "longest-wait"
    summary: ClassVar[str] = "the maps that wait longest, until the others take a share of the budget"
    needs: ClassVar = frozenset({"release"})  # of the liveness: an offloaded map is released
    offers: ClassVar = frozenset({"offload"})  # to a prefetch
    follows_pool: ClassVar[bool] = True  # the choice depends on the budget

    def bind(self, context: Context) -> "LongestWaitOfPlan":
        return LongestWaitOfPlan(context, self.share)


class LongestWaitOfPlan:
    """The module's answers for one plan."""

    def __init__(self, context: Context, share: float) -> None:
        maps = [x for x in context.maps_across() if x.kind == "map" and x not in context.fates]
        maps.sort(key=lambda x: context.last_forward_use(x) - context.first_backward_use(x))  # the longest wait first
        stays = sum(x.nbytes for x in maps)
        room = share * context.budget - context.network.resident_bytes
        self.at: dict[Tensor, int] = {}  #: map → the step after which it leaves
        for x in maps:
            if stays > room:
                self.at[x] = context.last_forward_use(x)
                stays -= x.nbytes

    def offloads(self) -> Mapping[Tensor, str]:
        return dict.fromkeys(self.at, "it waits longest")  # map → the reason that listings show

    def leaves(self, step: Step) -> Sequence[Tensor]:
        return [x for x, number in self.at.items() if number == step.number]


MINE = refimpl.presets.vdnn_all(
    offload=LongestWait(),
    prefetch="superneurons-ahead:4",
    algorithms="superneurons-dynamic",
    allocator="both-ends",
    copy_streams="separate",
    join="no",
)

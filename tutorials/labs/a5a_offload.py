"""Lab A5a: an offload.  The handout is tutorials/handouts/a5a.md; the tests say, step by step, what is missing:

pytest tutorials/labs/test_a5a.py -x
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor


@dataclass(frozen=True)
class Leave(slots.Offload):
    """Which maps are offloaded, and when each begins to leave."""

    name: ClassVar[str] = "my-offload"
    summary: ClassVar[str] = "some maps leave"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Leaving:
        return Leaving(context)


class Leaving:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def offloads(self) -> Mapping[Tensor, str]:
        """Every map to be offloaded, and the reason in a few words."""
        raise NotImplementedError(
            "return a dict of maps and reasons: self.context.maps_across() are those to choose of"
        )

    def leaves(self, step: Step) -> Sequence[Tensor]:
        """The maps whose copy out begins after the launches of this step."""
        raise NotImplementedError("return a list of the offloaded maps that this step writes last")


offload = Leave()

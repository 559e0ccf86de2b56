"""Lab A1: liveness.  The handout is tutorials/handouts/a1.md; the tests say, step by step, what is missing:

pytest tutorials/labs/test_a1.py -x
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor


@dataclass(frozen=True)
class Mine(slots.Liveness):
    """After which step a tensor is released."""

    name: ClassVar[str] = "my-liveness"
    summary: ClassVar[str] = "nothing is released before the end"
    offers: ClassVar = frozenset({"release"})

    def bind(self, context: Context) -> Dead:
        return Dead(context)


class Dead:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def dead(self, step: Step) -> Sequence[Tensor]:
        """The tensors that no step after this one needs."""
        raise NotImplementedError("return a list of the tensors to release after this step: self.context.uses knows")


liveness = Mine()

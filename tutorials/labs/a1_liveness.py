"""Lab A1: liveness.  About two hours; after notebook 01.

A framework that keeps every map for the whole iteration needs the bytes of all of them.  A tensor is of no use after
the last step that reads it.  Say so, and watch the peak fall.

What to write
    `Mine`: after which step is each tensor released?  The name `liveness` at the end is what the tests take.

What to know
    docs/slots/liveness.md.  `context.uses[tensor]` are the steps that use a tensor, in order.  A map that another
    module offloads or drops (`context.fates`) is released after its last forward use as well.  A map that others are
    rebuilt from is used by the rebuilds, too: `context.last_use(tensor)` knows.
    SuperNeurons' analysis looks through all later steps for each step, in quadratic time.  One pass is enough.

Steps
    1. What is released too early?  Release everything after its first use, and read what the planner says.
    2. Release after the last use.  How much is the peak of VGG-16, and at which step is it?
    3. Maps with a fate.  Then the module can offer `release`, which an offload needs.

Test it: pytest tutorials/labs/test_a1.py --submission my_modules.py
    This skeleton                                                 0: it fits nothing
    Released after the first use                                  0
    Maps alone are released, and gradients stay                   0
    Released after the last use                                   100
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
        return ()  # yours


liveness = Mine()

"""What a plan can fail with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refimpl.network import Step
from refimpl.text import size


@dataclass(eq=False)
class DoesNotFit(Exception):
    """An allocation failed, and nothing could be waited for or evicted.  All sizes in bytes."""

    step: Step | None  #: None: while the resident tensors were placed
    tensor: str
    asked: int
    free: int
    largest_hole: int
    budget: int
    alive: Mapping[str, int]  #: kind of tensor → bytes on the device
    hint: str = ""  #: what would fit, if somebody knows
    who: str = ""  #: what does not fit, where a policy tried several setups

    @property
    def missing(self) -> str:
        """How much larger the largest hole would have to be."""
        return size(max(0, self.asked - self.largest_hole))

    def __str__(self) -> str:
        where = str(self.step) if self.step else "before the first step"
        alive = ", ".join(f"{size(nbytes)} of {kind}s" for kind, nbytes in self.alive.items() if nbytes)
        return (self.who and f"{self.who} ") + (
            f"does not fit in {size(self.budget)}: {where} asks {size(self.asked)} for {self.tensor}; "
            f"{size(self.free)} are free, the largest hole is {size(self.largest_hole)}; "
            f"on the device: {alive or 'nothing'}" + (f"; {self.hint}" if self.hint else "")
        )


class PinnedDoesNotFit(DoesNotFit):
    """A buffer in pinned memory was asked for, and none of those taken will be given back.  `budget` is the limit."""

    def __str__(self) -> str:
        return (self.who and f"{self.who} ") + (
            f"does not fit in {size(self.budget)} of pinned memory: {self.step} asks {size(self.asked)} for "
            f"{self.tensor}; {size(self.free)} are free, the largest hole is {size(self.largest_hole)}, and no map is "
            "being compressed or can be; raise the limit" + (f"; {self.hint}" if self.hint else "")
        )

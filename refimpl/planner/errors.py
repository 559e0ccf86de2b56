"""The errors of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refimpl.network import Step
from refimpl.text import size


@dataclass(eq=False)
class DoesNotFit(Exception):
    """An allocation failed, and no copy was left to wait for and no tensor to evict.  All sizes in bytes."""

    step: Step | None  #: None: while the resident tensors were allocated
    tensor: str
    asked: int
    free: int
    largest_hole: int
    budget: int
    alive: Mapping[str, int]  #: kind of tensor → bytes on the device
    hint: str = ""  #: sentences on what would fit
    who: str = ""  #: the setup that does not fit, where a policy tried several

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
            f"on the device: {alive or 'nothing'}" + (f". {self.hint}" if self.hint else "")
        )


class PinnedDoesNotFit(DoesNotFit):
    """Pinned memory has no room for a buffer, and no buffer in use will be freed.  `budget` is the limit."""

    def __str__(self) -> str:
        return (self.who and f"{self.who} ") + (
            f"does not fit in {size(self.budget)} of pinned memory: {self.step} asks {size(self.asked)} for "
            f"{self.tensor}; {size(self.free)} are free, the largest hole is {size(self.largest_hole)}, and no map is "
            "being compressed or can be; raise the limit" + (f". {self.hint}" if self.hint else "")
        )

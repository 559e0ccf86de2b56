"""The errors of a setup and of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from refimpl.network import Step
from refimpl.text import RefimplError, size


class SetupError(RefimplError, ValueError):
    """A setup that makes no sense: one line that names the module and what to write instead."""


@dataclass(eq=False)
class DoesNotFit(RefimplError):
    """An allocation failed, and no copy was left to wait for and no tensor to evict.  All sizes in bytes."""

    exit_status = 3

    step: Step | None  #: None: before the first, while the resident tensors and the batch were allocated
    tensor: str
    asked: int
    free: int
    largest_hole: int
    budget: int
    alive: Mapping[str, int]  #: kind of tensor → bytes on the device
    hint: str | Callable[[], str] = ""  #: sentences on what would fit; or a function that finds them once they are read
    who: str = ""  #: the setup that does not fit, where a policy tried several

    @property
    def for_holes(self) -> bool:
        """Whether bytes enough are free, but no hole is large enough: a smaller pool, with other holes, may fit."""
        return self.step is not None and self.free >= self.asked > self.largest_hole

    @property
    def missing(self) -> str:
        """How much larger the largest hole would have to be."""
        return size(max(0, self.asked - self.largest_hole))

    @property
    def where(self) -> str:
        """The step that does not fit."""
        return str(self.step or "before the first step")

    @property
    def advice(self) -> str:
        """The hint, as what is said of the error ends with it."""
        if callable(self.hint):
            self.hint = self.hint()
        return f". {self.hint}" if self.hint else ""

    @property
    def why(self) -> str:
        """The budget that it does not fit in, and why."""
        alive = ", ".join(f"{size(nbytes)} of {kind}s" for kind, nbytes in self.alive.items() if nbytes)
        return (
            f"{size(self.budget)}: {self.where} asks {size(self.asked)} for {self.tensor}; "
            f"{size(self.free)} are free, the largest hole is {size(self.largest_hole)}; "
            f"on the device: {alive or 'nothing'}"
        )

    def __str__(self) -> str:
        return f"{self.who} does not fit in {self.why}{self.advice}".lstrip()


@dataclass(eq=False)
class PoolDoesNotFit(DoesNotFit):
    """The least pool that a search found, of `asked` bytes, exceeds the budget.  `step` holds the most."""

    @property
    def why(self) -> str:
        return (
            f"{size(self.budget)}: the least pool that its search found has {size(self.asked)}; "
            f"the most is held at {self.step}"
        )


class AddressesDoNotFit(DoesNotFit):
    """All bytes fit while they are counted, but no addresses for all blocks were found within the budget."""

    def __init__(self, asked: int, budget: int, counted_seconds: float) -> None:
        super().__init__(None, "all blocks", asked, budget, budget, budget, {})
        self.counted_seconds = counted_seconds  #: of the program whose bytes were only counted

    @property
    def where(self) -> str:
        return "fixed addresses"

    @property
    def why(self) -> str:
        return f"{size(self.budget)}: the addresses found for all blocks take {size(self.asked)}"


@dataclass(frozen=True)
class Room:
    """The part of a tier that is free for maps.  All in bytes."""

    tier: str
    limit: int
    free: int
    largest_hole: int

    def __str__(self) -> str:
        hole = f", the largest hole {size(self.largest_hole)}" if self.largest_hole < self.free else ""
        return f"{self.tier} tier: {size(self.free)} free of {size(self.limit)}{hole}"


class PinnedDoesNotFit(DoesNotFit):
    """No tier has room for a buffer, and no buffer in use will be freed.  `budget` is the limit of all tiers."""

    rooms: Sequence[Room]

    @classmethod
    def of(cls, step: Step | None, tensor: str, asked: int, rooms: Sequence[Room]) -> PinnedDoesNotFit:
        """The error where no tier has a hole of `asked` bytes."""
        free, hole = sum(room.free for room in rooms), max(room.largest_hole for room in rooms)
        limit = sum(room.limit for room in rooms)
        error = cls(step, tensor, asked, free, hole, limit, {"raw map": limit - free})
        error.rooms = rooms
        return error

    @property
    def why(self) -> str:
        rooms = "; ".join(map(str, self.rooms))
        return (
            f"{size(self.budget)} of pinned memory: {self.step or 'before the first step'} asks "
            f"{size(self.asked)} for {self.tensor}; {rooms}; raise the limit of a tier, or take a setup that offloads "
            "less"
        )

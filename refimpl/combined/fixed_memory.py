"""The device's memory of a plan whose blocks have fixed addresses, and of the plan before it, that counted bytes.

Between fixed addresses other copies have to be waited for than in the pool that counted.  So other blocks may still
drain when something is to be prefetched: it finds its place taken, the plan goes on without it, and from then on every
block gets the place of another.  `Following` then gives the answers that `Noting` gave.  By these the same blocks are
allocated in the same order, and no place has a block in it that is still in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from refimpl.combined.fixed_pool import FixedAddressesPool
from refimpl.network import Tensor
from refimpl.planner.device_memory import DeviceMemory
from refimpl.planner.history import Accesses
from refimpl.slots.errors import DoesNotFit
from refimpl.text import size

Answer = bool | tuple[int, int]
Given = TypeVar("Given", bool, tuple[int, int])


@dataclass(eq=False)
class Noting(DeviceMemory):
    """It notes all its answers by which a plan may go another way."""

    answers: list[Answer] = field(default_factory=list)

    def room(self) -> tuple[int, int]:
        return self._noted(super().room())

    def is_draining(self, tensor: Tensor) -> bool:
        return self._noted(super().is_draining(tensor))

    def try_allocate(self, tensor: Tensor, stays: bool = False) -> bool:
        return self._noted(super().try_allocate(tensor, stays))

    def give_back_oldest(self) -> bool:
        return self._noted(super().give_back_oldest())

    def _noted(self, answer: Given) -> Given:
        self.answers.append(answer)
        return answer


@dataclass(eq=False)
class PlaceTaken(DoesNotFit):
    """A block's fixed place is another block's."""

    there: str = ""  #: what is in the place

    @property
    def why(self) -> str:
        return f"{size(self.budget)}: {self.where} asks {size(self.asked)} for {self.tensor}; {self.there}"


class AtPlaces(DeviceMemory):
    """Where a block does not fit, the error says what is in its place."""

    def does_not_fit(self, tensor: Tensor, stays: bool = False) -> DoesNotFit:
        pool, names = self._places, [self._at(address).name for address in self._places.in_the_way()]
        address, nbytes = pool.next_place
        there = f"its fixed place has {', '.join(names)} in it"
        if nbytes != pool.rounded(tensor.nbytes):
            there = f"the next fixed place has {size(nbytes)}: the addresses are those of another program"
        elif not names:
            there = f"its fixed place ends at {size(address + nbytes)}"
        return PlaceTaken(**vars(super().does_not_fit(tensor, stays)), there=there)

    @property
    def _places(self) -> FixedAddressesPool:
        assert isinstance(self.pool, FixedAddressesPool)
        return self.pool

    def _at(self, address: int) -> Tensor:
        """The tensor whose block is there, or still drains there."""
        blocks = (*self._blocks.values(), *(draining.block for draining in self._draining.values()))
        return next(block.tensor for block in blocks if block.address == address)


@dataclass(eq=False)
class Following(AtPlaces):
    """It gives the answers of another plan; a released block goes back when its bytes are needed."""

    answers: Sequence[Answer] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._answers = iter(self.answers)

    def room(self) -> tuple[int, int]:
        answer = next(self._answers, False)
        return answer if isinstance(answer, tuple) else super().room()

    def is_draining(self, tensor: Tensor) -> bool:
        answer = bool(next(self._answers, False))
        if not answer and super().is_draining(tensor):
            self._give_back(tensor)
        return answer

    def try_allocate(self, tensor: Tensor, stays: bool = False) -> bool:
        if not next(self._answers, False):
            return False
        for address in self._places.in_the_way():
            self._give_back(self._at(address))
        if super().try_allocate(tensor, stays):
            return True
        raise self.does_not_fit(tensor, stays)  # in another budget, or of another network

    def give_back_oldest(self) -> bool:
        return bool(next(self._answers, False))

    def _is_ordered(self, accesses: Accesses) -> bool:
        """A block that is given back cannot be revived, and which are depends on the answers to come."""
        return False

"""Values that a network from a file or a module starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, eq=False)
class FirstValues:
    """What a weight or a running statistic starts from, and where its trained values belong."""

    source: str  #: its name in the module's state_dict, or in the file
    values: np.ndarray  #: float32, in our layout
    frozen: bool = False  #: it stays as it is
    shape: tuple[int, ...] | None = None  #: of the source, if our values are its numbers in another arrangement
    move: Callable[[np.ndarray], np.ndarray] | None = None  #: makes that arrangement of the source
    whole: np.ndarray | None = None  #: the source, if our values are a part of it

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> FirstValues:
        """In another arrangement, which keeps every number."""
        import numpy as np

        before, values = self.move, np.ascontiguousarray(move(self.values))
        both = move if before is None else lambda source: move(before(source))
        return replace(self, values=values, shape=self.shape or self.values.shape, move=both)

    def as_source(self, trained: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
        """Trained values in the source's layout.

        Args:
            trained: in our layout.
            others: the source with other parts of it that were trained (None: as it was).
        """
        import numpy as np

        if self.move is None:
            return trained
        made = np.empty(self.shape or (), trained.dtype)
        if self.whole is not None:
            made[...] = self.whole if others is None else others
        view = self.move(made)
        if np.may_share_memory(view, made):
            view[...] = trained
        else:
            made.reshape(-1)[self.places()] = trained.reshape(-1)
        return made

    def places(self) -> np.ndarray:
        """Where our values are in the source, both counted through."""
        import numpy as np

        numbers = np.arange(prod(self.shape or self.values.shape)).reshape(self.shape or self.values.shape)
        return (numbers if self.move is None else self.move(numbers)).reshape(-1)

    def as_columns(self) -> FirstValues:
        """Filters over one axis as filters one column wide; others as they are."""
        return self.moved(lambda values: values[..., None]) if self.values.ndim == 3 else self

    def as_filters(self) -> FirstValues:
        """A matrix as filters of one position."""
        return self.moved(lambda values: values[:, :, None, None])

    def in_order(self, axis: int, order: np.ndarray) -> FirstValues:
        """One axis in this order."""
        import numpy as np

        return self.moved(lambda values: np.take(values, order, axis))

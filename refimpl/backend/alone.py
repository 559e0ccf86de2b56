"""What a trainer asks of the other ranks, and the answers of one that has none.

`refimpl.parallel` has ranks that are threads, and processes that MPI starts.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from refimpl.backend.run_errors import RankFailed

FAILED = "!"  #: begins the word of a rank that cannot go on


class Communicator(ABC):
    """All ranks call `mean`'s results and `agree` in the same order."""

    rank = 0  #: this one's number
    size = 1  #: how many there are
    sent_bytes = 0  #: by this rank in all-reduces so far
    interrupted = False  #: whether this rank was told to stop; it goes on until all know

    @abstractmethod
    def mean(self, gradients: Sequence[np.ndarray]) -> Callable[[], None]:
        """An all-reduce, ready to be repeated: each call puts the mean over all ranks in the place of each number.

        Args:
            gradients: contiguous arrays of float32, of the same shapes on every rank.
        """

    @abstractmethod
    def _exchange(self, word: str) -> list[str]:
        """The words of all ranks, in their order."""

    def agree(self, word: str = "") -> list[str]:
        """The words of all ranks, in their order; raises `RankFailed`, on every rank, if one has failed."""
        words = self._exchange(word)
        for rank, one in enumerate(words):
            if one.startswith(FAILED):
                status, _, why = one.removeprefix(FAILED).partition(" ")
                raise RankFailed(rank, int(status), why)
        return words

    def fail(self, why: str, status: int = 1) -> bool:
        """This rank cannot go on: where the others agree next, they raise `RankFailed`.

        Returns:
            Whether all ranks fail together, and for the same reason.
        """
        return len(set(self._exchange(f"{FAILED}{status} {why}"))) == 1

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Around what each rank does by itself before the first iteration: after it all ranks are ready, or all fail.

        It may take minutes.  A rank that fails or is interrupted inside makes the others stop at once.
        """
        yield
        self.agree()

    def abort(self, why: str) -> None:  # noqa: B027
        """This rank fails where the others wait for its gradients: end them all."""

    def close(self) -> None:  # noqa: B027
        """All ranks are done."""


class Alone(Communicator):
    """One rank, whose gradients are the mean."""

    def mean(self, gradients: Sequence[np.ndarray]) -> Callable[[], None]:
        return lambda: None

    def _exchange(self, word: str) -> list[str]:
        return [word]


def seed_of_rank(seed: int, rank: int) -> int:
    """The seed of one rank's dropout; rank 0's is that of a training with one rank."""
    if not rank:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed}/rank {rank}".encode(), digest_size=8).digest(), "little")

"""The solution of notebook K2's exercise, and wrong ones that its check must refuse."""

from __future__ import annotations

from collections.abc import Callable


def sent_piece(rank: int, turn: int, ranks: int) -> int:
    """What a rank has received in the last turn it passes on in this one."""
    return (rank - turn) % ranks


def the_other_way(rank: int, turn: int, ranks: int) -> int:
    """Pieces move towards the ranks that they came from."""
    return (rank + turn) % ranks


def always_its_own(rank: int, turn: int, ranks: int) -> int:
    """Only the next rank ever gets anything new."""
    return rank


Answer = Callable[[int, int, int], int]

#: Check → its right answers and its wrong ones.
ANSWERS: dict[str, tuple[list[Answer], list[Answer]]] = {"check_ring": ([sent_piece], [the_other_way, always_its_own])}

"""An allocation log, in the CSV format of RMM's logging adaptor: the least pool that each allocator needs for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from refimpl.cli.parser import DONE, Fail
from refimpl.cli.terminal import print_json, progress, say, show
from refimpl.memory import ALLOCATORS, UNLIMITED, Allocator
from refimpl.report.allocation_log import LoggedEvent, read_rmm, replay
from refimpl.text import counted, size

CLOSE = 1024  #: the least pool is found to one part in 1024


@dataclass(frozen=True)
class ReplayRow:
    """One allocator's result; bytes."""

    allocator: str
    pool_bytes: int
    ideal_bytes: int  #: the most alive at once, rounded as this allocator rounds


def replay_log(path: str, as_json: bool) -> int:
    """How large a pool each allocator needs for a log.

    Args:
        path: the log.
        as_json: whether the result is a document.

    Returns:
        The command's exit status.
    """
    if not os.path.isfile(path):
        raise Fail(f"there is no file {path}; refimpl view NETWORK --format rmm writes one")
    events = read_rmm(path)
    rows = []
    with progress("replaying", len(ALLOCATORS)) as advance:
        for name, allocator in ALLOCATORS.items():
            advance(name)
            rows.append(ReplayRow(name, *least_pool(events, allocator)))
    if as_json:
        print_json({"log": path, "events": len(events), "allocators": [asdict(row) for row in rows]})
    else:
        tell(path, events, rows)
    return DONE


def least_pool(events: Sequence[LoggedEvent], allocator: Allocator) -> tuple[int, int]:
    """The smallest pool tried that the log fits into, and the most bytes alive at once.  A larger pool may fail."""
    whole = replay(events, allocator.open(UNLIMITED))
    if whole.first_failure:
        raise Fail(f"the log needs more than 2^60 bytes at once, first in line {whole.first_failure.position + 2}")
    ideal = whole.statistics.peak

    def fits(nbytes: int) -> bool:
        return replay(events, allocator.open(nbytes)).fits

    if fits(ideal):
        return ideal, ideal
    low, high = ideal, 2 * ideal
    while not fits(high):
        low, high = high, 2 * high
    while high - low > max(allocator.granularity, ideal // CLOSE):
        middle = (low + high) // 2 // allocator.granularity * allocator.granularity
        if fits(middle):
            high = middle
        else:
            low = middle
    return high, ideal


def tell(log: str, events: Sequence[LoggedEvent], rows: Sequence[ReplayRow]) -> None:
    table = [
        [row.allocator, size(row.pool_bytes), size(row.ideal_bytes),
         f"{row.pool_bytes / row.ideal_bytes - 1 if row.ideal_bytes else 0.0:+.1%}"]
        for row in rows
    ]  # fmt: skip
    show(f"{log}: {counted(len(events), 'event')}", ["allocator", "least pool", "alive at most", "beyond"], table)
    done = replay(events, ALLOCATORS[rows[0].allocator].open(UNLIMITED))
    for count, what in (
        (len(done.unfreed), "never freed"),
        (len(done.unknown), "frees of a pointer that the log had not allocated, left out"),
        (len(done.recorded_failures), "allocations that had failed when the log was made, left out"),
    ):
        if count:
            say(f"{count:,} {what}.")

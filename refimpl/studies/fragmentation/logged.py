"""An allocation log, in the CSV format of RMM's logging adaptor, replayed in every allocator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from refimpl.cli.parser import DOES_NOT_FIT, DONE, Fail, pick
from refimpl.cli.terminal import print_json, progress, say, show
from refimpl.memory import ALLOCATORS, UNLIMITED, Allocator
from refimpl.names.budgets import parse_bytes
from refimpl.report.allocation_log import LoggedEvent, LogReplay, read_rmm, replay
from refimpl.text import counted
from refimpl.text import size as text

CLOSE = 1024  #: the least pool is found to one part in 1024


@dataclass(frozen=True)
class ReplayRow:
    """One allocator's result; bytes."""

    allocator: str
    pool_bytes: int
    fits: bool
    ideal_bytes: int  #: the most alive at once, rounded as this allocator rounds
    failures: int
    first_failure: int | None  #: the line of the log
    largest_hole_bytes: int | None  #: when that failed

    @property
    def beyond(self) -> float:
        """The share that the pool is larger than it would have to be without holes."""
        return self.pool_bytes / self.ideal_bytes - 1 if self.ideal_bytes else 0.0


def replay_log(path: str, allocator: str | None, pool: str | None, as_json: bool) -> int:
    """How large a pool each allocator needs for a log, or what does not fit into one of a given size.

    Args:
        path: the log.
        allocator: only this one.
        pool: its bytes, as in 4GiB; None: the least that each allocator needs.
        as_json: whether the result is a document.

    Returns:
        The command's exit status.
    """
    names = [pick(allocator, ALLOCATORS, "allocator")] if allocator else list(ALLOCATORS)
    size = parse_bytes(pool) if pool else None
    if not os.path.isfile(path):
        raise Fail(f"there is no file {path}; refimpl view NETWORK --format rmm writes one")
    events = read_rmm(path)
    rows = []
    with progress("replaying", len(names)) as advance:
        for name in names:
            advance(name)
            rows.append(row(events, ALLOCATORS[name], size))
    if as_json:
        print_json({"log": path, "events": len(events), "allocators": [asdict(row) for row in rows]})
    else:
        tell(path, events, rows, size)
    return DONE if all(row.fits for row in rows) else DOES_NOT_FIT


def row(events: Sequence[LoggedEvent], allocator: Allocator, size: int | None) -> ReplayRow:
    """The log in a pool of `size` bytes, or in the least that is found to do."""
    whole = replay(events, allocator.open(UNLIMITED))
    if whole.first_failure:
        raise Fail(f"the log needs more than 2^60 bytes at once, first in line {whole.first_failure.position + 2}")
    ideal = whole.statistics.peak
    if size is None:
        size = least_pool(events, allocator, ideal)
    done = replay(events, allocator.open(size))
    failed = done.first_failure
    return ReplayRow(
        allocator.name, size, done.fits, ideal, len(done.failures),
        failed.position + 2 if failed else None,  # the header is line 1
        failed.statistics.largest_hole if failed else None,
    )  # fmt: skip


def least_pool(events: Sequence[LoggedEvent], allocator: Allocator, ideal: int) -> int:
    """The smallest pool tried that the log fits into; a larger one than that may still fail."""

    def fits(size: int) -> bool:
        return replay(events, allocator.open(size)).fits

    if fits(ideal):
        return ideal
    low, high = ideal, 2 * ideal
    while not fits(high):
        low, high = high, 2 * high
    while high - low > max(allocator.granularity, ideal // CLOSE):
        middle = (low + high) // 2 // allocator.granularity * allocator.granularity
        if fits(middle):
            high = middle
        else:
            low = middle
    return high


def tell(log: str, events: Sequence[LoggedEvent], rows: Sequence[ReplayRow], size: int | None) -> None:
    head = ["allocator", "least pool" if size is None else "pool", "alive at most", "beyond", "fits"]
    table = [
        [
            row.allocator, text(row.pool_bytes), text(row.ideal_bytes), f"{row.beyond:+.1%}",
            "yes" if row.fits else f"no: {row.failures} not, the first in line {row.first_failure}",
        ]
        for row in rows
    ]  # fmt: skip
    show(f"{log}: {counted(len(events), 'event')}", head, table)
    done: LogReplay = replay(events, ALLOCATORS[rows[0].allocator].open(UNLIMITED))
    for count, what in (
        (len(done.unfreed), "never freed"),
        (len(done.unknown), "frees of a pointer that the log had not allocated, left out"),
        (len(done.recorded_failures), "allocations that had failed when the log was made, left out"),
    ):
        if count:
            say(f"{count:,} {what}.")

"""The errors of a run: one clear line each, which says what to do."""

from __future__ import annotations

from refimpl.text import RefimplError


class RunError(RefimplError, RuntimeError):
    """A program cannot be run, or the run was stopped; the message says why, and what would do."""


class DataError(RefimplError, ValueError):
    """Data that cannot be trained on: one line that says what is wrong, and what would do."""


class BatchError(RunError, ValueError):
    """Images or labels that this network cannot be given.  Nothing has run."""


class CheckpointError(RunError):
    """A file that is no whole checkpoint of this network.  The trainer is as it was."""


class DeviceFailed(RunError):
    """The device, or its memory, refused."""

    exit_status = 4


class RankFailed(RunError):
    """A rank of data-parallel training cannot go on, so none does.  `status` is the exit status that it ends with."""

    def __init__(self, rank: int, status: int, why: str) -> None:
        super().__init__(f"rank {rank}: {why}")
        self.rank, self.status = rank, status


class NotFinite(RunError):
    """A number was not finite.  `layer` is the first one that shows it; a guarded trainer learns nothing from it."""

    def __init__(self, layer: str, message: str) -> None:
        super().__init__(message)
        self.layer = layer

"""The file that `refimpl tune --json` prints and `refimpl run --tuned` reads."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from refimpl.cli.parser import Fail
from refimpl.text import contents


@dataclass(frozen=True)
class TunedFile:
    """The settings that `refimpl run --tuned FILE` takes from a file that `refimpl tune --json` wrote."""

    network: str
    batch: int
    rate: float
    base_rate: float
    warmup_epochs: int


def tuned_file(path: str) -> TunedFile:
    """Read such a file; one that is damaged ends the command with one line."""
    try:
        found = json.loads(contents(path))
        learning = found["learning"]
        tuned = TunedFile(
            found["network"], found["optimal_batch"], learning["rate"], learning["base_rate"], learning["warmup_epochs"]
        )
        if is_valid(tuned):
            return tuned
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise Fail(f"--tuned {path}: this is not what refimpl tune --json prints, or it is damaged")


def is_valid(tuned: TunedFile) -> bool:
    """Whether every value is of its kind and can be meant."""
    wholes, reals = (tuned.batch, tuned.warmup_epochs), (tuned.rate, tuned.base_rate)
    return (
        isinstance(tuned.network, str)
        and all(type(one) is int and 0 <= one < 1 << 31 for one in wholes)
        and tuned.batch > 0
        and all(type(one) in (int, float) and 0 < one <= sys.float_info.max for one in reals)
    )

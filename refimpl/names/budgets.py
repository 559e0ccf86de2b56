"""Budgets and tiers as people write them.

A budget is "12GiB", "512 MiB", "3.5 GB", plain bytes, or a share of what the baseline needs, "0.4".  Tiers are
"host:32GiB@8GB/s,peer:12GiB@10GB/s", the preferred one first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from refimpl.machine import MachineError, Tier
from refimpl.memory import UNLIMITED
from refimpl.text import RefimplError, counted

UNITS = {
    "": 1, "b": 1, "bytes": 1,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50, "eib": 1 << 60,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15, "eb": 10**18,
    "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
}  # fmt: skip

TIERS = "host:32GiB@8GB/s,peer:12GiB@10GB/s"
EXAMPLES = "12GiB, 512MiB, 3.5GB, a number of bytes, or a share of what the baseline needs such as 0.4 or 40%"
SMALLEST = 1 << 10  #: bytes; a smaller number without a unit is a slip
LARGEST_SHARE = 2.0


class BudgetError(RefimplError, ValueError):
    """A budget that cannot be understood: one line that says what to write."""


@dataclass(frozen=True)
class Share:
    """A budget as a share of what the baseline needs; 1 is all of it."""

    share: float

    def __str__(self) -> str:
        return f"{self.share:g} of what the baseline needs"


def parse(budget: str | int | float | Share) -> int | Share:
    """Bytes, or a share of something that is not known yet."""
    if isinstance(budget, Share):
        return _share(budget.share, str(budget))
    if isinstance(budget, float):
        return _share(budget, f"{budget:g}")
    if isinstance(budget, int) and not isinstance(budget, bool):
        return _bytes(budget, str(budget) if abs(budget) < UNLIMITED else "that many bytes")
    text = budget.strip() if isinstance(budget, str) else ""
    found = re.fullmatch(r"([-+]?\d*\.?\d+)\s*([a-z]*|%)", text.replace(",", "").replace("_", "").lower())
    if not found or (found[2] != "%" and found[2] not in UNITS):
        raise BudgetError(f"a budget of {budget!r} is not understood; give {EXAMPLES}")
    number, unit = float(found[1]), found[2]
    if unit == "%":
        return _share(number / 100, text)
    if not unit and "." in found[1]:
        return _share(number, text)
    nbytes = max(-UNLIMITED, min(number * UNITS[unit], UNLIMITED))  # of a number too large for a float, the limit
    return _bytes(int(found[1]) if not unit and abs(nbytes) < UNLIMITED else round(nbytes), text)


def parse_bytes(text: str) -> int:
    """Bytes; raises `BudgetError` for a share, too."""
    found = parse(text)
    if isinstance(found, Share):
        raise BudgetError(f"a size of {text} is a share; give bytes, as in 4GiB")
    return found


def several(texts: str | None) -> list[str | None]:
    """The budgets of a text with commas between them, as in "8GiB,12GiB"; 12,000,000 is one number."""
    return [None] if texts is None else [*re.split(r"(?<![0-9]),|,(?![0-9]{3}(?![0-9.]))", texts)]


def _bytes(nbytes: int, text: str) -> int:
    if nbytes <= 0:
        raise BudgetError(f"a budget of {text} leaves nothing to train with; give {EXAMPLES}")
    if nbytes < SMALLEST:
        raise BudgetError(f"a budget of {text} would be {counted(nbytes, 'byte')}; give a unit, as in {nbytes}GiB")
    return min(nbytes, UNLIMITED)


def _share(share: float, text: str) -> Share:
    if not share > 0:
        raise BudgetError(f"a budget of {text} leaves nothing to train with; give {EXAMPLES}")
    if share > LARGEST_SHARE:
        raise BudgetError(
            f"a budget of {text} without a unit is a share of what the baseline needs, at most {LARGEST_SHARE:g}; "
            f"for bytes give a unit, as in {text}GiB"
        )
    return Share(share)


def tiers_named(text: str) -> tuple[Tier, ...]:
    """The tiers of a text; raises `MachineError`.

    Without a capacity a tier has no limit.  Without a rate it has the one in SuperNeurons' paper, and the host's tier
    the rate of the machine's link.
    """
    return tuple(_tier(part.strip()) for part in text.split(","))


def _tier(text: str) -> Tier:
    found = re.fullmatch(r"([^:@]+)(?::([^@]+))?(?:@(.+)/s)?", text)
    try:
        if found is None:
            raise BudgetError
        name, capacity, rate = found.groups()
        nbytes = [parse_bytes(part) if part else None for part in (capacity, rate)]
        return Tier(name.strip().lower(), *nbytes)
    except BudgetError:
        raise MachineError(f"the tier {text!r} is not understood; write NAME:CAPACITY@RATE, as in {TIERS}") from None

"""Tiers as people write them: "host:32GiB@8GB/s,peer:12GiB@10GB/s", the preferred one first."""

from __future__ import annotations

import re

from refimpl.machine import MachineError, Tier
from refimpl.registry.budgets import BudgetError, parse_bytes

EXAMPLE = "host:32GiB@8GB/s,peer:12GiB@10GB/s"


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
        raise MachineError(f"the tier {text!r} is not understood; write NAME:CAPACITY@RATE, as in {EXAMPLE}") from None

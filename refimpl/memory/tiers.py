"""Tiers: the memories outside the GPU that maps can be offloaded to.

SuperNeurons' unified tensor pool (§3.3.1) has three: the host's memory, another GPU's on the same PCIe switch, and
memory of another computer by RDMA.  The paper gives their rates, and evaluates the host's alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refimpl.text import MachineError, offer

HOST, PEER = "host", "peer"

#: Tier → bytes a second, by the paper.  The host's is the machine's link.
RATES: dict[str, float | None] = {HOST: None, PEER: 10e9, "remote": 6e9}


@dataclass(frozen=True)
class Tier:
    """One memory that maps can be offloaded to.

    Args:
        name: host, peer or remote.
        nbytes: its capacity in bytes; None for no limit.
        rate: bytes a second of a copy, each way; None for the paper's, and for the host the machine's link.
    """

    name: str
    nbytes: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.name not in RATES:
            raise MachineError(f"there is no tier {self.name!r}{offer(self.name, RATES)}")
        if self.nbytes is not None and self.nbytes < 0:
            raise MachineError(f"the {self.name} tier has {self.nbytes} bytes; give 0 or more, or None for no limit")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise MachineError(f"the {self.name} tier copies {self.rate} bytes a second; give a number above 0")

    @property
    def bytes_per_second(self) -> float | None:
        """None: as fast as the machine's link."""
        return self.rate if self.rate is not None else RATES[self.name]


def check_tiers(tiers: Sequence[Tier]) -> None:
    """Raise `MachineError` unless each tier is there once, and the host among them."""
    names = [tier.name for tier in tiers]
    if len(set(names)) < len(names):
        raise MachineError(f"the tiers are {', '.join(names)}; name each once")
    if HOST not in names:
        raise MachineError("the tiers lack host, where the batch comes from; add it, as in peer:12GiB,host:32GiB")


PINNED_BYTES = 512  #: buffers in the pinned arena start at multiples of this


def pinned_size(nbytes: int) -> int:
    """Bytes of the pinned arena that a buffer takes."""
    return -(-nbytes // PINNED_BYTES) * PINNED_BYTES

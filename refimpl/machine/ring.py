"""The network of a cluster: how long an all-reduce takes in a ring, and the bytes that it sends.

In a ring of n ranks each sends 2(n-1) messages of an n-th of the bytes: first every rank gets the sum of its n-th, then
all get all sums.  An all-to-all and an all-gather send the same number of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ring:
    """Args:
    rate: bytes a second that each link reaches; the default is 10 Gbit.
    latency: seconds of one message.
    shares_link: the network is reached over the link that maps are copied over, so a reduce holds up copies.
    """

    rate: float = 1.25e9
    latency: float = 20e-6
    shares_link: bool = False

    def reduce_seconds(self, nbytes: int, ranks: int) -> float:
        """An all-reduce of `nbytes`."""
        messages = 2 * (ranks - 1)
        return messages / ranks * nbytes / self.rate + messages * self.latency


TEN_GIGABIT = Ring()


def wire_bytes(nbytes: int, ranks: int) -> int:
    """Bytes that all ranks together send to reduce `nbytes`; each sends an n-th of them."""
    return 2 * (ranks - 1) * nbytes

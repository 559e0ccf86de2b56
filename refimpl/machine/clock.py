"""The clock that planning and simulating share: in-order streams, one compute engine, one copy engine a
direction, the host's threads, which work together, and the network that joins the ranks of a cluster.

A piece of work on a stream starts when the work before it on that stream is done, what it waits for has happened, and
its engine is done with all that it was given before: an engine, too, takes its work in the order it is given.  Nothing
here knows what the work is.
"""

from __future__ import annotations

from functools import reduce
from typing import Literal, get_args

Engine = Literal["compute", "out", "in", "host", "network"]


class Clock:
    """All times in seconds since the iteration began.

    Args:
        streams: how many there are.
        network_shares_link: what goes over the network occupies both copy engines, too.
    """

    later = staticmethod(max)  #: the later of two moments

    def __init__(self, streams: int, network_shares_link: bool = False) -> None:
        self._tied: dict[Engine, tuple[Engine, ...]] = {"network": ("out", "in")} if network_shares_link else {}
        self.now = [0.0] * streams  #: per stream: when all work given to it so far is done
        self._free: dict[Engine, float] = dict.fromkeys(get_args(Engine), 0.0)  #: when each engine is free again

    def run(self, stream: int, engine: Engine, seconds: float) -> tuple[float, float]:
        """A piece of work that takes so long: its start and its end."""
        start = self.later(self.now[stream], self._free[engine])
        tied = self._tied.get(engine, ())
        for other in tied:
            start = self.later(start, self._free[other])
        end = self.now[stream] = self._free[engine] = start + seconds
        for other in tied:
            self._free[other] = end
        return start, end

    def wait(self, stream: int, moment: float) -> None:
        """Work given to `stream` from now on starts at `moment` or later."""
        self.now[stream] = self.later(moment, self.now[stream])

    def hold(self, seconds: float) -> None:
        """All streams finish, then stall for `seconds`, as in a driver call that allocates or frees."""
        self.now = [self.end + seconds] * len(self.now)

    @property
    def end(self) -> float:
        """When all streams are done with what they were given so far."""
        return reduce(self.later, self.now)

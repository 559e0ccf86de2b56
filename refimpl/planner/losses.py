"""Where a program loses time: its kernels wait, run slower algorithms than the fastest, or rebuild maps."""

from __future__ import annotations

from collections import defaultdict

from refimpl.network import Tensor
from refimpl.planner.instructions import Launch
from refimpl.planner.program import Program


class Losses:
    """Seconds that a program's kernels lose, by step; a rebuild's by map."""

    def __init__(self, program: Program) -> None:
        self.waits: defaultdict[int, float] = defaultdict(float)
        self.rebuilds: defaultdict[Tensor, float] = defaultdict(float)
        self.slower: defaultdict[int, float] = defaultdict(float)  #: by which its algorithms are slower
        timeline, end = program.simulate(), 0.0
        for span in timeline.on("compute"):
            launch: Launch = span.instruction
            self.waits[launch.step] += span.start - end
            end = span.end
            if launch.rebuild:
                for tensor in (*launch.call.writes, *launch.call.updates):
                    self.rebuilds[tensor] += span.end - span.start
            elif launch.choice is not None:
                fastest = program.machine.choices(launch.call)[0]
                self.slower[launch.step] += launch.choice.seconds - fastest.seconds
        self.waits[len(program.network.steps)] += timeline.seconds - end  # the last copies
        #: The rest: what the kernels of the network take with the fastest algorithm each.
        self.kernels = timeline.busy("compute") - sum(self.rebuilds.values()) - sum(self.slower.values())

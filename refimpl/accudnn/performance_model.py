"""A model of one iteration: how long each step takes, how many bytes it holds, which maps could be away meanwhile.

The paper says that a performance model guides what is swapped; its equations are not published, and this model is our
reconstruction (R).  It is arrays by step and knows no addresses, so it does not see that a hole can be too small.

Every tensor is alive from its first to its last use.  A *candidate* is a map that is idle over at least one step
between its last use in forward and its first use in backward.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from refimpl.memory.allocation_trace import rounded
from refimpl.network import Step
from refimpl.slots.context import Context

if TYPE_CHECKING:
    import numpy as np

    from refimpl.machine import Choice, Machine


@dataclass(frozen=True, eq=False)
class Candidate:
    """A map that can be away between its last use in forward and its first in backward; uses are step numbers."""

    name: str
    nbytes: int  #: of its block
    last_write: int  #: its last write in forward; its copy out starts after it
    last_use: int  #: its last use in forward; it is released after it
    next_use: int  #: its first use in backward
    out_seconds: float  #: of the copy out; 0 for the input batch, whose copy is on the host already
    in_seconds: float


#: A step's workspace in bytes and its seconds, with some choice of algorithms.
Rung = tuple[int, float]


@dataclass(frozen=True, eq=False)
class Model:
    """One iteration.  The arrays have a place for each step 1..2N, and place 0 for what happens before them."""

    seconds: np.ndarray
    workspace: np.ndarray  #: bytes
    arriving: np.ndarray  #: bytes that a step allocates, its workspace not
    dying: np.ndarray  #: bytes that nothing needs after the step
    candidates: Sequence[Candidate]
    rungs: Sequence[Sequence[Rung]] = ()  #: for each step, from its fastest algorithms to those of least workspace
    resident: int = 0  #: bytes
    upload: float = 0.0  #: seconds of the batch's copy in, before the first step

    @property
    def steps(self) -> int:
        """2N, the number of the last step."""
        return len(self.seconds) - 1

    @cached_property
    def starts(self) -> np.ndarray:
        """When each step starts if none waits; the last place is the end of the last step."""
        import numpy as np

        return self.upload + np.append(0.0, np.cumsum(self.seconds))

    @property
    def without_stall(self) -> float:
        """Seconds of an iteration in which no step waits."""
        return float(self.starts[-1])

    @cached_property
    def base(self) -> np.ndarray:
        """Bytes at each step if every map stays."""
        import numpy as np

        alive = self.resident + np.cumsum(self.arriving) - np.append(0, np.cumsum(self.dying)[:-1])
        held: np.ndarray = alive + self.workspace
        return held

    def held(self, away: Collection[Candidate] = ()) -> np.ndarray:
        """Bytes at each step if these maps are away for as long as they are idle."""
        import numpy as np

        change = np.zeros(self.steps + 2, dtype=np.int64)
        for one in away:
            change[one.last_use + 1] -= one.nbytes
            change[one.next_use] += one.nbytes
        return self.base + np.cumsum(change)[:-1]

    def least(self) -> int:
        """The smallest budget, in bytes, that this model can train in: all candidates away, least workspaces."""
        import numpy as np

        smallest = np.array([rungs[-1][0] for rungs in self.rungs] or self.workspace)
        return int((self.held(self.candidates) - self.workspace + smallest).max())

    def capped(self, caps: Mapping[int, int]) -> Model:
        """The same iteration with a smaller workspace at some steps: step → its most bytes."""
        if not caps:
            return self
        seconds, workspace = self.seconds.copy(), self.workspace.copy()
        for step, cap in caps.items():
            workspace[step], seconds[step] = next(rung for rung in self.rungs[step] if rung[0] <= cap)
        return replace(self, seconds=seconds, workspace=workspace)

    @classmethod
    def of(cls, context: Context) -> Model:
        """The model of a network on a machine, each call by its fastest algorithm.

        A map that the setup drops is not alive while it is idle; what its rebuilding takes is left out.
        """
        import numpy as np

        network, machine = context.network, context.machine
        last = len(network.steps)
        arriving, dying = np.zeros(last + 1, dtype=np.int64), np.zeros(last + 1, dtype=np.int64)
        for tensor, uses in context.uses.items():
            if uses:
                arriving[0 if tensor.kind == "input" else uses[0].number] += rounded(tensor.nbytes)
                dying[context.last_use(tensor)] += rounded(tensor.nbytes)
        candidates = []
        for tensor in context.maps_across():
            last_use, next_use = context.last_forward_use(tensor), context.first_backward_use(tensor)
            nbytes = rounded(tensor.nbytes)
            if next_use - last_use <= 1:
                continue
            if context.is_dropped(tensor):
                dying[last_use] += nbytes
                arriving[next_use] += nbytes
                continue
            last_write = context.last_forward_write(tensor, network.depth + 1) or last_use
            out_seconds = 0.0 if tensor.kind == "input" else machine.copy_seconds(tensor.nbytes, "out")
            in_seconds = machine.copy_seconds(tensor.nbytes, "in")
            candidates.append(Candidate(tensor.name, nbytes, last_write, last_use, next_use, out_seconds, in_seconds))
        rungs: list[Sequence[Rung]] = [[(0, 0.0)], *(rungs_of(step, machine) for step in network.steps)]
        return cls(
            seconds=np.array([fastest[1] for fastest, *_ in rungs]),
            workspace=np.array([fastest[0] for fastest, *_ in rungs], dtype=np.int64),
            arriving=arriving,
            dying=dying,
            candidates=candidates,
            rungs=rungs,
            resident=sum(rounded(tensor.nbytes) for tensor in network.resident),
            upload=machine.copy_seconds(sum(x.nbytes for x in network.inputs), "in"),
        )


def rungs_of(step: Step, machine: Machine) -> list[Rung]:
    """A step's workspace and seconds, from its fastest algorithms to those of least workspace."""
    other = sum(machine.seconds(call) for call in step.calls if not (call.choosable or call.collective))
    calls = [machine.choices(call) for call in step.calls if call.choosable]
    least = max((rounded(call.scratch) for call in step.calls if call.scratch), default=0)
    found: list[Rung] = []
    for cap in sorted({space(choice) for choices in calls for choice in choices}, reverse=True):
        chosen = [choice for choice in (within(choices, cap) for choices in calls) if choice]
        if len(chosen) < len(calls):
            break
        rung = max(least, *(space(choice) for choice in chosen)), other + sum(choice.seconds for choice in chosen)
        if not found or rung[0] < found[-1][0]:
            found.append(rung)
    return found or [(least, other)]


def space(choice: Choice) -> int:
    """Bytes of the block for a choice's workspace."""
    return rounded(choice.workspace_bytes) if choice.workspace_bytes else 0


def within(choices: Iterable[Choice], cap: int | None) -> Choice | None:
    """The fastest choice whose workspace takes at most `cap` bytes; None: any."""
    return next((choice for choice in choices if cap is None or space(choice) <= cap), None)

"""A lower bound on the seconds of an iteration within a budget, whatever the policy: a mixed-integer linear programme.

It is one for plans of the network's own steps.  For plans that may cut them, give it `refimpl.network.seams.with_seams`
of it: that bound holds for plans of whole steps, too.

For every map that crosses from forward to backward it decides: keep, drop, or offload; for every convolution call, the
algorithm; for every step, which shares of which maps the link moves meanwhile.  Fates, copies and algorithms are
decided together, as POFO does it for chains (Beaumont, Eyraud-Dubois, Shilova, NeurIPS 2021).  The solver is HiGHS.

Why it is a bound: cut the iteration of any plan at the moments when the steps' own calls begin.  Its fates, its
algorithms and what its copies had moved at these moments satisfy every constraint below, at the plan's own cost.  The
reverse does not hold, for the programme knows less than the planner (`LEFT_OUT`): no plan need reach the bound.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from refimpl.machine import Choice, Machine
from refimpl.machine.seconds import fastest_seconds
from refimpl.network import Call, Network, Step, Tensor
from refimpl.planner import Context
from refimpl.text import RefimplError

#: What plans have to respect, and the programme does not.
LEFT_OUT = (
    "holes and rounding",
    "the inputs of a rebuild, and the room that it takes beside other maps",
    "second copies and second rebuilds of a map",
    "tensors that a step does not use, other than maps between forward and backward",
)
GAP = 1e-4  #: of 1: how near the bound is to the programme's optimum before the solver stops
SMALL = 3000  #: maps smaller than this part of all maps' bytes take no room: fewer variables, and still a bound
SHARES = 3000  #: maps times calls that are looked at, at most: of deep networks not all are


class NoSolver(RefimplError, ValueError):
    """HiGHS is not installed."""


@dataclass(frozen=True)
class LowerBound:
    """No plan's iteration is shorter than `seconds`."""

    seconds: float
    proved: bool  #: the solver finished; where the time limit ended it, the bound holds too, and could be higher
    columns: int
    rows: int
    calls: int  #: at which the programme looks at memory; of a deep network a part
    solver_seconds: float


@dataclass(frozen=True)
class Crossing:
    """A map between its last forward and its first backward use."""

    tensor: Tensor
    made: int  #: position of the last forward call that writes it: it can be copied out from then on
    last: int  #: number of the last forward step that uses it
    back: int  #: number of the first backward step that uses it
    ready: int  #: position of that step's first call that uses it
    rebuild: float | None  #: seconds of the forward calls that make it; None for the batch, which no call makes


def lower_bound(network: Network, machine: Machine, budget: int, time_limit: float = 60.0) -> LowerBound | None:
    """The bound; None where one step alone needs more than the budget.

    Args:
        network: any.  Chains take a second; deep networks with branches may reach the time limit.
        machine: whose cost model, link and catalogue count.
        budget: bytes of device memory.
        time_limit: seconds for the solver, for each of the two programmes where steps may be cut.

    Raises:
        NoSolver: highspy is not installed.
    """
    if single_step_bytes(network, machine) > budget:
        return None
    found = Programme(network, machine, min(budget, everything_bytes(network, machine))).solve(time_limit)
    if network.whole and (whole := lower_bound(network.whole, machine, budget, time_limit)):
        return min(whole, found, key=lambda bound: bound.seconds)  # the calls of a whole step have another order
    return found


def single_step_bytes(network: Network, machine: Machine) -> int:
    """The single-step limit: the bytes that the most demanding step, or part of one, needs by itself."""
    return max(used(network, step) + least_workspace(machine, step) for step in network.steps)


def steps_of(network: Network) -> str:
    """The steps of the plans that a limit holds for."""
    return "steps whole or cut at their seams" if network.whole else "whole steps"


def everything_bytes(network: Network, machine: Machine) -> int:
    """Bytes of all tensors at once beside the largest workspace: more memory helps no policy."""
    tensors = {tensor for step in network.steps for tensor in step.uses}
    calls = [call for step in network.steps for call in step.calls if call.choosable]
    workspace = max((choice.workspace_bytes for call in calls for choice in machine.choices(call)), default=0)
    return network.resident_bytes + sum(tensor.nbytes for tensor in tensors) + workspace


def used(network: Network, step: Step) -> int:
    """Bytes on the device while a step runs, without its workspace."""
    return network.resident_bytes + sum(tensor.nbytes for tensor in step.uses)


def least_workspace(machine: Machine, step: Step) -> int:
    """Bytes that the step's calls need, each with its most frugal algorithm."""
    calls = (call for call in step.calls if call.choosable)
    return max((min(choice.workspace_bytes for choice in machine.choices(call)) for call in calls), default=0)


def floor_seconds(network: Network, machine: Machine) -> float:
    """The upload of the batch, and every call by its fastest algorithm: the bound with unlimited memory."""
    return machine.copy_seconds(network.input.nbytes, "in") + sum(fastest_seconds(network, machine))


class Programme:
    """Its variables and its constraints.

    Times are shares of the floor in it and bytes are shares of the budget, so that its numbers are near 1.  Each call
    that is looked at has two moments: it begins, and it ends.  Window i is the time from moment i to moment i + 1, so
    even windows are calls, and odd ones are what is between two of them.
    """

    def __init__(self, network: Network, machine: Machine, budget: int) -> None:
        self.network, self.machine, self.budget = network, machine, budget
        self.floor = floor_seconds(network, machine)
        self.solver = silent_solver()
        crossing = crossings(network, machine, budget)
        calls = [(step, call) for step in network.steps for call in step.calls]
        self.looked_at = looked_at(network, crossing)  # positions in `calls`
        windows = range(2 * len(self.looked_at))
        #: Window → time of calls.
        self.own = [self.solver.expr() for _ in windows]
        #: Window → time in which no call runs for the first time: waits and rebuilds.
        self.pause = [self.solver.addVariable() for _ in windows]
        self.free: list[Any] = []  # bytes that a call that is looked at leaves, itself and its workspace
        self.out: defaultdict[int, list[Any]] = defaultdict(list)  # window → time of copies to the host
        self.back: defaultdict[int, list[Any]] = defaultdict(list)  # window → time of copies from the host
        self.absent: defaultdict[int, list[Any]] = defaultdict(list)  # moment → bytes that are away
        self.rebuilds: defaultdict[int, list[Any]] = defaultdict(list)  # call that needs them → time of rebuilds
        for position, (step, call) in enumerate(calls):
            self._algorithm(position, step, call)
        for one in crossing:
            self._fate(one, [step.number for step, _ in calls])
        for moment in windows:
            number = calls[self.looked_at[moment // 2]][0].number
            self._memory(moment, [one.tensor for one in crossing if one.last < number < one.back])
        self._link(self.out)
        self._link(self.back)
        self._rebuilds_in_time(sum(len(step.calls) for step in network.steps[: network.depth]))

    def _after(self, position: int) -> int:
        """The window between calls that begins when a call ends, or in which it runs."""
        return 2 * bisect_right(self.looked_at, position) - 1

    def _algorithm(self, position: int, step: Step, call: Call) -> None:
        """A call has one algorithm, which fits beside what the step uses.

        When the call runs, the bytes of its operands and of its workspace are its own; those of the step's other calls
        may still belong to a copy.
        """
        solver = self.solver
        is_looked_at = position in self.looked_at
        window = self._after(position) - is_looked_at
        free: Any = 1 - held_by(self.network, step, call) / self.budget
        if not call.choosable:
            self.own[window] += self.machine.seconds(call) / self.floor
        else:
            choices = self._worthwhile(call, self.budget - used(self.network, step))
            takes = [solver.addBinary() for _ in choices] if is_looked_at else [1.0]
            if is_looked_at:
                solver.addConstr(solver.qsum(takes) == 1)
                workspaces = (c.workspace_bytes / self.budget * take for take, c in zip(takes, choices, strict=True))
                free = free - solver.qsum(workspaces)
            for take, choice in zip(takes, choices, strict=False):
                self.own[window] += choice.seconds / self.floor * take
        if is_looked_at:
            self.free.append(free)

    def _worthwhile(self, call: Call, room: int) -> list[Choice]:
        """The algorithms that fit by themselves, and are faster than all that need less."""
        found: list[Choice] = []
        for choice in self.machine.choices(call):  # fastest first
            if choice.workspace_bytes <= room and (not found or choice.workspace_bytes < found[-1].workspace_bytes):
                found.append(choice)
        return found

    def _fate(self, one: Crossing, numbers: Sequence[int]) -> None:
        """A map is dropped; or it leaves, is away for some moments, and returns; or it stays."""
        solver, share = self.solver, one.tensor.nbytes / self.budget
        copy = fastest_copy(self.machine, one.tensor) / self.floor
        leaves = solver.addBinary()
        dropped: Any = 0.0
        if one.rebuild is not None:
            dropped = solver.addBinary()
            solver.addConstr(leaves + dropped <= 1)
            self.rebuilds[one.ready].append(one.rebuild / self.floor * dropped)
        out_before: Any = 0.0  # parts of it that were copied, out and back, at the moment before
        back_before: Any = 0.0
        begins, ends = self._after(one.made) + 1, 2 * bisect_left(self.looked_at, one.ready)
        for moment in range(begins, ends + 1):
            if moment < ends:
                out, back = solver.addVariable(ub=1), solver.addVariable(ub=1)
                if one.last < numbers[self.looked_at[moment // 2]] < one.back:
                    away = solver.addBinary()  # copied out as a whole, and its return has not begun
                    solver.addConstr(away <= out - back)
                    self.absent[moment].append(share * (away + dropped))
            else:
                out = back = leaves  # all that left has returned
            if moment > begins:  # no copy is undone
                solver.addConstr(out >= out_before)
                solver.addConstr(back >= back_before)
            if one.tensor is not self.network.input:  # whose copy on the host is always there
                self.out[moment - 1].append(copy * (out - out_before))
            self.back[moment - 1].append(copy * (back - back_before))
            out_before, back_before = out, back

    def _memory(self, moment: int, between: Sequence[Tensor]) -> None:
        """When a call begins and when it ends, maps that are not away fit beside it and its workspace."""
        if between:
            held = sum(tensor.nbytes for tensor in between) / self.budget
            self.solver.addConstr(held - self.solver.qsum(self.absent[moment]) <= self.free[moment // 2])

    def _link(self, copies: Mapping[int, Sequence[Any]]) -> None:
        """In each direction the link is no longer busy than a window is long."""
        for window, times in copies.items():
            self.solver.addConstr(self.solver.qsum(times) <= self.own[window] + self.pause[window])

    def _rebuilds_in_time(self, forward: int) -> None:
        """Dropped maps are rebuilt one after another, after the `forward` calls and before the call that needs them."""
        due: list[Any] = []
        for position in sorted(self.rebuilds):
            due += self.rebuilds[position]
            pauses = self.pause[self._after(forward - 1) : self._after(position - 1) + 1 : 2]
            self.solver.addConstr(self.solver.qsum(due) <= self.solver.qsum(pauses))

    def solve(self, time_limit: float) -> LowerBound:
        """The least sum of the batch's upload, the calls and the pauses."""
        solver = self.solver
        solver.setOptionValue("time_limit", time_limit)
        solver.setObjective(solver.qsum([*self.own, *self.pause]))  # to be minimised
        thread = solver.startSolve()
        try:
            while not solver.wait(0.1)[0]:
                pass
        except KeyboardInterrupt:
            solver.cancelSolve()
            thread.join()
            raise
        found = self.machine.copy_seconds(self.network.input.nbytes, "in")
        found += solver.getInfo().mip_dual_bound * self.floor
        proved = solver.getModelStatus().name == "kOptimal"
        size = solver.numVariables, solver.numConstrs, len(self.looked_at)
        return LowerBound(max(found, self.floor), proved, *size, solver.getRunTime())


def crossings(network: Network, machine: Machine, budget: int) -> list[Crossing]:
    """The maps that some step does not use between their last forward and first backward use; without small ones."""
    context = Context(network, machine, budget)
    maps = [tensor for tensor in context.maps_across() if tensor.managed]
    small = sum(tensor.nbytes for tensor in maps) / SMALL
    calls = [(step, call) for step in network.steps for call in step.calls]
    found = []
    for tensor in maps:
        last, back = context.last_forward_use(tensor), context.first_backward_use(tensor)
        if back - last <= 1 or tensor.nbytes < small:
            continue
        written = [
            at for at, (step, call) in enumerate(calls) if step.forward and tensor in (*call.writes, *call.updates)
        ]
        ready = next(at for at, (step, call) in enumerate(calls) if step.number == back and tensor in call.operands)
        rebuild = None if tensor is network.input else rebuild_seconds(tensor, context)
        found.append(Crossing(tensor, max(written, default=0), last, back, ready, rebuild))
    return found


def rebuild_seconds(tensor: Tensor, context: Context) -> float:
    """Seconds that the forward calls that make a map take at least within the budget.

    A step that makes several maps is shared among them.
    """
    seconds = 0.0
    for step in context.uses[tensor]:
        made = [x for x in (*step.writes, *step.updates) if x.kind == "map"]
        if step.forward and tensor in made:
            seconds += sum(alone_seconds(call, context) for call in step.calls if not call.once) / len(made)
    return seconds


def alone_seconds(call: Call, context: Context) -> float:
    """Seconds of a call, by the fastest algorithm whose workspace fits beside its operands."""
    if not call.choosable:
        return context.machine.seconds(call)
    there = sum(tensor.nbytes for tensor in set(call.operands) if tensor.managed)
    room = context.budget - context.network.resident_bytes - there
    fitting = (one.seconds for one in context.machine.choices(call) if one.workspace_bytes <= room)  # fastest first
    return next(fitting, float("inf"))


def fastest_copy(machine: Machine, tensor: Tensor) -> float:
    """Seconds of a copy to or from the tier with the fastest link."""
    return min(machine.copy_seconds(tensor.nbytes, "in", tier.name) for tier in machine.tiers)


def held_by(network: Network, step: Step, call: Call) -> int:
    """Bytes on the device while a call runs, without its workspace and idle maps.

    They are those of its operands, and of what the step's earlier and later calls both use.
    """
    place = step.calls.index(call)
    earlier = {tensor for one in step.calls[:place] for tensor in one.operands}
    later = {tensor for one in step.calls[place + 1 :] for tensor in one.operands}
    there = {*call.operands, *(earlier & later)}
    return network.resident_bytes + sum(tensor.nbytes for tensor in there if tensor.managed)


def looked_at(network: Network, crossing: Sequence[Crossing]) -> list[int]:
    """Positions of the calls at which the programme looks at memory.

    They are each step's convolutions, or else its call with the most bytes; of a deep network the fullest of as many
    groups of them.  A programme that looks at fewer calls is a relaxation of one that looks at more.
    """
    found: list[tuple[int, int]] = []  # position, bytes if every map were kept
    position = 0
    for step in network.steps:
        kept = sum(one.tensor.nbytes for one in crossing if one.last < step.number < one.back)
        demands = [(position + place, kept + held_by(network, step, call)) for place, call in enumerate(step.calls)]
        chosen = [demand for demand, call in zip(demands, step.calls, strict=True) if call.choosable]
        found += chosen or sorted(demands, key=lambda demand: -demand[1])[:1]  # a step may have no call
        position += len(step.calls)
    groups = min(len(found), max(2, SHARES // max(1, len(crossing))))
    ends = [len(found) * group // groups for group in range(groups + 1)]
    fullest = {max(found[start:end], key=lambda demand: demand[1])[0] for start, end in pairwise(ends)}
    return sorted({0, *fullest})


def silent_solver() -> Any:
    """HiGHS with one thread: the same bound each time, unless the time limit ends it."""
    try:
        import highspy
    except ImportError:
        raise NoSolver('the bound needs the solver HiGHS; install it with: pip install "refimpl[optimum]"') from None
    with banner_discarded():
        made = highspy.Highs()
    made.silent()
    made.setOptionValue("threads", 1)
    made.setOptionValue("mip_rel_gap", GAP)
    made.HandleKeyboardInterrupt = True  # the solver runs in a thread of its own, and can be stopped
    return made


@contextmanager
def banner_discarded() -> Iterator[None]:
    """HiGHS 1.16 and later print two lines on standard output when a solver is made, before it can be told not to."""
    sys.stdout.flush()
    with open(os.devnull, "wb") as nowhere:
        kept = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)

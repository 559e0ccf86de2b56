"""The program: one iteration of training as a flat list of instructions, addresses included.

A backend executes it again and again; `verify` proves it safe; `simulate` gives its time; `listing` shows it to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refimpl.machine import Machine, Timeline, simulate
from refimpl.memory.allocation_trace import TraceEvent
from refimpl.network import Network, Tensor
from refimpl.planner.instructions import Allocate, Copy, Counts, Free, Instruction, Launch, Lifetime, StepRow
from refimpl.slots.context import Fate
from refimpl.slots.setup import Setup
from refimpl.text import counted

if TYPE_CHECKING:
    from refimpl.machine.possible import MachineSeconds, PossibleMachines
    from refimpl.planner.listing import Selection
    from refimpl.planner.verify import Proof
    from refimpl.slots.search import Trial


@dataclass(eq=False)
class Program:
    """One iteration of training `network`, planned with `setup` for `machine` within `budget` bytes."""

    network: Network
    setup: Setup
    machine: Machine
    budget: int  #: bytes that may be used
    #: Bytes that are taken: of the pool that it was planned in.  The budget, or less where a larger pool has no hole
    #: for a block.  Given back as a budget, they fit.
    pool_bytes: int
    instructions: list[Instruction]
    streams: tuple[str, ...]
    resident: Mapping[Tensor, int]  #: the resident tensors' addresses
    pinned: Mapping[Tensor, int]  #: addresses of the batch and of the results in the pinned arena
    fates: Mapping[Tensor, Fate]  #: of every map that is read in backward
    rows: list[StepRow]
    counts: Counts
    #: The most bytes that are in use at a time.  They are no budget: a pool of this size has other holes.  A budget
    #: that fits is `pool_bytes`; the least one is `refimpl.least_budget(...)`.
    peak_bytes: int
    arena_bytes: int  #: the highest address ever used
    pinned_bytes: int  #: of the host's memory
    planned_seconds: float
    store_bytes: int = 0  #: ordinary memory of the host for maps that its threads store, at worst
    tier_bytes: Mapping[str, int] = field(default_factory=dict)  #: of the other tiers that hold maps
    tried: tuple[Trial, ...] = ()  #: the setups that a search planned before it adopted this one

    @property
    def peak(self) -> StepRow:
        """The step with the most live bytes."""
        return max(self.rows, key=lambda row: row.live_bytes)

    @property
    def adopted(self) -> Trial | None:
        """The trial that this program was planned in, if a search planned it."""
        names = self.setup.name.split(": ")
        found = (trial for trial in self.tried if trial.setup in names and trial.seconds == self.planned_seconds)
        return next(found, None)

    @property
    def algorithms(self) -> dict[str, str]:
        """Name of a choosable call → its algorithm; `machine.with_algorithms` makes another plan take them."""
        launches = (it for it in self.instructions if isinstance(it, Launch))
        return {one.call.name: one.choice.algorithm for one in launches if one.choice is not None}

    def lifetimes(self) -> list[Lifetime]:
        """Every block of the iteration, managed tensors and workspaces, in the order of allocation."""
        found: list[Lifetime] = []
        live: dict[int, Lifetime] = {}  # by address
        for position, it in enumerate(self.instructions):
            touched: tuple[int, ...] = ()
            if isinstance(it, Launch):
                touched = it.addresses if it.workspace is None else (*it.addresses, it.workspace[0])
            elif isinstance(it, Copy):
                touched = (it.address,)
            elif isinstance(it, Allocate):
                live[it.address] = Lifetime(it, position, len(self.instructions))
                found.append(live[it.address])
            elif isinstance(it, Free):
                life = live.pop(it.address)
                life.end, life.free = position, it
            for address in touched:
                if address in live:  # else it is a resident tensor's
                    live[address].uses.append(position)
        return found

    def allocation_trace(self) -> list[TraceEvent]:
        """The allocations and frees of the iteration, in order; blocks are numbered in the order of allocation."""
        events = {}
        for number, life in enumerate(self.lifetimes()):
            it = life.allocate
            events[life.begin] = TraceEvent(number, it.tensor.nbytes, it.stays, it.tensor.name, it.tensor.kind, it.step)
            if life.free is not None:
                events[life.end] = TraceEvent(number, 0, step=life.free.step)
        return [events[position] for position in sorted(events)]

    def listing(self, steps: Selection = None, instructions: bool = False) -> str:
        """The program for people; the arguments are those of `planner.listing.listing`."""
        from refimpl.planner.listing import listing

        return listing(self, steps, instructions)

    def decisions(self) -> dict[str, Any]:
        """Each map's fate, and what happens to it before and after which step, as values that JSON can hold.

        `refimpl.torch.Planned` carries them out, also where nothing but PyTorch is installed.
        """
        from refimpl.planner.decisions import decisions

        return decisions(self)

    def simulate(self, machine: Machine | None = None) -> Timeline:
        """When each instruction would run, on the machine it was planned for or on another one."""
        driver_calls = self.setup.allocator.driver_calls
        return simulate(self.instructions, self.streams, machine or self.machine, driver_calls)

    def possible_seconds(self, machines: PossibleMachines | None = None) -> MachineSeconds:
        """MachineSeconds of an iteration on machines around the one that it was planned for: an array, a number each.

        Args:
            machines: the same for programs that are to be compared; None: `refimpl.machine.possible.NUMBER` of them.
        """
        from refimpl.machine.possible import PossibleMachines, possible_seconds

        driver_calls = self.setup.allocator.driver_calls
        return possible_seconds(
            self.instructions, self.streams, machines or PossibleMachines(self.machine), driver_calls
        )

    def verify(self) -> Proof:
        """The proof that this program is right; raises `Unsafe` with the first violation."""
        from refimpl.planner.verify import verify

        return verify(self)

    def __repr__(self) -> str:
        return f"program of {self.network}, {self.setup.name}: {counted(len(self.instructions), 'instruction')}"

"""The program: a flat list of instructions, addresses included, that is one iteration of training.

It says everything and hides nothing: what is allocated where, which kernel runs with which algorithm on which bytes,
what is copied where and when, and which stream waits for what.  A backend executes it again and again; `verify` proves
it safe; `simulate` says how long it takes; `listing` shows it to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from refimpl.machine import Choice, Machine, Timeline, simulate
from refimpl.network import Call, Network, Step, Tensor
from refimpl.planner.search import Trial

if TYPE_CHECKING:
    from refimpl.planner.listing import Selection
    from refimpl.planner.setup import Setup
    from refimpl.planner.verify import Proof

COMPUTE = 0  #: the stream that every kernel runs on
PINNED_BYTES = 512  #: buffers in the pinned arena start at multiples of this


def pinned_size(nbytes: int) -> int:
    """Bytes that a buffer takes of the pinned arena."""
    return -(-nbytes // PINNED_BYTES) * PINNED_BYTES


def compressed_limit(nbytes: int) -> int:
    """Bytes that a compressed map takes at most: all its numbers, and a bit each."""
    return pinned_size(nbytes + 4 * -(-nbytes // 128))


@dataclass(slots=True, eq=False)
class Allocate:
    """From here on `tensor` lives at `address` of the device arena, in a block of `nbytes` (rounded up)."""

    step: int
    tensor: Tensor
    address: int
    nbytes: int
    op: ClassVar = "allocate"


@dataclass(slots=True, eq=False)
class Free:
    """The block goes back to the pool.  The plan had let go of the tensor after step `released`, perhaps earlier."""

    step: int
    tensor: Tensor
    address: int
    nbytes: int
    released: int
    op: ClassVar = "free"


@dataclass(slots=True, eq=False)
class Launch:
    """`addresses` are those of `call.operands`, in order; `workspace` is address and bytes of the call's workspace."""

    step: int
    call: Call
    addresses: tuple[int, ...]
    choice: Choice | None = None
    workspace: tuple[int, int] | None = None
    rebuild: bool = False
    stream: int = COMPUTE
    op: ClassVar = "launch"


@dataclass(slots=True, eq=False)
class CopyOut:
    """`nbytes` of the device arena at `address` to the pinned arena at `host`."""

    step: int
    tensor: Tensor
    address: int
    host: int
    nbytes: int
    stream: int
    why: str = ""
    op: ClassVar = "copy out"


@dataclass(slots=True, eq=False)
class CopyIn:
    """`nbytes` of the pinned arena at `host` to the device arena at `address`."""

    step: int
    tensor: Tensor
    address: int
    host: int
    nbytes: int
    stream: int
    why: str = ""
    op: ClassVar = "copy in"


@dataclass(slots=True, eq=False)
class Compress:
    """The host's threads compress the map at `host` of the pinned arena into the store, from `store` on.

    `planned` is the bytes that it is expected to take there; what it takes depends on the map.
    """

    step: int
    tensor: Tensor
    host: int
    store: int
    nbytes: int
    planned: int
    stream: int
    why: str = ""
    op: ClassVar = "compress"


@dataclass(slots=True, eq=False)
class Decompress:
    """The host's threads decompress a map from the store into the pinned arena."""

    step: int
    tensor: Tensor
    host: int
    store: int
    nbytes: int
    planned: int
    stream: int
    why: str = ""
    op: ClassVar = "decompress"


@dataclass(slots=True, eq=False)
class Record:
    """`event` happens when all that was given to `stream` so far is done."""

    step: int
    stream: int
    event: int
    op: ClassVar = "record"


@dataclass(slots=True, eq=False)
class Wait:
    """What is given to `stream` from now on starts after `event`."""

    step: int
    stream: int
    event: int
    op: ClassVar = "wait"


Instruction = Allocate | Free | Launch | CopyOut | CopyIn | Compress | Decompress | Record | Wait

FateName = Literal["keep", "offload", "drop"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a map between its last forward and its first backward use, which module said so, and why."""

    name: FateName
    module: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepRow:
    """The books at one step, sampled just before its first launch.  Bytes."""

    step: Step
    live_bytes: int  #: managed tensors, unrounded, without workspaces
    live_tensors: int
    transient_bytes: int  #: the highest moment inside the step
    pool_bytes: int  #: held by the pool: resident tensors, rounding, draining bytes, workspace
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What the plan moved and did beside the calls of the network.  The input batch is not counted as moved."""

    offloaded_bytes: int = 0
    prefetched_bytes: int = 0
    on_demand_bytes: int = 0
    evicted_bytes: int = 0
    skipped_prefetches: int = 0
    hits: int = 0  #: tensors that a step reads, and that are there
    misses: int = 0  #: those that are not: fetched or rebuilt
    evictions: int = 0  #: tensors pushed out, with a copy or without
    recomputed_layers: int = 0
    compressed_bytes: int = 0  #: of maps that the host's threads compressed
    stored_bytes: int = 0  #: what is left of them, as planned
    waits: int = 0


@dataclass(eq=False)
class Program:
    """One iteration of training `network`, planned with `setup` for `machine` within `budget` bytes."""

    network: Network
    setup: Setup
    machine: Machine
    budget: int
    instructions: list[Instruction]
    streams: tuple[str, ...]
    resident: Mapping[Tensor, int]  #: the resident tensors' addresses
    host: Mapping[Tensor, int]  #: where in pinned memory the batch comes from and the results go to
    fates: Mapping[Tensor, Fate]  #: of every map that is read in backward
    rows: list[StepRow]
    counts: Counts
    peak_bytes: int  #: the most the pool ever held
    arena_bytes: int  #: the highest address ever used
    pinned_bytes: int
    planned_seconds: float
    store_bytes: int = 0  #: of ordinary memory, if no number of any compressed map were zero
    tried: tuple[Trial, ...] = ()  #: what a policy that searches had planned before it adopted this setup

    @property
    def peak(self) -> StepRow:
        """The step with the most live bytes."""
        return max(self.rows, key=lambda row: row.live_bytes)

    def listing(self, steps: Selection = None, instructions: bool = False) -> str:
        """The program for people: `planner.listing.listing` says what can be asked for."""
        from refimpl.planner.listing import listing

        return listing(self, steps, instructions)

    def simulate(self, machine: Machine | None = None) -> Timeline:
        """When each instruction would run, on the machine it was planned for or on another one."""
        driver_calls = self.setup.allocator.driver_calls
        return simulate(self.instructions, self.streams, machine or self.machine, driver_calls)

    def verify(self) -> Proof:
        """The proof that this program is right; raises `Unsafe` with the first thing that is wrong."""
        from refimpl.planner.verify import verify

        return verify(self)

    def __repr__(self) -> str:
        return f"program of {self.network}, {self.setup.name}: {len(self.instructions)} instructions"

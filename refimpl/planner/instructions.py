"""The parts of a program: its instructions, each map's fate, and the planner's record of every step.

The instructions are complete: the address of each allocation, each kernel with its algorithm and its bytes, each copy,
and each wait of a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from refimpl.machine import HOST, Choice
from refimpl.network import Call, Step, Tensor
from refimpl.slots.planner_only import Codec

COMPUTE = 0  #: the stream that every kernel runs on
NETWORK_STREAM = "network"  #: the name of the stream of collective calls
HOST_STREAM = "host"  #: the name of the stream of the host's threads, which is the last one
DEVICE = "device"  #: the memory of kernels; the others are the tiers, HOST first among them, and the store
STORE = "store"  #: ordinary memory of the host, in which maps may take fewer bytes


@dataclass(slots=True, eq=False)
class Allocate:
    """From here on `tensor` has the block of `nbytes` (rounded up) at `address` of the device arena.

    `stays` is the hint that the allocator was given: the block is kept from forward to backward.
    """

    step: int
    tensor: Tensor
    address: int
    nbytes: int
    stays: bool = False
    op: ClassVar[Literal["allocate"]] = "allocate"


@dataclass(slots=True, eq=False)
class Free:
    """The block goes back to the pool.  The plan released the tensor after step `released`, perhaps earlier."""

    step: int
    tensor: Tensor
    address: int
    nbytes: int
    released: int
    op: ClassVar[Literal["free"]] = "free"


@dataclass(slots=True, eq=False)
class Launch:
    """The kernels of `call` run on `stream`.

    `addresses` are those of `call.operands`, in order; `workspace` is address and bytes of the call's workspace.
    """

    step: int
    call: Call
    addresses: tuple[int, ...]
    choice: Choice | None = None
    workspace: tuple[int, int] | None = None
    rebuild: bool = False
    stream: int = COMPUTE
    op: ClassVar[Literal["launch"]] = "launch"


class Region(NamedTuple):
    """Bytes of one memory."""

    memory: str  #: DEVICE, a tier or STORE
    address: int
    nbytes: int  #: that its content takes; in the store as planned


class Transfer:
    """Work that reads a tensor in one memory, its `source`, and writes it in another, its `target`."""

    __slots__ = ()
    inwards: ClassVar[bool]  #: towards the kernels

    @property
    def ends(self) -> tuple[Region, Region]:
        """Both places, that nearer to the kernels first."""
        raise NotImplementedError

    @property
    def source(self) -> Region:
        return self.ends[self.inwards]

    @property
    def target(self) -> Region:
        return self.ends[not self.inwards]


@dataclass(slots=True, eq=False)
class Copy(Transfer):
    """`nbytes` of the device arena at `address` and of a tier's at `pinned_address`; the host's is the pinned one."""

    step: int
    tensor: Tensor
    address: int
    pinned_address: int
    nbytes: int
    stream: int
    why: str = ""
    tier: str = HOST
    op: ClassVar[Literal["copy out", "copy in"]]

    @property
    def ends(self) -> tuple[Region, Region]:
        return Region(DEVICE, self.address, self.nbytes), Region(self.tier, self.pinned_address, self.nbytes)


@dataclass(slots=True, eq=False)
class CopyOut(Copy):
    """From the device arena to the tier's."""

    op: ClassVar[Literal["copy out"]] = "copy out"
    inwards: ClassVar = False


@dataclass(slots=True, eq=False)
class CopyIn(Copy):
    """From the tier's arena to the device's."""

    op: ClassVar[Literal["copy in"]] = "copy in"
    inwards: ClassVar = True


@dataclass(slots=True, eq=False)
class HostCopy(Transfer):
    """The host's threads copy the map between `pinned_address` of the pinned arena and `store_address` of the store.

    `codec` says how it is written in the store, where `planned` is the expected number of its bytes; the real number
    depends on the map.
    """

    step: int
    tensor: Tensor
    pinned_address: int
    store_address: int
    nbytes: int
    planned: int
    stream: int
    codec: Codec = field(repr=False)
    why: ClassVar = ""
    tier: ClassVar = HOST

    @property
    def ends(self) -> tuple[Region, Region]:
        return Region(HOST, self.pinned_address, self.nbytes), Region(STORE, self.store_address, self.planned)

    @property
    def op(self) -> str:
        """The codec's word for it."""
        return self.codec.unpacks if self.inwards else self.codec.packs


@dataclass(slots=True, eq=False)
class ToStore(HostCopy):
    """From the pinned arena into the store."""

    inwards: ClassVar = False


@dataclass(slots=True, eq=False)
class FromStore(HostCopy):
    """From the store into the pinned arena."""

    inwards: ClassVar = True


@dataclass(slots=True, eq=False)
class Record:
    """`event` happens when all work given to `stream` so far is done."""

    step: int
    stream: int
    event: int
    op: ClassVar[Literal["record"]] = "record"


@dataclass(slots=True, eq=False)
class Wait:
    """Work given to `stream` from now on starts after `event`."""

    step: int
    stream: int
    event: int
    op: ClassVar[Literal["wait"]] = "wait"


Work = Launch | Copy | HostCopy  #: what keeps a stream busy
Instruction = Allocate | Free | Work | Record | Wait


@dataclass(frozen=True, slots=True)
class StepRow:
    """Memory at one step, sampled just before its first launch, in bytes."""

    step: Step
    live_bytes: int  #: managed tensors, unrounded, without workspaces
    live_tensors: int
    transient_bytes: int  #: the highest moment inside the step
    pool_bytes: int  #: held by the pool: resident tensors, rounding, draining bytes, workspace
    workspace_bytes: int


@dataclass(slots=True, eq=False)
class Lifetime:
    """A block from its allocation to its free; `begin` and `end` are the positions of the two instructions."""

    allocate: Allocate
    begin: int
    end: int  #: the number of instructions, where the block is never freed
    free: Free | None = None
    uses: list[int] = field(default_factory=list)  #: positions of the launches and copies that touch it

    @property
    def tensor(self) -> Tensor:
        return self.allocate.tensor


@dataclass(frozen=True, slots=True)
class Counts:
    """Bytes moved and work done beside the calls of the network.  The input batch does not count as moved."""

    offloaded_bytes: int = 0
    prefetched_bytes: int = 0
    on_demand_bytes: int = 0
    evicted_bytes: int = 0
    skipped_prefetches: int = 0  #: for want of a hole
    hits: int = 0  #: tensors that a step reads and that are on the device
    misses: int = 0  #: those that are not: copied in or rebuilt
    evictions: int = 0  #: tensors evicted, with a copy or without
    recomputed_layers: int = 0
    compressed_bytes: int = 0  #: of maps that the host's threads copied into the store
    stored_bytes: int = 0  #: their bytes there, as planned
    waits: int = 0

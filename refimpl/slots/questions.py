"""The slots of a setup: the questions of each to its module, when they are asked, and what the module may look at.

The executor asks, and the planner.  A module is a frozen object: it has parameters and no state.  `bind(context)`
returns a fresh object that answers for one iteration, so that no mark survives to the next.  Modules are bound in the
order recompute → offload → liveness → prefetch, then cache, algorithms, pinned: a checkpoint's output counts as read by
every backward step that rebuilds from it, and a dropped map needs no offload.

A module names the features it `needs` of the others and those it `offers`; a setup with an unmet need is refused
when it is built.  A wrong answer of a module that is not the project's is refused, too: see `answers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

from refimpl.memory.tiers import HOST
from refimpl.network import Call, Step, Tensor
from refimpl.slots.context import Context

if TYPE_CHECKING:
    from refimpl.machine import Choice

Feature = Literal[
    "release",  # liveness: a tensor that is not needed for a while is let go in between
    "offload",  # offload: some maps leave
    "rebuild",  # recompute: some maps are dropped and rebuilt
    "eviction",  # cache: a failed allocation may push something out
]
Bound = TypeVar("Bound", covariant=True)  #: the protocol of what answers for one iteration


class Module(ABC, Generic[Bound]):
    """Base class of every module: a frozen object with parameters and without state."""

    if TYPE_CHECKING:  # a subclass has both, as class variables or as fields

        @property
        def name(self) -> str:
            """The name in `--set slot=name`."""

        @property
        def summary(self) -> str:
            """One line."""

    #: What the other modules must offer.
    needs: ClassVar[frozenset[Feature]] = frozenset()
    #: What the other modules may rely on.
    offers: ClassVar[frozenset[Feature]] = frozenset()

    @property
    def follows_pool(self) -> bool:
        """Whether its answers depend on the pool: on its bytes (`context.budget`), its holes, or what fails there."""
        return False

    @abstractmethod
    def bind(self, context: Context) -> Bound:
        """A fresh object that answers for one iteration."""

    def bound(self, context: Context) -> Bound:
        """What `bind` returns; the answers of a module that is not the project's are checked."""
        if type(self).__module__.startswith("refimpl."):
            return self.bind(context)
        from refimpl.slots.answers import checked

        return checked(self, context)


# -- offload -----------------------------------------------------------------------------------------------------------


class Offload(Module["BoundOffload"]):
    """The modules of the slot offload."""


class BoundOffload(Protocol):
    """Which maps are offloaded, and at which step.  A map that `context.fates` drops needs no offload."""

    def offloads(self) -> Mapping[Tensor, str]:
        """Asked once.  Every map to be offloaded → the reason.  It is released after its last forward use."""

    def leaves(self, step: Step) -> Sequence[Tensor]:
        """Asked after the launches of every step: the maps whose copy out starts now."""


# -- liveness ----------------------------------------------------------------------------------------------------------


class Liveness(Module["BoundLiveness"]):
    """The modules of the slot liveness."""


class BoundLiveness(Protocol):
    """After which step a tensor is released.  May look at `context.fates` and `context.rebuilt_from`."""

    def dead(self, step: Step) -> Sequence[Tensor]:
        """Asked at the end of every step: the tensors that no later step needs, or not before they are copied in."""


# -- prefetch ----------------------------------------------------------------------------------------------------------


class Prefetch(Module["BoundPrefetch"]):
    #: When it is asked: "early", before the step's own allocations; "between" its maps' and its weights' gradients;
    #: "late", after all of them and the workspace, where a hole is left.
    order: Literal["early", "between", "late"] = "late"


class BoundPrefetch(Protocol):
    """Which offloaded maps are prefetched while a step runs.  It is never forced.

    A prefetch that finds no hole is left out: the map is fetched on demand.
    """

    def due(self, step: Step) -> Sequence[Tensor]:
        """Asked once at every step: the maps to copy in now.

        Maps that are on the device, or that no step needs any more, are ignored.
        """


# -- pinned ------------------------------------------------------------------------------------------------------------


class Pinned(Module["BoundPinned"]):
    #: Whether threads of the host copy maps on into the store; `bind` returns a `BoundStore` (`planner_only`).
    uses_store: ClassVar[bool] = False
    #: Whether it places maps in other tiers than the host's memory, where the machine has any.
    spans_tiers: ClassVar[bool] = False


class Place(NamedTuple):
    """A buffer's place: an address in a tier (in the host's memory: in its part for maps)."""

    address: int
    tier: str = HOST


class BoundPinned(Protocol):
    """Places the buffers of offloaded maps in pinned memory or another tier."""

    @property
    def limits(self) -> Mapping[str, int]:
        """Tier → bytes that maps may take there: at most those of `context.tiers`."""

    def place(self, tensor: Tensor) -> Place | None:
        """Asked before a copy out of a map that has no buffer: the buffer's place.

        None where the limits leave no room; it is asked again when another buffer has been given back.
        """

    def fetched(self, tensor: Tensor) -> bool:
        """Told when a copy in has been issued, and where the limit leaves no room for a copy that is outdated.

        True takes the buffer back, and the copy with it.
        """


# -- recompute and cache, for SuperNeurons; algorithms, for the planner alone.  A reader of vDNN stops here ------------


class Recompute(Module["BoundRecompute"]):
    """The modules of the slot recompute.

    An example, memory-centric: norm, relu and pool come after the checkpoint conv; the relu works in place on norm's
    map.  The maps norm and pool are dropped, and a step of backward reads pool.  The chain is norm, relu, pool, and the
    map norm may be released after pool.  `Executor.rebuild` goes through it:

        has run again   never evicted   rebuilt        unfinished   on the device
        -               pool            -              -            conv
        norm            norm, pool      norm           norm         conv, norm
        relu            norm, pool      norm           -            conv, norm
        pool            pool            norm, pool     -            conv, pool

    A map is unfinished until every step that changes it in place has run again.  While norm runs again, conv is not
    evicted either; after it no step of the chain uses conv.  What was rebuilt is released at the end of the step of
    backward, unless a later one uses it.
    """


class BoundRecompute(Protocol):
    """Which maps are dropped after their last forward use, and how a dropped one is rebuilt."""

    def drops(self) -> Mapping[Tensor, str]:
        """Asked once, before everything else.  Every map to be dropped → the reason; see `Context.can_be_rebuilt`."""

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """Asked once.  Checkpoint → the numbers of the backward steps that will rebuild something from it."""

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        """Asked by an eviction at `step`: may this tensor be dropped without a copy?"""

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """Asked when `step` needs a dropped tensor.

        The forward steps to run again, in order, each with the tensors that may be released after it.  Steps whose
        results are on the device are skipped; `is_there` says which tensors are, as a step reads them, so that a chain
        can also begin in the middle.
        """


class Cache(Module["BoundCache"]):
    """The modules of the slot cache."""

    #: Whether it evicts for a faster algorithm's workspace too, and not only where a tensor finds no hole.
    workspaces: bool = False

    @property
    def follows_pool(self) -> bool:
        return "eviction" in self.offers


class BoundCache(Protocol):
    """Chooses the tensor to evict when an allocation fails.  It hears of every managed tensor except workspaces."""

    def enter(self, tensor: Tensor) -> None:
        """The tensor has just been allocated on the device, whatever the reason."""

    def leave(self, tensor: Tensor) -> None:
        """The tensor has just been released, whatever the reason."""

    def touch(self, tensor: Tensor) -> None:
        """A step needs the tensor, and it is on the device: a hit."""

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        """An allocation of step `now` has failed: the tensor to evict, never a locked one; None if there is none."""


class Algorithms(Module["BoundAlgorithms"]):
    #: Whether the choices depend on the largest hole.
    adapts: ClassVar[bool] = True

    @property
    def follows_pool(self) -> bool:
        return self.adapts


class BoundAlgorithms(Protocol):
    """Which algorithm a convolution call uses, and so the size of its workspace."""

    def choose(self, step: Step, call: Call, largest_hole: int, free_when_drained: int) -> Choice:
        """Called for every choosable call of a step, once the step's own tensors are allocated.

        Returns one of `context.machine.choices(call)`.  The calls of one step share a buffer of the largest size
        chosen; `largest_hole` is the largest free piece for it now, in bytes.  `free_when_drained` are all free bytes
        once the copies that still drain blocks are done: kernels would wait for these copies.
        """

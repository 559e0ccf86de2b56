"""Plain modules for tests: they move and drop what they are told to, so that every path of the planner is taken.

No paper's algorithm: those have modules, and tests, of their own.
"""

from __future__ import annotations

import dataclasses
import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from hypothesis import strategies as st

from refimpl.machine import HOST, TITAN_X, Choice, Machine
from refimpl.machine.gpus import MACHINES
from refimpl.memory import ALLOCATORS, UNLIMITED, BestFit
from refimpl.memory.tiers import pinned_size
from refimpl.names.least_budget import MIB, least_budget
from refimpl.names.presets import PRESETS
from refimpl.names.presets import setup as preset_named
from refimpl.network import Call, Network, Step, Tensor
from refimpl.planner import Codec, Context, DoesNotFit, Launch, Program, Setup, plan
from refimpl.planner.device_memory import DeviceMemory
from refimpl.planner.loop import Planner
from refimpl.planner.mover import Mover
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import MemoryOptimal
from refimpl.slots.baseline import BufferAMap, LayerWise, NetworkWide, NoCache, NoPrefetch, NoRecompute
from refimpl.slots.setup import BASELINE
from tests.refimpl.drawn_networks import networks

NONE: frozenset[Any] = frozenset()


def setup(**modules: Any) -> Setup:
    """The baseline with layer-wise liveness, and some modules (or `join`, `copy_streams`) exchanged."""
    given: dict[str, Any] = {"name": "test", "liveness": LayerWise(), "algorithms": MemoryOptimal()}
    return Setup(**given | modules)


def planner(
    network: Network,
    setup: Setup,
    on: Machine,
    budget: int,
    mover: type[Mover] = Mover,
    memory: type[DeviceMemory] = DeviceMemory,
) -> Planner:
    """A planner whose mover or memory is watched, or wrong in one respect."""

    class Watched(Planner):
        mover_class = mover

    return Watched(network, setup, on, budget, memory=memory)


# -- modules -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OffloadSome(slots.Offload):
    """Offloads a share of the maps, drawn by `seed`, after their last forward use; `early` after their last write."""

    share: float = 1.0
    seed: int = 0
    early: bool = False
    at_once: bool = False  #: after the first write: a layer in place may change the map while its copy leaves
    name: ClassVar[str] = "some"
    summary: ClassVar[str] = "a share of the maps"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> _Leaves:
        drawn = random.Random(self.seed)
        chosen = [t for t in context.maps_across() if t not in context.fates and drawn.random() < self.share]
        return _Leaves(context, chosen, self.early, self.at_once)


class _Leaves:
    def __init__(self, context: Context, chosen: Sequence[Tensor], early: bool, at_once: bool) -> None:
        self.chosen = chosen
        self._at: dict[int, list[Tensor]] = {}
        for tensor in chosen:
            written = [step.number for step in context.uses[tensor] if tensor in (*step.writes, *step.updates)]
            writes = [number for number in written if number <= context.network.depth]
            write = (min if at_once else max)(writes, default=0)
            number = ((early or at_once) and write) or context.last_forward_use(tensor)
            self._at.setdefault(number, []).append(tensor)

    def offloads(self) -> Mapping[Tensor, str]:
        return dict.fromkeys(self.chosen, "drawn")

    def leaves(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())


@dataclass(frozen=True)
class PrefetchAhead(slots.Prefetch):
    """Brings a map back `distance` steps before its first backward use."""

    distance: int = 3
    order: Literal["early", "between", "late"] = "late"
    name: ClassVar[str] = "ahead"
    summary: ClassVar[str] = "a fixed number of steps ahead"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> _Due:
        at: dict[int, list[Tensor]] = {}
        for tensor, fate in context.fates.items():
            if fate.name == "offload":
                number = max(context.first_backward_use(tensor) - self.distance, context.last_forward_use(tensor) + 1)
                at.setdefault(number, []).append(tensor)
        return _Due(at)


class _Due:
    def __init__(self, at: Mapping[int, list[Tensor]]) -> None:
        self._at = at

    def due(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())


@dataclass(frozen=True)
class DropSome(slots.Recompute):
    """Drops a share of the maps that can be rebuilt, drawn by `seed`, and rebuilds them from whatever is left."""

    share: float = 1.0
    seed: int = 0
    kinds: tuple[str, ...] = ("relu", "pool", "lrn", "batchnorm", "dropout", "join", "concat", "fork", "conv", "fc")
    frugal: bool = False  #: release what was rebuilt only as a means, at once
    name: ClassVar[str] = "some"
    summary: ClassVar[str] = "a share of the maps"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> _Drops:
        drawn = random.Random(self.seed)
        dropped = []
        for tensor in context.maps_across():
            producer = context.producer(tensor)
            if producer is not None and producer.layer.kind in self.kinds and drawn.random() < self.share:
                dropped += [tensor] * context.can_be_rebuilt(tensor)
        return _Drops(context, dropped, self.frugal)


class _Drops:
    def __init__(self, context: Context, dropped: Sequence[Tensor], frugal: bool) -> None:
        self._context, self._frugal = context, frugal
        self._dropped = set(dropped)
        self._order = dropped

    def drops(self) -> Mapping[Tensor, str]:
        return dict.fromkeys(self._order, "drawn")

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """What is kept, and read by a chain: needed by every step that may rebuild by it."""
        by: dict[Tensor, list[int]] = {}
        for tensor in self._order:
            wanted = [step.number for step in self._context.uses[tensor] if not step.forward]
            for step in self._steps(tensor):
                for x in (*step.reads, *step.updates):
                    if x not in self._dropped:
                        by.setdefault(x, []).extend(wanted)
        return by

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return tensor in self._dropped

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        steps = [again for again in self._steps(tensor) if again.number < step.number]
        for number, again in enumerate(steps):
            later = {x for s in steps[number + 1 :] for x in (*s.reads, *s.updates)}
            spare = [x for x in again.reads if x in self._dropped and x not in later and x not in step.uses]
            yield again, spare if self._frugal else ()

    def _steps(self, tensor: Tensor) -> list[Step]:
        """The forward steps that make a tensor out of what is not dropped, in order."""
        wanted, found = [tensor], set[Step]()
        while wanted:
            made = wanted.pop()
            for step in self._context.uses[made]:
                if step.forward and made in (*step.writes, *step.updates) and step not in found:
                    found.add(step)
                    wanted += [x for x in (*step.reads, *step.updates) if x in self._dropped]
        return sorted(found, key=lambda step: step.number)


@dataclass(frozen=True)
class LastUsed(slots.Cache):
    """Evicts the tensor that was used longest ago; with `workspaces`, for a convolution's workspace too."""

    workspaces: bool = False
    name: ClassVar[str] = "last-used"
    summary: ClassVar[str] = "least recently used goes first"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"eviction"})

    def bind(self, context: Context) -> _Recent:
        return _Recent()


class _Recent:
    def __init__(self) -> None:
        self._tensors: OrderedDict[Tensor, None] = OrderedDict()

    def enter(self, tensor: Tensor) -> None:
        self._tensors[tensor] = None

    def leave(self, tensor: Tensor) -> None:
        self._tensors.pop(tensor, None)

    def touch(self, tensor: Tensor) -> None:
        if tensor in self._tensors:
            self._tensors.move_to_end(tensor)

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return next((tensor for tensor in self._tensors if tensor not in locked), None)


@dataclass(frozen=True)
class PooledPinned(slots.Pinned):
    """Buffers are taken back once their map has been fetched, and given to the next."""

    name: ClassVar[str] = "pooled"
    summary: ClassVar[str] = "buffers are reused"

    def bind(self, context: Context) -> _PinnedPool:
        return _PinnedPool()


class _PinnedPool:
    limits: ClassVar[Mapping[str, int]] = {HOST: UNLIMITED}

    def __init__(self) -> None:
        self._pool = BestFit().open(1 << 40)
        self._at: dict[Tensor, int] = {}

    def place(self, tensor: Tensor) -> slots.Place:
        address = self._pool.allocate(pinned_size(tensor.nbytes))
        assert address is not None
        self._at[tensor] = address
        return slots.Place(address)

    def fetched(self, tensor: Tensor) -> bool:
        self._pool.free(self._at.pop(tensor))
        return True


class MirroredCopy:
    density = 1.0

    def __init__(self, place: np.ndarray) -> None:
        self._place = place

    def pack(self, given: np.ndarray) -> int:
        self._place[:] = given[::-1]
        return given.size

    def unpack(self, given: np.ndarray) -> None:
        given[:] = self._place[::-1]


class Mirror(Codec):
    """The last byte first."""

    packs, unpacks, packed = "mirror", "unmirror", "mirrored"
    written_out = """def mirror(name, buffer):
    store[name] = buffer.reshape(-1).view(np.uint8)[::-1].copy()


def unmirror(name, buffer):
    buffer.reshape(-1).view(np.uint8)[:] = store[name][::-1]
"""

    def room(self, nbytes: int) -> int:
        return nbytes

    def place(self, store: np.ndarray, nbytes: int) -> MirroredCopy:
        return MirroredCopy(store[:nbytes])


@dataclass(frozen=True)
class Mirrored(slots.Pinned):
    """Every map goes to the store as soon as it has left, and comes back when a step needs it."""

    uses_store: ClassVar[bool] = True
    name: ClassVar[str] = "mirrored"
    summary: ClassVar[str] = "every map is mirrored"

    def bind(self, context: Context) -> _MirroredPool:
        return _MirroredPool()


class _MirroredPool(_PinnedPool):
    codec, lag, room = Mirror(), 0, 0

    def bytes_in_store(self, tensor: Tensor, step: Step) -> int:
        return tensor.nbytes

    def emptied(self, tensor: Tensor) -> None:
        self._pool.free(self._at.pop(tensor))

    def next_wanted(self, step: Step) -> None:
        return None


@dataclass(frozen=True)
class AnyAlgorithm(slots.Algorithms):
    """An algorithm drawn by `seed` for every call; with `fits`, one whose workspace fits the largest hole."""

    seed: int = 0
    fits: bool = False
    name: ClassVar[str] = "any"
    summary: ClassVar[str] = "drawn"

    def bind(self, context: Context) -> _Drawn:
        return _Drawn(context.machine, self)


class _Drawn:
    def __init__(self, machine: Machine, module: AnyAlgorithm) -> None:
        self._machine, self._fits, self._drawn = machine, module.fits, random.Random(module.seed)

    def choose(self, step: Step, call: Call, largest_hole: int, free_when_drained: int) -> Choice:
        choices = self._machine.choices(call)
        if self._fits:
            least = min(choice.workspace_bytes for choice in choices)
            choices = tuple(c for c in choices if c.workspace_bytes <= max(largest_hole - 512, least))
        return self._drawn.choice(choices)


# -- setups, machines, plans -------------------------------------------------------------------------------------------


setups = st.builds(
    setup,
    recompute=st.one_of(
        st.just(NoRecompute()),
        st.builds(DropSome, st.sampled_from((0.4, 1.0)), st.integers(0, 9), frugal=st.booleans()),
        st.builds(DropSome, st.just(0.7), st.integers(0, 9), st.just(("relu", "pool", "lrn", "batchnorm", "dropout"))),
    ),
    offload=st.builds(OffloadSome, st.sampled_from((0.5, 1.0)), st.integers(0, 9), st.booleans()),
    prefetch=st.one_of(
        st.just(NoPrefetch()),
        st.builds(PrefetchAhead, st.integers(0, 6), st.sampled_from(("early", "between", "late"))),
    ),
    cache=st.sampled_from((NoCache(), LastUsed(), LastUsed(workspaces=True))),
    algorithms=st.one_of(st.just(MemoryOptimal()), st.builds(AnyAlgorithm, st.integers(0, 9), st.booleans())),
    allocator=st.sampled_from(sorted(ALLOCATORS.values(), key=lambda a: a.name)),
    pinned=st.sampled_from((BufferAMap(), PooledPinned())),
    copy_streams=st.sampled_from(("shared", "separate")),
    join=st.booleans(),
)


#: Slow links make copies overlap many steps; fast ones hide them at once.
def machine(link: float = 12.8e9) -> Machine:
    """Titan X, offering this project's own algorithms, with a link of `link` bytes a second."""
    return dataclasses.replace(MACHINES["titan-x"].with_catalogue("own"), link=link, copy_start_seconds=0.0)


def leaving(network: Network, module: slots.Offload) -> dict[str, str]:
    """Map → the layer whose forward sends it out."""
    bound = module.bind(Context(network, MACHINES["titan-x"]))
    return {x.name: step.layer.name for step in network.steps for x in bound.leaves(step)}


def instructions_of(program: Program) -> list[str]:
    """Every instruction with all its fields; of a choice the algorithm alone, for its seconds are the machine's."""
    found = []
    for it in program.instructions:
        choice = it.choice if isinstance(it, Launch) else None
        found.append(repr(dataclasses.replace(it, choice=choice.algorithm) if choice else it))  # type: ignore[arg-type]
    return found


def least_bytes(network: Network, wanted: Setup, on: Machine, unit: int = MIB) -> int:
    """The least budget, of a network that fits within some."""
    found = least_budget(network, wanted, on, unit)
    assert found is not None
    return found


def least_plan(network: Network, wanted: Setup, on: Machine, tightness: float = 0.0) -> Program:
    """A plan within a tight budget: the least that halving finds, plus a share of the way up to plenty."""
    best = plan(network, wanted, on, 1 << 26)
    low, high = 0, best.arena_bytes
    while high - low > 512:
        middle = (low + high) // 2
        try:
            best = plan(network, wanted, on, middle)
            high = middle
        except DoesNotFit:
            low = middle
    try:
        return plan(network, wanted, on, int(high + tightness * high))
    except DoesNotFit:  # a larger pool can fail where a smaller one fits
        return best


def every_preset_fits_or_says_so(network: Network, budgets: int = 10) -> None:
    """A plan is proved or does not fit, from the resident bytes to more than the baseline's peak.

    Under every preset; and under two others' policies, which recompute what SuperNeurons would not.
    """
    most, least = plan(network, BASELINE, TITAN_X, UNLIMITED).peak_bytes, network.resident_bytes
    for name in (*PRESETS, "chen-sqrt", "dtr"):
        wanted = preset_named(f"{name} effort=20" if name == "combined" else name)
        for room in range(budgets):
            with suppress(DoesNotFit):
                plan(network, wanted, TITAN_X, least + (most - least) * room // (budgets - 2)).verify()


__all__ = [
    "ALLOCATORS", "AnyAlgorithm", "BestFit", "DropSome", "LastUsed", "Mirror", "Mirrored", "NetworkWide", "OffloadSome",
    "PooledPinned", "PrefetchAhead", "least_plan", "machine", "networks", "setup", "setups",
]  # fmt: skip

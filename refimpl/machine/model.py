"""A machine: speeds and sizes of a GPU and its link, and the convolution algorithms it offers.

The model of time is DESIGN's: a kernel takes as long as its arithmetic or its memory traffic, whichever is longer,

    seconds = max(operations / rate, bytes / bandwidth) + launch overhead,

an algorithm that runs several kernels the sum of them.  Rate and bandwidth are a machine's published peaks times an
*efficiency*: one number for each kind of work, fitted once a GPU (`refimpl.studies.reproduce.machines.fit`), never per
network.  A library's kernel that multiplies matrices computes whole tiles, and reaches its rate only with many of them
(`refimpl.machine.tiling`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple

from refimpl.machine.catalogues import checked_catalogue, options
from refimpl.machine.ring import TEN_GIGABIT, Ring
from refimpl.machine.tiling import matrix_tilings
from refimpl.machine.work import Kind, Option, Work
from refimpl.memory.tiers import HOST, Tier, check_tiers
from refimpl.network import Call
from refimpl.text import MachineError, shown


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a call: an algorithm with a workspace."""

    algorithm: str
    workspace_bytes: int
    seconds: float


class Known(NamedTuple):
    """The choices of a call, fastest first, and the seconds of each by algorithm and workspace."""

    choices: tuple[Choice, ...]
    seconds: dict[tuple[str, int], float]


def known_of(choices: tuple[Choice, ...]) -> Known:
    return Known(choices, {(choice.algorithm, choice.workspace_bytes): choice.seconds for choice in choices})


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the peaks that kernels reach, and how many tiles a multiprocessor needs."""

    forward: float  #: of the rate: our own convolutions
    backward: float
    products: float  #: a library's products of matrices
    transforms: float  #: of the bandwidth
    streaming: float
    weights: float = 1.0  #: of `products`: a library's gradients of weights
    early: float = 1.0  #: of the others: a library's kernels of the first generation, without a workspace
    half_tiles: float = 0.0  #: tiles a multiprocessor that give half of the rate; 0: tiles are not counted

    def of(self, kind: Kind) -> float:
        """The share of the rate that work of this kind reaches."""
        return self.products * self.weights if kind == "weights" else float(getattr(self, kind))


#: What a machine's figures are called in tables: field → name.
FIGURES = {
    "memory_bytes": "memory", "flops": "TFLOP/s", "bandwidth": "GB/s", "link": "link", "multiprocessors": "SMs",
    "efficiency": "efficiencies",
}  # fmt: skip


class Source(NamedTuple):
    """Where some of a machine's figures come from."""

    how: Literal["data sheet", "paper", "system", "measured", "fitted", "assumed", "given"]
    where: str
    of: tuple[str, ...] = tuple(FIGURES)  #: fields of `Machine`


@dataclass(frozen=True)
class Machine:
    """All speeds are peaks, except `link`: what copies between device and pinned memory really reach, each way."""

    name: str
    memory_bytes: int  #: that a program can use
    flops: float  #: operations a second, fp32
    bandwidth: float  #: bytes a second, device memory
    link: float  #: bytes a second, one direction
    multiprocessors: int
    efficiency: Efficiency
    catalogue: str = "own"
    sources: tuple[Source, ...] = ()  #: of `FIGURES`
    launch_seconds: float = 3e-6
    copy_start_seconds: float = 1e-5
    allocate_seconds: float = 1e-4
    free_seconds: float = 1e-4
    host_rate: float = 1.6e10  #: bytes a second that the host's threads write to the store: eight of 2 GB/s each
    ring: Ring = TEN_GIGABIT  #: the network that joins it to others like it, which train together
    tiers: tuple[Tier, ...] = (Tier(HOST),)  #: where maps are offloaded to, the preferred one first
    given: tuple[tuple[str, str], ...] = ()  #: a call's name and the one algorithm that it is offered
    _known: dict[Any, Known] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_tiers(self.tiers)

    # -- what plans and simulations ask --------------------------------------------------------------------------------

    def choices(self, call: Call) -> tuple[Choice, ...]:
        """Every way to run a choosable call, fastest first; one of them has the least workspace there can be."""
        return self._of(call).choices

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        """How long a call runs, here, by this algorithm (None: the fastest)."""
        if call.collective:
            return self.ring.reduce_seconds(sum(tensor.nbytes for tensor in call.updates), call.arguments["ranks"])
        if call.timed_as:
            return sum(map(self.seconds, call.timed_as))
        if not call.choosable:
            return self.work_seconds(work_of(call))
        known = self._of(call)
        if choice is None:
            return known.choices[0].seconds
        seconds = known.seconds.get((choice.algorithm, choice.workspace_bytes))
        if seconds is None:
            raise MachineError(
                f"{self.name} with the catalogue {self.catalogue} has no {choice.algorithm} with a workspace of "
                f"{choice.workspace_bytes} bytes for {call}; plan for this machine, or give it the other catalogue"
            )
        return seconds

    def copy_seconds(self, nbytes: int, direction: Literal["out", "in"], tier: str = HOST) -> float:
        """How long a copy between the device and a tier takes, alone on its engine."""
        return self.copy_start_seconds + nbytes / (self.tier_rate(tier) or self.link)

    def tier_rate(self, name: str) -> float | None:
        """Bytes a second that copies to and from a tier reach, each way; None: what copies to the host reach."""
        for tier in self.tiers:
            if tier.name == name:
                return tier.bytes_per_second
        raise MachineError(f"{self.name} has no {name} tier; plan for this machine, or give it that tier")

    def host_seconds(self, nbytes: int) -> float:
        """How long the host's threads take to copy a map of `nbytes` to the store, or back."""
        return nbytes / self.host_rate

    def with_catalogue(self, name: str) -> Machine:
        """The same machine, offering another catalogue's algorithms."""
        return replace(self, catalogue=checked_catalogue(name))

    def with_ring(self, ring: Ring) -> Machine:
        """The same machine, joined to others by another network."""
        return replace(self, ring=ring)

    def with_tiers(self, tiers: Sequence[Tier]) -> Machine:
        """The same machine with other memories to offload to, the preferred one first."""
        return replace(self, tiers=tuple(tiers))

    def with_algorithms(self, given: Mapping[str, str]) -> Machine:
        """The same machine, offering each call of these names one algorithm, whichever is the fastest here.

        The bits of training follow from the algorithms alone: `program.algorithms` of one run repeat them in another.
        """
        if dict(self.given) == dict(given):
            return self
        made = copy(self)  # which knows the seconds that this one knows
        object.__setattr__(made, "given", tuple(sorted(given.items())))
        made.__dict__.pop("_algorithm_of", None)
        return made

    # -- the model -----------------------------------------------------------------------------------------------------

    def work_seconds(self, work: Work) -> float:
        """How long one kind of kernel runs."""
        reached = self.efficiency
        busy = min(1.0, work.blocks / self.multiprocessors) * work.speed * (reached.early if work.early else 1.0)
        flops = work.flops
        if reached.half_tiles and work.tilings:
            more = reached.half_tiles * self.multiprocessors  #: tiles, whose time the latency takes
            flops = min(tiling.flops * (1 + more / tiling.tiles) for tiling in work.tilings)
        arithmetic = flops / (self.flops * reached.of(work.kind) * busy)
        traffic = work.nbytes / (self.bandwidth * getattr(reached, work.traffic) * busy)
        return float(work.times * self.launch_seconds + max(arithmetic, traffic))

    def option_seconds(self, option: Option) -> float:
        """How long an algorithm runs: its kernels one after another."""
        return sum(self.work_seconds(work) for work in option.work)

    def _of(self, call: Call) -> Known:
        """The algorithms and costs of a choosable call, computed once for all equal ones."""
        key: Any = call.key
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = known_of(self._make_choices(call))
        if self.given and (algorithm := self._algorithm_of.get(call.name)):
            whole, key = known, (key, algorithm)
            known = self._known.get(key)
            if known is None:
                one = tuple(choice for choice in whole.choices if choice.algorithm == algorithm)
                if not one:
                    raise MachineError(f"{self.name} has no algorithm {shown(algorithm)} for {call.name}")
                known = self._known[key] = known_of(one)
        return known

    @cached_property
    def _algorithm_of(self) -> Mapping[str, str]:
        return dict(self.given)

    def _make_choices(self, call: Call) -> tuple[Choice, ...]:
        """The same for calls with the same key."""
        return in_order(
            Choice(option.algorithm, option.workspace_bytes, self.option_seconds(option))
            for option in options(self.catalogue, call)
            if not option.cpu_only
        )


#: Batch normalisation moves more bytes than the least: forward it reads its map for the mean and the variance, and
#: again to normalise; backward it reads both maps twice.
BATCHNORM_PASSES = {"batchnorm.forward": 3 / 2, "batchnorm.backward": 5 / 3}


def work_of(call: Call) -> Work:
    """The work of a call that has no choice of algorithms."""
    nbytes = call.nbytes * BATCHNORM_PASSES.get(call.function, 1.0)
    if call.family == "fc" and call.flops:
        given = call.arguments
        outputs, inputs = (given.get("w") or given["dw"]).shape
        rows = prod((given.get("x") or given["dx"]).shape) // inputs  # images, or tokens
        sizes = {"fc.forward": (rows, outputs, inputs), "fc.backward_data": (rows, inputs, outputs),
                 "fc.backward_filter": (outputs, inputs, rows)}  # fmt: skip
        return Work("products", call.flops, nbytes, tilings=matrix_tilings(*sizes[call.function]))
    return Work(call.work, call.flops, nbytes)


def in_order(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """Fastest first; of equally fast ones, the less hungry."""
    return tuple(sorted(choices, key=lambda choice: (choice.seconds, choice.workspace_bytes, choice.algorithm)))

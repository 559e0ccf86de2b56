"""vDNN++ beside vDNN: time, pinned memory and fragmentation, for `refimpl reproduce vdnnpp`.

vDNN offloads the same maps here as vDNN++ does, with the same kind of algorithms, and keeps its own rules: its streams
join after every layer that moved something, one stream copies both ways, the prefetch is `vdnn-window` (a POOL's
backward does not search), the allocator best fit, and every map has a pinned buffer of its own.  vDNN++ searches at
every layer; vDNN with that search is beside it.  Both are planned and simulated within the GPU's
memory.  T(all in memory) is the same network with nothing offloaded, on that GPU with unlimited memory.

Forward ends where its last kernel and its last copy out have ended: for vDNN++ that is its barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Program, Search, Setup, plan
from refimpl.slots.algorithms import MemoryOptimal, PerformanceOptimal
from refimpl.slots.baseline import NoOffload
from refimpl.slots.questions import Algorithms, Offload
from refimpl.studies.fragmentation import study as fragmentation
from refimpl.studies.reproduce.published import Found, Reproduced, Watch
from refimpl.studies.reproduce.vdnnpp import published
from refimpl.vdnn import CONV as VDNN_CONV
from refimpl.vdnn import static as vdnn_static
from refimpl.vdnnpp.compression import Compressed, never_negative, stored_bytes
from refimpl.vdnnpp.offload import ALL, ALTERNATE_CONV, CONV, OffloadInputsOf
from refimpl.vdnnpp.pinned import OnDemand
from refimpl.vdnnpp.prefetch import WINDOW
from refimpl.vdnnpp.presets import VDNNPP_DYN, static

MACHINE_NAMES = ("gtx-970", "titan-x")

#: Networks with their batches; of VGG-16 one that a GTX 970 holds whole, one it trains by offloading, one too large.
NETWORKS = (("alexnet", 128), ("vgg16", 16), ("vgg16", 32), ("vgg16", 128), ("vdnnpp-demo", 32))

SETS: dict[str, OffloadInputsOf] = {"all": ALL, "conv": CONV, "alternate-conv": ALTERNATE_CONV}
MODES: dict[str, Algorithms] = {"memory": MemoryOptimal(), "performance": PerformanceOptimal()}


def network(name: str, batch: int) -> Network:
    """As vDNN++'s authors built it."""
    return build(name if name == "vdnnpp-demo" else f"{name}:vdnnpp", batch)


def packed(name: str) -> Compressed:
    """Maps compressed, with the densities that the authors' tests assume; half of them zeros where they say nothing."""
    per_cent = published.DENSITIES_PER_CENT.get(name, ())
    return Compressed(densities=tuple(share / 100 for share in per_cent))


def as_vdnn(name: str, offload: Offload, algorithms: Algorithms | None = None) -> Setup:
    """vDNN by its own rules, with these maps offloaded."""
    some = offload if isinstance(offload, NoOffload) else VDNN_CONV
    return vdnn_static(name, some, algorithms or MemoryOptimal()).replace(offload=offload)


# -- time --------------------------------------------------------------------------------------------------------------


class Times(NamedTuple):
    """Seconds."""

    forward: float
    whole: float


def times(program: Program) -> Times:
    """When forward's last kernel and copy have ended, and the whole iteration; simulated."""
    timeline = program.simulate()
    depth = program.network.depth
    forward = max(s.end for s in timeline.spans if s.instruction.step <= depth and s.engine != "host")
    return Times(forward, timeline.seconds)


@dataclass(frozen=True)
class SpeedRow:
    """A network under a policy, beside vDNN with the same maps.  Seconds; None where it does not fit the GPU.

    The improvements are shares, in the three readings of `published.READINGS`, of forward and of the iteration.
    """

    machine: str
    network: str
    batch: int
    policy: str
    algorithms: str
    adopted: str  #: by the dynamic policy
    base_forward_seconds: float
    base_seconds: float
    vdnn_forward_seconds: float | None
    vdnn_seconds: float | None
    vdnn_searching_seconds: float | None  #: vDNN with vDNN++'s search for maps to prefetch
    vdnnpp_forward_seconds: float | None
    vdnnpp_seconds: float | None
    forward_time: float | None = None
    forward_cut: float | None = None
    forward_overhead: float | None = None
    iteration_time: float | None = None
    iteration_cut: float | None = None
    iteration_overhead: float | None = None
    iteration_time_searching: float | None = None


def readings(theirs: float | None, ours: float | None, base: float) -> dict[str, float | None]:
    """The readings of "relative improvement" over vDNN, as shares.

    Args:
        theirs: vDNN's seconds; None if it does not fit.
        ours: vDNN++'s.
        base: the seconds with everything in memory.

    Returns:
        reading → share; None where one of the two is not known, and of an overhead where vDNN has none to cut (less
        than a thousandth of a per cent).
    """
    if not theirs or not ours:
        return dict.fromkeys(published.READINGS)
    over = theirs - base
    overhead = (theirs - ours) / over if over >= 1e-5 * base else None
    return {"time": theirs / ours - 1, "cut": 1 - ours / theirs, "overhead": overhead}


def speed(watch: Watch) -> Found:
    """Every network under every policy on both GPUs; and the largest improvement, in every reading."""
    rows: list[SpeedRow] = []
    for name, batch in NETWORKS:
        watch(f"{name}({batch})")
        built = network(name, batch)
        for machine in MACHINE_NAMES:
            rows += speed_rows(name, built, MACHINES[machine])
    return Found([most(rows, part, how) for part in ("forward", "iteration") for how in published.READINGS], rows)


def speed_rows(name: str, built: Network, machine: Machine) -> Iterator[SpeedRow]:
    """A network on a GPU: the static policies in both modes, then the dynamic one."""
    bases = {mode: times(plan(built, as_vdnn("base", NoOffload(), algorithms), machine, UNLIMITED))
             for mode, algorithms in MODES.items()}  # fmt: skip
    for mode, algorithms in MODES.items():
        for policy, offload in SETS.items():
            ours = static(policy, offload, algorithms, packed(name))
            yield speed_row(name, built, machine, policy, ours, bases[mode])
    dynamic = VDNNPP_DYN.replace(pinned=packed(name))
    yield speed_row(name, built, machine, "dyn", dynamic, bases["performance"])


def speed_row(name: str, built: Network, machine: Machine, policy: str, wanted: Setup, base: Times) -> SpeedRow:
    """vDNN++ under a policy within the GPU's memory; beside it vDNN, with its own prefetch and with vDNN++'s search."""

    def timed(setup: Setup | None) -> tuple[float, float] | tuple[None, None]:
        made = attempt(built, setup, machine, machine.memory_bytes) if setup else None
        return times(made) if made else (None, None)

    program = attempt(built, wanted, machine, machine.memory_bytes)
    forward, whole = times(program) if program else (None, None)
    adopted = program.setup if program else None if isinstance(wanted, Search) else wanted
    theirs = as_vdnn(policy, adopted.offload, adopted.algorithms) if adopted else None
    vdnn_forward, vdnn_whole = timed(theirs)
    searching = vdnn_whole
    if theirs and not isinstance(theirs.offload, NoOffload):
        _, searching = timed(theirs.replace(prefetch=WINDOW))
    improved = {f"forward_{how}": share for how, share in readings(vdnn_forward, forward, base.forward).items()}
    improved |= {f"iteration_{how}": share for how, share in readings(vdnn_whole, whole, base.whole).items()}
    improved["iteration_time_searching"] = readings(searching, whole, base.whole)["time"]
    return SpeedRow(
        machine=machine.name,
        network=name,
        batch=built.batch,
        policy=policy,
        algorithms=adopted.algorithms.name if adopted else "",
        adopted=program.setup.name.partition(": ")[2] if program and program.tried else "",
        base_forward_seconds=base.forward,
        base_seconds=base.whole,
        vdnn_forward_seconds=vdnn_forward,
        vdnn_seconds=vdnn_whole,
        vdnn_searching_seconds=searching,
        vdnnpp_forward_seconds=forward,
        vdnnpp_seconds=whole,
        **improved,
    )


def most(rows: Iterable[SpeedRow], part: str, how: str) -> Reproduced:
    """The largest improvement in one reading, of forward or of the whole iteration, and where it is."""

    def value(row: SpeedRow) -> float:
        return getattr(row, f"{part}_{how}") or 0.0

    top = max(rows, key=value)
    where = f"{top.network}({top.batch}), {top.adopted or f'{top.policy} ({top.algorithms[0]})'}, {top.machine}"
    theirs = published.read(published.FASTER, f"{part} ({published.READINGS[how][0]})", published.IN_WORDS)
    return Reproduced(theirs, 100 * value(top), where)


# -- the demonstration -------------------------------------------------------------------------------------------------

DEMONSTRATION = ("vdnnpp-demo", 32, "gtx-970")


@dataclass(frozen=True)
class LayerRow:
    """A step of the demonstration network under one of the two: when its kernels run, and the copies it starts."""

    setup: str  #: "vDNN" or "vDNN++"
    step: int
    direction: str
    layer: str
    start: float  #: of its kernels; seconds since the iteration began
    end: float
    copies: tuple[tuple[str, str, float, float], ...]  #: (tensor, "out" or "in", start, end)


def demonstration(watch: Watch) -> Found:
    """Policy conv with no workspace, step by step: the authors' own demonstration."""
    name, batch, machine = DEMONSTRATION
    built = network(name, batch)
    rows: list[LayerRow] = []
    for who, setup in (("vDNN", as_vdnn("conv", CONV)), ("vDNN++", static("conv", CONV, pinned=packed(name)))):
        watch(who)
        rows += layer_rows(who, plan(built, setup, MACHINES[machine], MACHINES[machine].memory_bytes))
    return Found([], rows)


def layer_rows(who: str, program: Program) -> Iterator[LayerRow]:
    timeline = program.simulate()
    kernels = timeline.steps()
    copies: dict[int, list[tuple[str, str, float, float]]] = {}
    for span in timeline.spans:
        if span.engine in ("out", "in"):
            moved = (span.instruction.tensor.name, str(span.engine), span.start, span.end)
            copies.setdefault(span.instruction.step, []).append(moved)
    for step in program.network.steps:
        start, end = kernels[step.number]
        own = tuple(copies.get(step.number, ()))
        yield LayerRow(who, step.number, step.direction, step.layer.name, start, end, own)


# -- pinned memory -----------------------------------------------------------------------------------------------------

COMPRESSED = (("alexnet", 128), ("vgg16", 16))


@dataclass(frozen=True)
class PinnedRow:
    """A network's maps on the host, with the densities of the authors' tests.  Bytes."""

    network: str
    batch: int
    policy: str
    maps: int
    input_bytes: int  #: the batch: the network's first map, which is never compressed
    raw_bytes: int  #: of the other maps
    kept_bytes: int  #: of these once compressed
    vdnn_pinned_bytes: int  #: a buffer a map for the whole run
    on_demand_pinned_bytes: int  #: buffers of one arena, taken when a map leaves and given back when it returns
    compressed_pinned_bytes: int  #: the same, and given back when a map is compressed, into memory not pinned
    left_raw_bytes: int  #: maps that the threads had not compressed when forward ended

    @property
    def kept_saving(self) -> float:
        """Less on the host than vDNN has there, the batch counted: as a share."""
        return 1 - (self.kept_bytes + self.input_bytes) / (self.raw_bytes + self.input_bytes)

    @property
    def pinned_saving(self) -> float:
        """Less pinned memory than vDNN's, in the simulated iteration."""
        return 1 - self.compressed_pinned_bytes / self.vdnn_pinned_bytes


#: Two readings of "pinned memory less by": what of it → the share that is saved.
PINNED_SAVINGS: dict[str, Callable[[PinnedRow], float]] = {
    "what the host keeps": lambda row: row.kept_saving,
    "the pinned arena": lambda row: row.pinned_saving,
}


def pinned(watch: Watch) -> Found:
    """Pinned bytes with and without compression, under every static policy, with the least workspace."""
    rows: list[PinnedRow] = []
    for name, batch in COMPRESSED:
        watch(f"{name}({batch})")
        built = network(name, batch)
        rows += [pinned_row(name, built, policy) for policy in SETS]
    conv = [row for row in rows if (row.network, row.policy) == ("vgg16", "conv")]
    figures = []
    for policies, some in (("VGG-16(16) conv", conv), ("the most of all", rows)):
        for what, saving in PINNED_SAVINGS.items():
            top = max(some, key=saving)
            where = f"{top.network}({top.batch}), {top.policy}, densities of the code"
            theirs = published.read(published.PINNED, f"{what}, {policies}")
            figures.append(Reproduced(theirs, 100 * saving(top), where))
    return Found(figures, rows)


def pinned_row(name: str, built: Network, policy: str) -> PinnedRow:
    machine, offload, module = MACHINES["gtx-970"], SETS[policy], packed(name)
    setups = as_vdnn(policy, offload), *(static(policy, offload, pinned=made) for made in (OnDemand(), module))
    vdnn, on_demand, compressed = (plan(built, setup, machine, machine.memory_bytes) for setup in setups)
    maps = [tensor for tensor, fate in compressed.fates.items() if fate.name == "offload" and tensor is not built.input]
    shares, packable = module.density_of(built), never_negative(built)
    raw = sum(tensor.nbytes for tensor in maps)
    return PinnedRow(
        network=name,
        batch=built.batch,
        policy=policy,
        maps=len(maps) + 1,
        input_bytes=built.input.nbytes,
        raw_bytes=raw,
        kept_bytes=sum(stored_bytes(t.nbytes // 4, shares[t]) if t in packable else t.nbytes for t in maps),
        vdnn_pinned_bytes=vdnn.pinned_bytes,
        on_demand_pinned_bytes=on_demand.pinned_bytes,
        compressed_pinned_bytes=compressed.pinned_bytes,
        left_raw_bytes=raw - compressed.counts.compressed_bytes,
    )


# -- fragmentation -----------------------------------------------------------------------------------------------------

PLACED = (("alexnet", 128), ("vgg16", 16))


def fragmented(watch: Watch) -> Found:
    """Both networks' study, in vDNN's synchronous order with no workspace."""
    rows: list[fragmentation.PoolRow] = []
    for name, batch in PLACED:
        watch(f"{name}({batch})")
        rows += fragmentation.study(network(name, batch), MACHINES["gtx-970"])
    return Found([], rows)

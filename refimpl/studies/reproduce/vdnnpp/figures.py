"""vDNN++'s evaluation, part by part: vDNN++ beside vDNN in time, pinned memory and fragmentation.

vDNN offloads the same maps here as vDNN++ does, with the same kind of algorithms, and keeps its own rules: its streams
join after every layer that moved something, one stream copies both ways, the prefetch is `vdnn-window` (a POOL's
backward does not search), the allocator best fit, and every map has a pinned buffer of its own.  vDNN++ searches at
every layer.  Both are planned and simulated within the GPU's
memory.  T(all in memory) is the same network with nothing offloaded, on that GPU with unlimited memory.

Forward ends where its last kernel and its last copy out have ended: for vDNN++ that is its barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Program, Search, Setup, plan
from refimpl.report.tables import Column, Table, in_units, plain
from refimpl.slots.algorithms import MemoryOptimal, PerformanceOptimal
from refimpl.slots.baseline import NoOffload
from refimpl.slots.questions import Algorithms, Offload
from refimpl.studies.fragmentation import study as fragmentation
from refimpl.studies.reproduce.evaluation import MIB, NETWORK, Part, one_table, titled, to_json
from refimpl.studies.reproduce.pictures import Datum, Marks
from refimpl.studies.reproduce.published import Found, Published, Reproduced, Watch
from refimpl.studies.reproduce.vdnnpp import published
from refimpl.text import counted
from refimpl.vdnn import CONV as VDNN_CONV
from refimpl.vdnn import VDNN_DYN
from refimpl.vdnn import static as vdnn_static
from refimpl.vdnnpp.compression import Compressed, never_negative, stored_bytes
from refimpl.vdnnpp.offload import ALL, ALTERNATE_CONV, CONV, OffloadInputsOf
from refimpl.vdnnpp.pinned import OnDemand
from refimpl.vdnnpp.presets import VDNNPP_DYN, static

MACHINE_NAMES = ("gtx-970", "titan-x")

#: Networks with their batches; of VGG-16 one that a GTX 970 holds whole, one it trains by offloading, one too large.
NETWORKS = (("alexnet", 128), ("vgg16", 16), ("vgg16", 32), ("vgg16", 128), ("vdnnpp-demo", 32))

SETS: dict[str, OffloadInputsOf] = {"all": ALL, "conv": CONV, "alternate-conv": ALTERNATE_CONV}
MODES: dict[str, Algorithms] = {"memory": MemoryOptimal(), "performance": PerformanceOptimal()}


MIB_1, MS, PER_CENT = in_units(MIB), in_units(1e-3), in_units(1e-2)
POLICY = Column("policy", lambda row: row.policy.removesuffix("-conv"))


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


def read(figure: Published, how: str, said: str = "") -> Published:
    """A published figure in one reading; `said` is added to its source."""
    source = f"{figure.source}, read as {said}" if said else figure.source
    return replace(figure, what=f"{figure.what}: {how}", source=source)


# -- time --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """When forward's last kernel and copy have ended, and the whole iteration; seconds, simulated."""

    forward: float
    iteration: float

    @classmethod
    def of(cls, program: Program) -> Times:
        timeline, depth = program.simulate(), program.network.depth
        forward = max(s.end for s in timeline.spans if s.instruction.step <= depth and s.engine != "host")
        return cls(forward, timeline.seconds)


@dataclass(frozen=True)
class SpeedRow:
    """A network under a policy, beside vDNN with the same maps; None where it does not fit the GPU."""

    machine: str
    network: str
    batch: int
    policy: str
    algorithms: str
    adopted: str  #: by the dynamic policy
    base: Times  #: everything in memory
    vdnn: Times | None
    vdnnpp: Times | None

    def _readings(self, part: str) -> dict[str, float | None]:
        theirs, ours = (getattr(times, part) if times else None for times in (self.vdnn, self.vdnnpp))
        return readings(theirs, ours, getattr(self.base, part))

    @property
    def forward(self) -> dict[str, float | None]:
        """Reading → improvement over vDNN, as a share."""
        return self._readings("forward")

    @property
    def iteration(self) -> dict[str, float | None]:
        """The same, of the whole iteration."""
        return self._readings("iteration")


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
    bases = {mode: Times.of(plan(built, as_vdnn("base", NoOffload(), algorithms), machine, UNLIMITED))
             for mode, algorithms in MODES.items()}  # fmt: skip
    for mode, algorithms in MODES.items():
        for policy, offload in SETS.items():
            ours = static(policy, offload, algorithms, packed(name))
            yield speed_row(name, built, machine, policy, ours, bases[mode])
    dynamic = VDNNPP_DYN.replace(pinned=packed(name))
    yield speed_row(name, built, machine, "dyn", dynamic, bases["performance"])


def speed_row(name: str, built: Network, machine: Machine, policy: str, wanted: Setup, base: Times) -> SpeedRow:
    """vDNN++ under a policy within the GPU's memory, and vDNN beside it, with its own candidates where none fits."""

    def timed(setup: Setup) -> Times | None:
        made = attempt(built, setup, machine, machine.memory_bytes)
        return Times.of(made) if made else None

    program = attempt(built, wanted, machine, machine.memory_bytes)
    adopted = program.setup if program else None if isinstance(wanted, Search) else wanted
    theirs = as_vdnn(policy, adopted.offload, adopted.algorithms) if adopted else VDNN_DYN
    return SpeedRow(
        machine=machine.name,
        network=name,
        batch=built.batch,
        policy=policy,
        algorithms=adopted.algorithms.name if adopted else "",
        adopted=program.setup.name.partition(": ")[2] if program and program.tried else "",
        base=base,
        vdnn=timed(theirs),
        vdnnpp=Times.of(program) if program else None,
    )


def most(rows: Iterable[SpeedRow], part: str, how: str) -> Reproduced:
    """The largest improvement in one reading, of forward or of the whole iteration, and where it is."""

    def value(row: SpeedRow) -> float:
        found: float | None = getattr(row, part)[how]
        return found or 0.0

    top = max(rows, key=value)
    where = f"{top.network}({top.batch}), {top.adopted or f'{top.policy} ({top.algorithms[0]})'}, {top.machine}"
    theirs = read(published.FASTER, f"{part} ({published.READINGS[how][0]})", published.IN_WORDS)
    return Reproduced(theirs, 100 * value(top), where)


#: Ways of choosing algorithms, as in the tables.
LETTERS = {"memory": "m", "performance": "p", "fastest": "p", "fitting": "f", "least": "m"}


def policy_name(row: SpeedRow) -> str:
    """`conv (m)`, or `dyn: conv (f)`"""
    if row.adopted:
        policy, _, mode = row.adopted.rstrip(")").partition(" (")
        return f"dyn: {policy} ({LETTERS[mode]})"
    return f"{row.policy.removesuffix('-conv')} ({LETTERS[row.algorithms]})" if row.algorithms else row.policy


def improvement(head: str, part: str, how: str) -> Column:
    return Column(head, lambda row: getattr(row, part)[how], PER_CENT)


SPEED = (
    NETWORK, Column("policy", policy_name),
    Column("vDNN", lambda row: row.vdnn and row.vdnn.iteration, MS),
    Column("vDNN++", lambda row: row.vdnnpp and row.vdnnpp.iteration, MS),
    *(improvement(letter, "iteration", how) for how, (letter, _) in published.READINGS.items()),
    *(improvement(head, "forward", how) for how, head in (("time", "forward a"), ("cut", "b"), ("overhead", "c"))),
)  # fmt: skip


def speed_tables(rows: Sequence[SpeedRow]) -> list[Table]:
    """A table a GPU."""
    machines = dict.fromkeys(row.machine for row in rows)
    return [speed_table(name, [row for row in rows if row.machine == name]) for name in machines]


def speed_table(machine: str, rows: Sequence[SpeedRow]) -> Table:
    slower = slower_rows(rows)
    note = (
        f"Milliseconds an iteration, simulated within the memory of a {machine} with the modelled cuDNN 4, and "
        f"per cent.  {published.IN_WORDS}; for the iteration, then for forward alone.  –: does not fit, or vDNN has no "
        "overhead.  vDNN moves the same maps by its own rules: join, one memory stream, prefetch vdnn-window, best "
        "fit, a pinned buffer a map.  (m): least workspace, (p): fastest, (f): fastest that fits; alternate: every "
        "second CONV.  "
        f"{slower}"
    )
    return Table.of(f"vDNN++ beside vDNN on a {machine}", rows, SPEED, note)


def slower_rows(rows: Sequence[SpeedRow]) -> str:
    """The rows in which vDNN++ is slower than vDNN; one that vDNN alone fits is."""
    known = [row for row in rows if row.vdnn]
    slower = [row for row in known if not row.vdnnpp or (row.iteration["time"] or 0.0) < -1e-9]
    names = [f"{row.network}({row.batch}) {policy_name(row)}{'' if row.vdnnpp else ', does not fit'}" for row in slower]
    alone = sum(row.vdnnpp is not None for row in rows) - sum(row.vdnnpp is not None for row in known)
    where = f": {'; '.join(names)}" if names else ""
    text = f"Of {len(known)} rows that vDNN fits vDNN++ is slower in {len(slower)}{where}."
    return f"{text}  {counted(alone, 'row')} vDNN++ alone fits." if alone else text


def speed_marks(rows: Sequence[SpeedRow]) -> Iterator[Datum]:
    """A panel a GPU, for forward and for the whole iteration."""
    for part in ("forward", "iteration"):
        for row in rows:
            label = row.policy if row.policy == "dyn" else f"{row.policy} ({row.algorithms[0]})"
            gain = getattr(row, part)["time"]
            yield Datum(titled(row), label, gain and 100 * gain, None, f"{part}, {row.machine}")


SPEED_PICTURE = Marks(
    "How much faster vDNN++ is than vDNN with the same maps offloaded",
    "T(vDNN) / T(vDNN++) - 1, simulated · no bar: as fast · ×: does not fit this GPU · (m): least workspace, (p): "
    "fastest", "faster (%)", speed_marks, columns=2, size=(16, 3.2),
    text=lambda percent: f"{percent:.0f}" if round(percent) else "",
)  # fmt: skip

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
            theirs = read(published.PINNED, f"{what}, {policies}")
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


CALCULATED = (
    "C: calculated by our port of the authors' public code, whose binary never ran; not the paper's own figures."
)
PINNED_COLUMNS = (
    NETWORK, POLICY, Column("maps", "maps", plain), Column("x(0)", "input_bytes", MIB_1),
    Column("others", "raw_bytes", MIB_1), Column("packed", "kept_bytes", MIB_1),
    Column("kept", lambda row: row.kept_bytes + row.input_bytes, MIB_1), Column("less", "kept_saving", PER_CENT),
    Column("vDNN", "vdnn_pinned_bytes", MIB_1), Column("demand", "on_demand_pinned_bytes", MIB_1),
    Column("arena", "compressed_pinned_bytes", MIB_1), Column("less ", "pinned_saving", PER_CENT),
    Column("raw", "left_raw_bytes", MIB_1),
)  # fmt: skip


PINNED_TABLE = one_table(
    "Pinned memory",
    PINNED_COLUMNS,
    "MiB and per cent.  x(0): the batch, never compressed.  packed: the other maps, with the densities that the "
    "authors' tests assume (S); kept: with the batch, all compressed.  vDNN: its pinned memory, a buffer a map.  "
    "demand: buffers on demand, not compressed.  arena: vDNN++'s pinned arena in the simulated iteration, from "
    "which a compressed map's buffer goes to another; compressed maps are in ordinary memory (R; the authors' "
    "code pins that too, so there all that is kept is pinned).  raw: of the maps, not compressed, since no other "
    "map takes their buffers (R).\n"
    f"C: our port of the authors' code keeps {published.KEPT_MIB} MiB of vgg16(16), conv, the batch counted, of "
    f"{published.RAW_MIB} MiB without it; its binary never ran.",
)


HOST = {
    "vDNN: a pinned buffer a map": "vdnn_pinned_bytes",
    "vDNN++: on demand": "on_demand_pinned_bytes",
    "vDNN++: pinned, when maps are compressed": "compressed_pinned_bytes",
    "not pinned: the compressed maps": "kept_bytes",
}


def pinned_marks(rows: Sequence[PinnedRow]) -> Iterator[Datum]:
    for row in rows:
        for label, name in HOST.items():
            yield Datum(f"{titled(row)}\n{row.policy}", label, getattr(row, name) / MIB)


PINNED_PICTURE = Marks(
    "The maps' memory on the host", "least workspace · densities of the authors' tests · gtx-970 (simulated)", "MiB",
    pinned_marks, text="{:,.0f}".format,
)  # fmt: skip

# -- fragmentation -----------------------------------------------------------------------------------------------------

PLACED = (("alexnet", 128), ("vgg16", 16))


def fragmented(watch: Watch) -> Found:
    """Both networks' study, in vDNN's synchronous order with no workspace."""
    rows: list[fragmentation.PoolRow] = []
    for name, batch in PLACED:
        watch(f"{name}({batch})")
        rows += fragmentation.study(network(name, batch), MACHINES["gtx-970"])
    return Found([], rows)


REPLAYED = (
    NETWORK, Column("policy", "policy"), Column("heuristic", "heuristic"),
    Column("ideal", lambda row: row.found.ideal_bytes, "{:,}".format),
    Column("port (tries)", lambda row: f"{row.replayed.pool_bytes:,} ({row.replayed.tries})", plain),
    Column("ours (tries)", lambda row: f"{row.found.pool_bytes:,} ({row.found.tries})", plain),
    Column("mark", lambda row: "C"),
    Column("", lambda row: "to the byte" if row.found == row.replayed else "missed"),
)  # fmt: skip


def pool_tables(rows: Sequence[fragmentation.PoolRow]) -> list[Table]:
    """The pools of our port of the authors' code, to the byte; `refimpl study fragmentation` has every heuristic's."""
    known = [row for row in rows if row.replayed]
    return [Table.of("Pools: our port of the authors' code", known, REPLAYED, f"Bytes.  {CALCULATED}")]


def pool_document(row: fragmentation.PoolRow) -> dict[str, Any]:
    """A row for JSON, with the pool of our port of the authors' code, where there is one."""
    network = row.network.partition(":")[0]
    return {"network": network, "batch": row.batch, **fragmentation.document(row), "replayed": to_json(row.replayed)}


PARTS = (
    Part("speed", "time beside vDNN's, in three readings", len(NETWORKS), speed, speed_tables, SPEED_PICTURE),
    Part("pinned", "pinned memory with and without compression", len(COMPRESSED), pinned, PINNED_TABLE,
         PINNED_PICTURE),
    Part("fragmentation", "the pool that each heuristic needs", len(PLACED), fragmented, pool_tables,
         document=pool_document, beside=False),
)  # fmt: skip

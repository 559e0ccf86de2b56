"""SuperNeurons' evaluation of speed: the tensor cache, workspaces, the heap, and speed by batch.  Times are simulated.

Of the cache (§3.3.2) the paper says neither what "without" is nor which copies of its Table 3 count.  So it is read in
two ways, which docs/superneurons-evidence.md describes: overlapped (the stage `offload`) and synchronous (the preset
`superneurons-eager`).

Of the heap (§3.3.1) the paper's reason is one figure: cudaMalloc and cudaFree took 36 % of ResNet-50's training time.
It does not give the time of one call, on which that share depends.  Table 2 is compared with two numbers fitted to
ResNet-50 alone: a call of the driver takes as long as gives the text's share, and a call of a library costs as much
more as gives the speed of ResNet-50 with the pool.  The fit has seen no other line, and no other figure is simulated
with this cost of the authors' runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from refimpl.machine import MACHINES, Choice, Machine
from refimpl.memory import UNLIMITED, DriverCalls
from refimpl.names.largest_batch import attempt
from refimpl.network import Call, Network
from refimpl.planner import Launch, Program, Setup, plan
from refimpl.report.tables import Column, percent, plain
from refimpl.slots.baseline import NoRecompute
from refimpl.studies.reproduce.evaluation import GIB, MIB, Part, moved_bytes, one_table, titled
from refimpl.studies.reproduce.pictures import Datum, Marks
from refimpl.studies.reproduce.published import Found, Published, Reproduced, Watch, sized
from refimpl.studies.reproduce.superneurons.memory import FASTEST, FIGURES, K40C, LIBRARY_CALLS, library_calls, network
from refimpl.superneurons import Heap
from refimpl.superneurons import presets as stages
from refimpl.superneurons.presets import DynamicWorkspace
from refimpl.superneurons.recompute import COST_AWARE

TITAN_XP = MACHINES["titan-xp"]
#: The paper's GPUs.  We do not know on which its speeds were measured.  The faster a GPU, the more a driver call costs.
GPUS = (K40C, TITAN_XP)
EVERYTHING = stages.everything()
GB = 10**9  #: bytes, in the table of the cache

# -- the bytes that the cache saves ------------------------------------------------------------------------------------

OFFLOAD = stages.offload()
EAGER = stages.EAGER


def cache(watch: Watch) -> Found:
    """Bytes moved with the cache and without, at the batches of the paper's Table 3; AlexNet on a K40c."""
    figures = []
    for how, setup in (("without", OFFLOAD), ("without", EAGER), ("with", EVERYTHING)):
        for key, figure in FIGURES.by(f"moved {how} the cache").items():
            watch(f"{key}, {how} the cache")
            built = network(*sized(key))
            moved, note = moved_bytes(plan(built, setup, K40C, K40C.memory_bytes)), ""
            if setup is OFFLOAD:
                figure, note = replace(figure, what=f"{figure.what}; overlapped"), "CONV and FC, out and in"
            elif setup is EAGER:
                weights = sum(parameter.weight.nbytes for _, _, parameter in built.parameters())
                whole = (moved + weights + 2 * built.input.nbytes) / GB
                figure = replace(figure, what=f"{figure.what}; synchronous")
                note = f"CONV out, and in twice; with all weights once and the batch twice {whole:.2f}"
            figures.append(Reproduced(figure, moved / GB, note))
    return Found(figures, [])


# -- the speed with the cache: Figure 11 -------------------------------------------------------------------------------

#: All techniques but the cache: the outputs of CONV and FC are offloaded at once, room or not.
WITHOUT_CACHE = stages.offload(DynamicWorkspace()).replace(name="all but the cache", recompute=COST_AWARE)


@dataclass(frozen=True)
class CacheRow:
    """A network's iteration with the cache and without, on one GPU.  Seconds, bytes."""

    network: str
    batch: int
    machine: str
    with_seconds: float
    without_seconds: float
    eager_seconds: float  #: without it, synchronous
    with_moved_bytes: int
    without_moved_bytes: int

    @property
    def ratio(self) -> float:
        """The speed with the cache over the speed without it."""
        return self.without_seconds / self.with_seconds

    @property
    def ratio_eager(self) -> float:
        """The same, over a synchronous eager offload."""
        return self.eager_seconds / self.with_seconds


def cache_speed(watch: Watch) -> Found:
    """The speed with the tensor cache over the speed without it, in two readings of "without"."""
    rows: list[CacheRow] = []
    figures: list[Reproduced] = []
    for key, figure in FIGURES.by("faster with the cache").items():
        name, batch = sized(key)
        watch(name)
        mine, other = (cache_row(name, batch, machine) for machine in GPUS)
        rows += [mine, other]
        overlapped, eager = (replace(figure, what=f"{figure.what}; {how}") for how in ("overlapped", "synchronous"))
        note = f"simulated on a {K40C.name}; {other.ratio:.3f} on a {other.machine}"
        figures.append(Reproduced(overlapped, mine.ratio, note))
        note = f"{EAGER.name} on a {K40C.name}; {other.ratio_eager:.3f} on a {other.machine}"
        figures.append(Reproduced(eager, mine.ratio_eager, note))
    return Found(figures, rows)


def cache_row(name: str, batch: int, machine: Machine) -> CacheRow:
    built = network(name, batch)
    cached, without, eager = (
        plan(built, setup, machine, machine.memory_bytes) for setup in (EVERYTHING, WITHOUT_CACHE, EAGER)
    )
    return CacheRow(
        network=name, batch=built.batch, machine=machine.name, with_seconds=cached.planned_seconds,
        without_seconds=without.planned_seconds, eager_seconds=eager.planned_seconds,
        with_moved_bytes=moved_bytes(cached), without_moved_bytes=moved_bytes(without),
    )  # fmt: skip


def cache_speed_marks(rows: Sequence[CacheRow]) -> Iterator[Datum]:
    for row in rows:
        known = FIGURES.by("faster with the cache")[titled(row)].value
        yield Datum(titled(row), f"{row.machine}, overlapped", row.ratio)
        beside = known if row.machine == K40C.name else None
        yield Datum(titled(row), f"{row.machine}, synchronous", row.ratio_eager, beside)


CACHE_SPEED_PICTURE = Marks(
    "What the tensor cache is worth in speed",
    "speed with the cache over the speed without it · 12 GiB, simulated · white: published, for one of the two GPUs",
    "× without the cache", cache_speed_marks, text="{:.2f}".format, base=0.8,
)  # fmt: skip

# -- workspaces: Figure 12 ---------------------------------------------------------------------------------------------

IMAGES = (100, 300)  #: of AlexNet
POOLS = (3, 5)  #: GiB

PASSES = {"conv.forward": "Y", "conv.backward_data": "dX", "conv.backward_filter": "dW"}

#: Recomputation leaves so much room that 3 GiB are enough for every workspace; so the figure is drawn without it.
NO_RECOMPUTE = EVERYTHING.replace(name="all but recompute", recompute=NoRecompute())


@dataclass(frozen=True)
class WorkspaceRow:
    """A convolution call of AlexNet in a pool: the workspace that it has, and the one it would be fastest with."""

    batch: int
    pool_bytes: int
    images_a_second: float  #: of the whole iteration
    call: str  #: such as "CONV2 dX"
    algorithm: str
    workspace_bytes: int
    fastest_bytes: int


def workspaces(watch: Watch) -> Found:
    """AlexNet's workspaces in two pools, call by call, and the speed that the larger pool buys."""
    rows: list[WorkspaceRow] = []
    for batch in IMAGES:
        watch(f"alexnet({batch})")
        for pool in POOLS:
            rows += _workspaces(plan(network("alexnet", batch), NO_RECOMPUTE, K40C, pool * GIB))
    figures = []
    for title, figure in FIGURES.by("served").items():
        known, pool = FIGURES.data["panels"][title]
        batch = known or IMAGES[-1]
        found = served(chosen(rows, batch, pool))
        figures.append(Reproduced(figure, found, f"{batch} images, without recomputation"))
    little, much = (chosen(rows, IMAGES[-1], pool)[0].images_a_second for pool in POOLS)
    note = f"simulated, {IMAGES[-1]} images, without recomputation: {little:.0f} and {much:.0f} images a second"
    return Found([*figures, Reproduced(FIGURES.one("faster with memory"), much / little, note)], rows)


def chosen(rows: Sequence[WorkspaceRow], batch: int, pool: int) -> list[WorkspaceRow]:
    """The calls of one plan, in a pool of a number of GiB."""
    return [row for row in rows if (row.batch, row.pool_bytes) == (batch, pool * GIB)]


def by_step(run: Sequence[WorkspaceRow]) -> dict[str, tuple[int, int]]:
    """Step of the panels → its workspace and the fastest one, bytes; the calls of a step share one."""
    found = dict.fromkeys(FIGURES.data["workspace steps"], (0, 0))
    for row in run:
        layer, what = row.call.split()
        step = f"{layer} {'forward' if what == PASSES['conv.forward'] else 'backward'}"
        if step in found:
            given, fastest = found[step]
            found[step] = max(given, row.workspace_bytes), max(fastest, row.fastest_bytes)
    return found


def served(run: Sequence[WorkspaceRow]) -> int:
    """Steps of the panels that have the workspace of their fastest algorithm."""
    return sum(given == fastest for given, fastest in by_step(run).values())


def _workspaces(program: Program) -> Iterator[WorkspaceRow]:
    for instruction in program.instructions:
        if isinstance(instruction, Launch) and instruction.choice is not None and not instruction.rebuild:
            layer = program.network.steps[instruction.step - 1].layer
            yield WorkspaceRow(
                batch=program.network.batch,
                pool_bytes=program.budget,
                images_a_second=program.network.batch / program.planned_seconds,
                call=f"{layer.name.upper()} {PASSES[instruction.call.function]}",
                algorithm=instruction.choice.algorithm,
                workspace_bytes=instruction.choice.workspace_bytes,
                fastest_bytes=K40C.choices(instruction.call)[0].workspace_bytes,
            )


def workspaces_marks(rows: Sequence[WorkspaceRow]) -> Iterator[Datum]:
    """A panel a batch and pool."""
    for row in rows:
        call = row.call.replace(" ", "\n")
        pool = f"{row.batch} images, pool of {row.pool_bytes // GIB} GiB: {row.images_a_second:.0f} images/s"
        yield Datum(call, "its workspace", row.workspace_bytes / MIB, None, pool)
        yield Datum(call, "of the fastest algorithm", row.fastest_bytes / MIB, None, pool)


WORKSPACES_PICTURE = Marks(
    "The larger the pool, the larger the workspaces",
    "alexnet:superneurons, all techniques but recomputation · a K40c, speed simulated", "MiB", workspaces_marks,
    text=lambda mib: "", columns=2, size=(14, 3.2),
)  # fmt: skip

# -- the heap against driver calls: Table 2 ----------------------------------------------------------------------------


@dataclass(frozen=True)
class FixedCost(Machine):
    """A machine whose calls of a library each take `call_seconds` more, as if the host waited for each."""

    call_seconds: float = 0.0

    @classmethod
    def of(cls, machine: Machine, call_seconds: float) -> FixedCost:
        given = {field.name: getattr(machine, field.name) for field in fields(machine) if field.init}
        return cls(**given, call_seconds=call_seconds)

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        return super().seconds(call, choice) + self.call_seconds * LIBRARY_CALLS.get(call.function, 1)


@dataclass(frozen=True)
class PoolStudy:
    """One iteration with the heap, and with a driver call for every allocation and every free; seconds, simulated.

    In a driver call the whole device waits.  The heap's own work is not counted.
    """

    network: str
    batch: int
    machine: str
    calls: int  #: of the driver, an iteration: allocations and frees
    call_seconds: float  #: a call; those of the machines that have a name are an assumption, and not a measurement
    seconds_heap: float
    seconds_driver: float
    library_calls: int  #: an iteration

    @property
    def share_of_driver_calls(self) -> float:
        """Of an iteration with driver calls; the paper's is 0.36 for ResNet-50."""
        return 1 - self.seconds_heap / self.seconds_driver

    @property
    def speed(self) -> float:
        """The speed with the heap over that with driver calls."""
        return self.seconds_driver / self.seconds_heap

    @property
    def call_seconds_published(self) -> float:
        """The mean time of a call with which the share is the published one."""
        share = FIGURES.one("driver share").value / 100
        return self.seconds_heap * share / (1 - share) / self.calls


FITTED = "resnet50(16)"  #: whose line of Table 2 the fixed cost is fitted to, and of which the text has the share


def against_driver_calls(network: Network, machine: Machine, setup: Setup = FASTEST) -> PoolStudy:
    """The heap against the driver; by default with liveness analysis alone, which allocates and frees every tensor."""
    heap = plan(network, setup.replace(allocator=Heap()), machine, UNLIMITED)
    driver = plan(network, setup.replace(allocator=DriverCalls()), machine, UNLIMITED)
    return PoolStudy(
        network=network.name,
        batch=network.batch,
        machine=machine.name,
        calls=len(driver.allocation_trace()),
        call_seconds=machine.allocate_seconds,
        seconds_heap=heap.simulate().seconds,
        seconds_driver=driver.simulate().seconds,
        library_calls=library_calls(network),
    )


def pool_studies(machine: Machine) -> dict[str, PoolStudy]:
    """Network of Table 2 → its iteration with the heap and with driver calls."""
    keys = FIGURES.by("speed with the pool")
    return {key: against_driver_calls(network(*sized(key)), machine) for key in keys}


def with_calls_of_the_text(machine: Machine) -> Machine:
    """A machine whose driver calls take so long that they take the share of ResNet-50's time that the text has."""
    seconds = against_driver_calls(network(*sized(FITTED)), machine).call_seconds_published
    return replace(machine, allocate_seconds=seconds, free_seconds=seconds)


def pool(watch: Watch) -> Found:
    """The heap against one driver call an allocation, for the networks and the batches of the paper's Table 2."""
    watch(f"{FITTED} without a fixed cost")
    resnet, theirs = network(*sized(FITTED)), FIGURES.by("speed with the pool")[FITTED]
    assumed = against_driver_calls(resnet, K40C)
    plainly = against_driver_calls(resnet, with_calls_of_the_text(K40C))
    watch("with a fixed cost")
    cost = (assumed.batch / theirs.value - assumed.seconds_heap) / assumed.library_calls
    dear = pool_studies(with_calls_of_the_text(FixedCost.of(K40C, cost)))
    note = (
        f"on a {assumed.machine}, {1e6 * assumed.call_seconds:.0f} µs a call, an assumption; the published share is "
        f"that of {1e6 * assumed.call_seconds_published:.0f} µs"
    )
    found = [Reproduced(FIGURES.one("driver share"), 100 * assumed.share_of_driver_calls, note)]
    for key, study in dear.items():
        for figure, ours in zip(table2(key), speeds_of(study), strict=True):
            if figure == theirs:
                without = speeds_of(plainly)[1]
                found.append(Reproduced(figure, without, "without a fixed cost, which is fitted to this line"))
            else:
                found.append(Reproduced(figure, ours, "with the fixed cost"))
    return Found(found, [assumed, plainly, *dear.values()])


def table2(key: str) -> tuple[Published, ...]:
    """A line of Table 2: images a second with driver calls, with the pool, and their ratio."""
    return tuple(FIGURES.by(name)[key] for name in ("speed with calls", "speed with the pool", "faster with the pool"))


def speeds_of(study: PoolStudy) -> tuple[float, ...]:
    """The same three of ours."""
    return study.batch / study.seconds_driver, study.batch / study.seconds_heap, study.speed


# -- speed by batch: Figure 14 -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BesideRow:
    """A point of a curve of Figure 14, and ours; images a second, and as shares of the curve's highest."""

    network: str
    batch: int
    published_rate: int
    published_share: float
    rate: float | None  #: simulated; None: does not fit
    share: float | None


def speeds(watch: Watch) -> Found:
    """SuperNeurons' own curves within 12 GiB: where each is highest, and how far it falls."""
    rows: list[BesideRow] = []
    found: list[Reproduced] = []
    for name, theirs in FIGURES.data["speed by batch"].items():
        watch(name)
        programs = {int(batch): attempt(network(name, int(batch)), EVERYTHING, TITAN_XP, TITAN_XP.memory_bytes)
                    for batch in theirs}  # fmt: skip
        rates = {batch: batch / program.planned_seconds for batch, program in programs.items() if program}
        best, last = max(rates, key=lambda batch: rates[batch]), max(programs)
        for batch, rate in theirs.items():
            mine = rates.get(int(batch))
            shares = rate / max(theirs.values()), mine and mine / rates[best]
            rows.append(BesideRow(name, int(batch), rate, shares[0], mine, shares[1]))
        fallen = FIGURES.by_two("fallen")[name][str(last)]
        found += [
            Reproduced(FIGURES.by("best batch")[name], best, "of the batches in the figure"),
            Reproduced(FIGURES.by("best rate")[name], rates[best], f"simulated on a {TITAN_XP.name}"),
            Reproduced(fallen, rates.get(last, 0.0) / rates[best], f"the highest is at {best}"),
        ]
    return Found(found, rows)


SPEEDS_TABLE = one_table(
    "Speed by batch on a TITAN Xp, images a second",
    (
        Column("network", "network"), Column("images", "batch", plain),
        Column("published", "published_rate", plain), Column("ours", "rate", "{:.0f}".format),
        Column("of its highest", "published_share", percent), Column("ours ", "share", percent),
    ),
    "Simulated within 12 GiB under all techniques.  The speeds depend on the version of cuDNN, ours is a model of "
    "cuDNN 4; what can be compared is where a curve is highest, and how it falls.  –: does not fit.",
)  # fmt: skip

PARTS = (
    Part("cache", "bytes moved with the tensor cache and without", 3 * len(FIGURES.by("moved with the cache")), cache,
         units="GB: 10^9 bytes."),
    Part("cache-speed", "speed with the tensor cache and without", len(FIGURES.by("faster with the cache")),
         cache_speed, picture=CACHE_SPEED_PICTURE),
    Part("workspaces", "workspaces and speed in two pools", len(IMAGES), workspaces, picture=WORKSPACES_PICTURE),
    Part("pool", "heap against driver calls", 2, pool),
    Part("speed-by-batch", "images a second by batch, on a TITAN Xp", len(FIGURES.data["speed by batch"]), speeds,
         SPEEDS_TABLE),
)  # fmt: skip

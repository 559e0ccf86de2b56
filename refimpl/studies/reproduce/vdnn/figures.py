"""vDNN's evaluation, part by part: the published figures beside ours, and its networks under every policy.

`published.json` has the published ones; docs/vdnn-evidence.md says what their marks mean, and which conventions are
ours, the same for every network (C: a fit to the published savings, and not a proof):

- GB is 2^30 bytes: with 10^9, the total of VGG-416 would be 4.4 % off in place of 2.7 %, and the peak of VGG-16(128)
  6.8 % in place of 0.5 %.
- The memory of a step is its live maps and gradient maps, its workspace, and W and dW of all convolutions.  Average and
  peak are taken over the steps of the feature extraction, without the classifier (everything from the first fully
  connected layer on).
- Savings are shares of the network-wide total, classifier and the largest workspace of the fastest algorithms included.
- An oracle is the same GPU with memory enough for everything.  Performance is its time over the policy's: a GPU that
  takes 1.25 times as long has lost 20 %.

When the dynamic policy takes "no offload" is read in two ways.  Ours: where it fits, released layer by layer.  Network-
wide: where everything allocated once fits.  A figure that the second reading changes has a line for it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import mean

from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Layer, Network
from refimpl.network.accounting import network_wide_bytes
from refimpl.planner import Context, DoesNotFit, Program, Setup, plan
from refimpl.report.tables import Column, Table, in_units, percent
from refimpl.slots.baseline import NoOffload
from refimpl.studies.reproduce.evaluation import NETWORK, Part, one_table, titled
from refimpl.studies.reproduce.pictures import Datum, Marks
from refimpl.studies.reproduce.published import Figures, Found, Published, Reproduced, Watch, sized
from refimpl.text import size
from refimpl.vdnn.offload import ALL, CONV, LITERAL
from refimpl.vdnn.presets import MEMORY, PERFORMANCE, VDNN_DYN, static

FIGURES = Figures(__file__)
GB = 1 << 30
TITAN_X, K40 = MACHINES["titan-x"], MACHINES["k40c"]

#: The paper's networks with their batches: the conventional ones and the very deep ones.
CONVENTIONAL = (
    ("alexnet", 128), ("overfeat", 128), ("googlenet", 128), ("vgg16", 64), ("vgg16", 128), ("vgg16", 256),
)  # fmt: skip
DEEP = (("vgg116", 32), ("vgg216", 32), ("vgg316", 32), ("vgg416", 32))

ORACLE = static("none (p)", NoOffload(), PERFORMANCE)
POLICIES: dict[str, Setup] = {
    "all (m)": static("all (m)", ALL, MEMORY),
    "all (p)": static("all (p)", ALL, PERFORMANCE),
    "conv (m)": static("conv (m)", CONV, MEMORY),
    "conv (p)": static("conv (p)", CONV, PERFORMANCE),
    "dyn": VDNN_DYN,
}
#: Bytes of the pool, where all of the GPU's memory has bytes enough and no hole that is large enough.
POOLS = {("vgg16", 256, "conv (m)"): 11904 << 20}
#: What the dynamic policy takes where the network-wide test refuses "no offload".
OFFLOADING = replace(VDNN_DYN, candidates=tuple(one for one in VDNN_DYN.candidates if one.offload != NoOffload()))


@dataclass(frozen=True)
class VdnnRow:
    """A network under a policy on a GPU.  Bytes, seconds, rates a second; the properties are shares of 1."""

    network: str
    batch: int
    policy: str
    network_wide_bytes: int
    adopted: str  #: by the dynamic policy
    failure: str  #: where it does not fit the GPU; the other figures are then those of a GPU with more memory
    average_bytes: float
    peak_bytes: int
    offloaded_bytes: int
    seconds: float
    oracle_seconds: float
    flops_rate: float  #: operations a second while kernels ran: slow kernels make any policy look free
    link_rate: float | None  #: bytes a second of all copies

    @property
    def average_saving(self) -> float:
        return 1 - self.average_bytes / self.network_wide_bytes

    @property
    def peak_saving(self) -> float:
        return 1 - self.peak_bytes / self.network_wide_bytes

    @property
    def host_share(self) -> float:
        """Of what is on the host and, at the peak, on the GPU."""
        return self.offloaded_bytes / (self.offloaded_bytes + self.peak_bytes)

    @property
    def performance(self) -> float | None:
        """Of the oracle's; None where the policy does not fit."""
        return None if self.failure else self.oracle_seconds / self.seconds

    @property
    def performance_lost(self) -> float | None:
        return None if self.performance is None else 1 - self.performance


def parts(network: Network) -> tuple[Sequence[Layer], Sequence[Layer]]:
    """The feature extraction and the classifier."""
    first = next(i for i, layer in enumerate(network.layers) if layer.kind == "fc")
    return network.layers[:first], network.layers[first:]


def classifier_bytes(network: Network) -> int:
    """W, dW and the maps of the classifier."""
    _, classifier = parts(network)
    weights = sum(p.weight.nbytes for layer, _, p in network.parameters() if layer in classifier)
    maps = {tensor for layer in classifier for tensor in layer.outputs if tensor.kind == "map"}
    return 2 * weights + sum(tensor.nbytes for tensor in maps)


def step_memory(program: Program) -> dict[int, int]:
    """Step number → bytes, of the steps of the feature extraction."""
    network = program.network
    extraction, _ = parts(network)
    filters = sum(2 * p.weight.nbytes for layer, _, p in network.parameters() if layer.kind == "conv")
    return {
        row.step.number: row.live_bytes + row.workspace_bytes + filters
        for row in program.rows
        if row.step.layer in extraction
    }


class Oracle:
    """A network on a GPU that holds everything: its time, and the network-wide total."""

    def __init__(self, network: Network, machine: Machine = TITAN_X) -> None:
        program = plan(network, ORACLE, machine, UNLIMITED)
        self.network, self.machine, self.timeline = network, machine, program.simulate()
        self.total = network_wide_bytes(network, max(row.workspace_bytes for row in program.rows))

    def under(self, name: str, policy: Setup) -> VdnnRow:
        """The network under a policy, within the GPU's memory."""
        failure = ""
        pool = POOLS.get((self.network.name, self.network.batch, name), self.machine.memory_bytes)
        try:
            program = plan(self.network, policy, self.machine, pool)
        except DoesNotFit as error:
            failure = f"{error.where}: {error.missing} missing"
            program = plan(self.network, policy, self.machine, UNLIMITED)
        timeline, memory = program.simulate(), step_memory(program)
        return VdnnRow(
            network=self.network.name,
            batch=self.network.batch,
            policy=name,
            network_wide_bytes=self.total,
            adopted=program.setup.name.partition(": ")[2] if program.tried else "",
            failure=failure,
            average_bytes=mean(memory.values()),
            peak_bytes=max(memory.values()),
            offloaded_bytes=program.counts.offloaded_bytes,
            seconds=timeline.seconds,
            oracle_seconds=self.timeline.seconds,
            flops_rate=self.network.flops / timeline.busy("compute"),
            link_rate=timeline.link_rate(),
        )


@cache
def policies(network: str, batch: int) -> tuple[VdnnRow, ...]:
    """A network under every policy on a Titan X."""
    oracle = Oracle(build(network, batch))
    return tuple(oracle.under(name, setup) for name, setup in POLICIES.items())


def under_policies(networks: Iterable[tuple[str, int]], watch: Watch) -> list[VdnnRow]:
    rows: list[VdnnRow] = []
    for name, batch in networks:
        watch(f"{name}({batch})")
        rows += policies(name, batch)
    return rows


def row_of(rows: Iterable[VdnnRow], network: str, batch: int, policy: str) -> VdnnRow:
    return next(row for row in rows if (row.network, row.batch, row.policy) == (network, batch, policy))


@cache
def read_network_wide(row: VdnnRow) -> VdnnRow:
    """A row of the dynamic policy, if it takes "no offload" only where everything allocated once fits."""
    if row.adopted != ORACLE.name or row.network_wide_bytes <= TITAN_X.memory_bytes:
        return row
    return Oracle(build(row.network, row.batch)).under(row.policy, OFFLOADING)


def read_twice(
    figure: Published, rows: Sequence[VdnnRow], value: Callable[[Sequence[VdnnRow]], tuple[float, str]]
) -> list[Reproduced]:
    """A figure of the dynamic policy in both readings; the second only where it is another number.

    Args:
        figure: the published one.
        rows: of the dynamic policy.
        value: from rows ours, and a note.
    """
    (ours, note), (other, beside) = value(rows), value([*map(read_network_wide, rows)])
    found = [Reproduced(figure, ours, note)]
    if other != ours:
        again = replace(figure, what=f"{figure.what}; none (p) tested network-wide")
        found.append(Reproduced(again, other, beside))
    return found


def of_policy(policy: str, rows: Iterable[VdnnRow]) -> tuple[list[VdnnRow], str]:
    """A policy's rows, and the networks that do not fit under it."""
    mine = [row for row in rows if row.policy == policy]
    return mine, ", ".join(titled(row) for row in mine if row.failure)


GB_2, MS_1 = in_units(GB, 2), in_units(1e-3)
POLICY = Column("policy", "policy")
HOW = Column("", lambda row: f"does not fit: {row.failure}" if row.failure else row.adopted, wraps=True)
MODES = "(m): least workspace, (p): fastest; dyn: with the adopted policy."
MEAN = "mean"  #: the last group of a picture


# -- memory: the abstracts, Figures 11 and 12 --------------------------------------------------------------------------


def memory(watch: Watch) -> Found:
    """The memory of the conventional networks under every policy."""
    rows = under_policies(CONVENTIONAL, watch)
    every = {row.network: row for row in rows if row.policy == "all (m)"}
    middle, large = row_of(rows, "vgg16", 128, "all (m)"), row_of(rows, "vgg16", 256, "all (m)")
    watch("vgg16(128), the window read literally")
    literal = Oracle(build("vgg16", 128)).under("literal", POLICIES["all (m)"].replace(prefetch=LITERAL))
    note = "vDNN's accounting, workspaces of the modelled cuDNN 4"
    figures = [Reproduced(FIGURES.one("network-wide"), large.network_wide_bytes / GB, note)]
    for name, note in (
        ("saved", "all (m), over the steps of the feature extraction"),
        ("saved in v1", "the same; the abstract names no policy"),
    ):
        for key, figure in FIGURES.by(name).items():
            figures.append(Reproduced(figure, 100 * every[key.partition("(")[0]].average_saving, note))
    note = f"window conv; read literally, it is {literal.peak_bytes / GB:.2f}"
    figures.append(Reproduced(FIGURES.one("peak"), middle.peak_bytes / GB, note))
    for policy, theirs in FIGURES.by_two("mean saved").items():
        mine, misfits = of_policy(policy, rows)
        note = f"{misfits}, which does not fit, on a larger GPU" if misfits else ""
        for what, figure in theirs.items():
            if policy == "dyn":
                figures += read_twice(figure, mine, partial(saving_and_taken, what=what))
            else:
                figures.append(Reproduced(figure, mean_saving(mine, what), note))
    for key, figure in FIGURES.by("features").items():
        name, batch = sized(key)
        total, without = row_of(rows, name, batch, "dyn").network_wide_bytes, classifier_bytes(build(name, batch))
        figures.append(Reproduced(figure, 100 * (1 - without / total), "all but W, dW and maps of the classifier"))
    note = f"the batch is not copied out; in 10^9 bytes it is {large.offloaded_bytes / 1e9:.1f}"
    figures.append(Reproduced(FIGURES.one("offloaded"), large.offloaded_bytes / GB, note))
    return Found(figures, rows)


def mean_saving(rows: Iterable[VdnnRow], what: str) -> float:
    """Per cent of the peak, or of the average memory."""
    return float(100 * mean(getattr(row, f"{what}_saving") for row in rows))


def saving_and_taken(rows: Sequence[VdnnRow], what: str) -> tuple[float, str]:
    return mean_saving(rows, what), taken(rows)


def taken(rows: Iterable[VdnnRow]) -> str:
    """The networks that are offloaded, and by which of the dynamic policy's candidates."""
    return ", ".join(f"{titled(row)} {row.adopted}" for row in rows if row.adopted != ORACLE.name) + ", else none (p)"


MEMORY_TABLE = one_table(
    "Memory of vDNN's networks",
    (
        NETWORK, POLICY, Column("at once", "network_wide_bytes", GB_2), Column("average", "average_saving", percent),
        Column("peak", "peak_saving", percent),
        Column("out", lambda row: row.offloaded_bytes or None, size), HOW,
    ),
    "Planned for a Titan X of 12 GiB with the modelled cuDNN 4.  at once: the network-wide total, GB.  average, peak: "
    "memory saved against it, over the steps of the feature extraction.  out: offloaded in an iteration.  A policy "
    f"that does not fit is counted on a larger GPU.  {MODES}  vgg16(256), conv (m) has a pool of 11,904 MiB: in 12 GiB "
    "no hole is large enough for one gradient.",
)  # fmt: skip


def memory_marks(rows: Sequence[VdnnRow]) -> Iterator[Datum]:
    """Savings at the peak and on average, in per cent; of the networks, then their means."""
    saved = FIGURES.by("saved")
    for what in ("peak", "average"):
        for row in rows:
            known = saved.get(titled(row)) if (what, row.policy) == ("average", "all (m)") else None
            value = 100 * getattr(row, f"{what}_saving")
            yield Datum(titled(row), row.policy, value, known.value if known else None, f"{what} memory")
        for policy in POLICIES:
            mine, _ = of_policy(policy, rows)
            means = FIGURES.by_two("mean saved").get(policy)
            yield Datum(MEAN, policy, mean_saving(mine, what), means[what].value if means else None, f"{what} memory")


MEMORY_PICTURE = Marks(
    "How much of the memory each of vDNN's policies saves",
    "of everything allocated once · Titan X of 12 GiB, cuDNN 4, planned", "saved (%)", memory_marks,
    text="{:.0f}".format,
)  # fmt: skip

# -- performance: the abstracts, Figure 14 -----------------------------------------------------------------------------


def performance(watch: Watch) -> Found:
    """The performance of the conventional networks under every policy."""
    rows = under_policies(CONVENTIONAL, watch)
    watch("vgg16(256) on a K40")
    old = Oracle(build("vgg16", 256), K40).under("dyn", VDNN_DYN)
    figures = []
    for name, row in (("lost", row_of(rows, "vgg16", 256, "dyn")), ("lost in v1", old)):
        assert row.performance_lost is not None
        figures.append(Reproduced(FIGURES.one(name), 100 * row.performance_lost, f"vdnn-dyn adopts {row.adopted}"))
    for policy, figure in FIGURES.by("mean lost").items():
        mine, misfits = of_policy(policy, rows)
        note = f"without {misfits}, which does not fit" if misfits else ""
        lost = {titled(row): row.performance_lost for row in mine if row.performance_lost is not None}
        most = max(lost, key=lost.__getitem__)
        figures += [
            Reproduced(figure, 100 * mean(lost.values()), note),
            Reproduced(FIGURES.by("most lost")[policy], 100 * lost[most], most),
        ]
    middle = row_of(rows, "vgg16", 128, "all (m)")
    assert middle.performance_lost is not None
    figures.append(Reproduced(FIGURES.one("lost in the middle"), 100 * middle.performance_lost, ""))
    dyn = [row for row in rows if row.policy == "dyn"]
    figures += read_twice(FIGURES.one("reached"), dyn, lambda rows: (100 * mean(map(reached, rows)), taken(rows)))
    figures += read_twice(
        FIGURES.one("worst"), dyn, lambda rows: (100 * reached(worst := min(rows, key=reached)), titled(worst))
    )
    rate = max(row.link_rate for row in rows if row.link_rate)
    note = f"{rate / 1e9:.1f} of {TITAN_X.bandwidth / 1e9:.0f} GB/s, what copies reach; 16 is the link's peak"
    figures.append(Reproduced(FIGURES.one("copies"), 100 * rate / TITAN_X.bandwidth, note))
    return Found(figures, rows)


def reached(row: VdnnRow) -> float:
    """The performance, as a share of the oracle's, of a policy that always fits."""
    assert row.performance is not None
    return row.performance


PERFORMANCE_COLUMNS = (
    NETWORK, POLICY, Column("oracle", "oracle_seconds", MS_1),
    Column("vDNN", lambda row: None if row.failure else row.seconds, MS_1),
    Column("lost", "performance_lost", percent), Column("TFLOP/s", "flops_rate", in_units(1e12, 2)), HOW,
)  # fmt: skip


def performance_tables(rows: Sequence[VdnnRow]) -> list[Table]:
    link = max(row.link_rate for row in rows if row.link_rate)
    note = (
        "Milliseconds an iteration, simulated on a Titan X of 12 GiB with the modelled cuDNN 4.  oracle: a GPU that "
        "holds everything, with the fastest algorithms.  lost: 1 - T(oracle) / T(vDNN).  TFLOP/s: of the kernels; "
        f"copies ran at {link / 1e9:.1f} GB/s.  {MODES}"
    )
    return [Table.of("Performance of vDNN's networks", rows, PERFORMANCE_COLUMNS, note)]


def performance_marks(rows: Sequence[VdnnRow]) -> Iterator[Datum]:
    """Per cent of the oracle's, of the networks and their means."""
    known = {policy: 100 - lost.value for policy, lost in FIGURES.by("mean lost").items()}
    known["dyn"] = FIGURES.one("reached").value
    for row in rows:
        theirs = 100 - FIGURES.one("lost").value if (titled(row), row.policy) == ("vgg16(256)", "dyn") else None
        yield Datum(titled(row), row.policy, row.performance and 100 * row.performance, theirs)
    for policy in POLICIES:
        fitting = [row.performance for row in rows if row.policy == policy and row.performance]
        yield Datum(MEAN, policy, 100 * mean(fitting), known.get(policy))


PERFORMANCE_PICTURE = Marks(
    "The performance under each of vDNN's policies",
    "of a GPU that holds everything · Titan X of 12 GiB, cuDNN 4, simulated · ×: does not fit", "performance (%)",
    performance_marks, text="{:.0f}".format,
)  # fmt: skip

# -- ten networks: the introduction ------------------------------------------------------------------------------------


def ranges(watch: Watch) -> Found:
    """The ranges of the introduction under the dynamic policy, over the networks whose total exceeds 12 GB."""
    rows = [row for row in under_policies((*CONVENTIONAL, *DEEP), watch) if row.policy == "dyn"]
    failing = [row for row in rows if row.network_wide_bytes > TITAN_X.memory_bytes]
    figures = [Reproduced(FIGURES.one("fail"), len(failing), ", ".join(map(titled, failing)))]
    of: dict[str, Callable[[VdnnRow], float]] = {
        "needed": lambda row: row.network_wide_bytes / GB,
        "range saved": lambda row: 100 * row.average_saving,
        "range lost": lambda row: 100 * (row.performance_lost or 0),
    }
    for name, value in of.items():
        for figure, pick in zip(FIGURES.by(name).values(), (min, max), strict=True):

            def end(
                rows: Sequence[VdnnRow], pick: Callable[..., VdnnRow] = pick, value: Callable[[VdnnRow], float] = value
            ) -> tuple[float, str]:
                row = pick(rows, key=value)
                return value(row), f"{titled(row)}, {row.adopted}"

            figures += read_twice(figure, failing, end)
    return Found(figures, rows)


def ranges_marks(rows: Sequence[VdnnRow]) -> Iterator[Datum]:
    ends = dict(zip(("vgg16(128)", titled(rows[-1])), FIGURES.by("needed").values(), strict=True))
    for row in rows:
        known = ends.get(titled(row))
        total = row.network_wide_bytes / GB
        yield Datum(titled(row), "everything allocated once", total, known.value if known else None)
        yield Datum(titled(row), "vdnn-dyn, on the GPU on average", row.average_bytes / GB)


RANGES_PICTURE = Marks(
    "Ten networks: the memory that each needs, and what vdnn-dyn holds on average",
    "planned with cuDNN 4 · dashed: the 12 GiB of a Titan X · white: the ends of the published range",
    "GB (2^30 bytes)", ranges_marks, lines=(TITAN_X.memory_bytes / GB,),
)  # fmt: skip

# -- the wait of a map: Figure 6 ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReuseRow:
    """A layer whose X is needed again, while nothing moves.  Bytes and seconds."""

    network: str
    batch: int
    layer: str
    x_bytes: int
    forward_seconds: float
    backward_seconds: float
    wait_seconds: float  #: from the end of the layer's forward to the start of its backward
    copy_seconds: float  #: of X to the host and back, which the link alone would need


def reuse(watch: Watch) -> Found:
    """How long X waits between its two uses, on a GPU that holds everything, with the fastest algorithms."""
    rows: list[ReuseRow] = []
    figures = []
    for key, figure in FIGURES.by("reuse").items():
        watch(key)
        rows += (mine := waits(build(*sized(key))))
        figures.append(Reproduced(figure, 1e3 * mine[0].wait_seconds, "simulated; the first layer's X is the batch"))
    return Found(figures, rows)


def waits(network: Network) -> list[ReuseRow]:
    """A row a layer that vDNN-all offloads the input of; the network is a chain."""
    steps = Oracle(network).timeline.steps()
    across = Context(network, TITAN_X).maps_across()
    rows = []
    for layer in network.layers:
        if layer.kind not in ALL.kinds or layer.x not in across:
            continue
        (start, end), (again, last) = steps[layer.forward.number], steps[layer.backward.number]
        copies = TITAN_X.copy_seconds(layer.x.nbytes, "out") + TITAN_X.copy_seconds(layer.x.nbytes, "in")
        rows.append(
            ReuseRow(network.name, network.batch, layer.name, layer.x.nbytes, end - start, last - again, again - end,
                     copies)
        )  # fmt: skip
    return rows


def reuse_marks(rows: Sequence[ReuseRow]) -> Iterator[Datum]:
    """A panel a network; the first layer's wait is published as more than a figure."""
    known = {key: figure.value for key, figure in FIGURES.by("reuse").items()}
    for row in rows:
        panel = titled(row)
        yield Datum(row.layer, "X waits", 1e3 * row.wait_seconds, known.pop(panel, None), panel)
        yield Datum(row.layer, "its copies out and in take", 1e3 * row.copy_seconds, None, panel)


REUSE_PICTURE = Marks(
    "How long each layer's input waits between its two uses",
    "Titan X that holds everything, fastest algorithms of cuDNN 4, simulated · published: more than this", "ms",
    reuse_marks, text="{:,.0f}".format,
)  # fmt: skip

# -- very deep networks: Figure 15 -------------------------------------------------------------------------------------


def deep(watch: Watch) -> Found:
    """Memory on the GPU and on the host, and performance, as VGG-16 gets deeper."""
    rows = under_policies(DEEP, watch)
    watch("vgg16(32)")
    start = Oracle(build("vgg16", 32)).total
    last = row_of(rows, *DEEP[-1], "dyn")
    figures = [
        Reproduced(FIGURES.one("deep total"), last.network_wide_bytes / GB, "vDNN's accounting"),
        Reproduced(FIGURES.one("deep growth"), last.network_wide_bytes / start, f"from {start / GB:.2f} GB"),
        Reproduced(
            FIGURES.one("deep held"), last.peak_bytes / GB, f"at the peak; on average {last.average_bytes / GB:.2f} GB"
        ),
    ]
    for key, figure in FIGURES.by("deep host").items():
        share = row_of(rows, *sized(key), "dyn").host_share
        figures.append(Reproduced(figure, 100 * share, "of the host's and the GPU's at the peak"))
    return Found(figures, rows)


DEEP_TABLE = one_table(
    "Very deep networks",
    (
        NETWORK, POLICY, Column("at once", "network_wide_bytes", GB_2), Column("GPU, peak", "peak_bytes", GB_2),
        Column("average", "average_bytes", GB_2), Column("host", "offloaded_bytes", GB_2),
        Column("on the host", "host_share", percent), Column("lost", "performance_lost", percent), HOW,
    ),
    "GB.  at once: the network-wide total.  GPU: of the feature extraction.  host: offloaded maps.  on the host: of "
    f"these and the GPU's peak.  lost: performance, against a GPU that holds everything.  {MODES}",
)  # fmt: skip


def deep_marks(rows: Sequence[VdnnRow]) -> Iterator[Datum]:
    for row in rows:
        if row.policy == "dyn":
            last = titled(row) == "vgg416(32)"
            total, held = (FIGURES.one(name).value if last else None for name in ("deep total", "deep held"))
            yield Datum(titled(row), "everything allocated once", row.network_wide_bytes / GB, total)
            yield Datum(titled(row), "vdnn-dyn, on the host", row.offloaded_bytes / GB)
            yield Datum(titled(row), "vdnn-dyn, on the GPU at the peak", row.peak_bytes / GB, held)


DEEP_PICTURE = Marks(
    "Very deep networks: memory under vdnn-dyn", "planned with cuDNN 4 · dashed: the 12 GiB of a Titan X",
    "GB (2^30 bytes)", deep_marks, lines=(TITAN_X.memory_bytes / GB,),
)  # fmt: skip

GB_IS = "GB: 2^30 bytes."

PARTS = (
    Part("memory", "memory saved and offloaded under each policy", len(CONVENTIONAL) + 1, memory, MEMORY_TABLE,
         MEMORY_PICTURE, units=GB_IS),
    Part("performance", "performance lost under each policy", len(CONVENTIONAL) + 1, performance,
         performance_tables, PERFORMANCE_PICTURE, units="lost: 1 - T(all in memory) / T(vDNN)."),
    Part("ranges", "ten networks: memory needed and saved, performance lost", len(CONVENTIONAL) + len(DEEP), ranges,
         picture=RANGES_PICTURE, units=GB_IS),
    Part("reuse", "how long each layer's input waits for its second use", len(FIGURES.by("reuse")), reuse,
         picture=REUSE_PICTURE),
    Part("deep", "VGG with up to 416 layers, on the GPU and on the host", len(DEEP) + 1, deep, DEEP_TABLE,
         DEEP_PICTURE, units=GB_IS),
)  # fmt: skip

"""vDNN's figures, ours: the published ones, and its networks under every policy.

The conventions, the same for every network (C: a fit to the published savings, and not a proof):

- GB is 2^30 bytes.
- The memory of a step is its live maps and gradient maps, its workspace, and W and dW of all convolutions.
- The average and the peak are taken over the steps of the feature extraction, without the classifier (everything from
  the first fully connected layer on).
- Savings are shares of the network-wide total, classifier and the largest workspace of the fastest algorithms included.
- An oracle is the same GPU with memory enough for everything; performance is its time over the policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean

from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Layer, Network
from refimpl.network.accounting import network_wide_bytes
from refimpl.planner import Context, DoesNotFit, Program, Setup, plan
from refimpl.slots.baseline import NoOffload
from refimpl.studies.reproduce.evaluation import titled
from refimpl.studies.reproduce.published import Found, Published, Reproduced, Watch
from refimpl.studies.reproduce.vdnn import published
from refimpl.vdnn.offload import ALL, CONV, LITERAL
from refimpl.vdnn.presets import MEMORY, PERFORMANCE, VDNN_DYN, static

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
PAPER_TAKES = "conv (p)"  #: the paper's dyn on VGG-16(128), recalled; ours takes none (p), which fits


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
    weighted_bytes: float  #: the same average, steps weighted by how long they take
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
    def weighted_saving(self) -> float:
        return 1 - self.weighted_bytes / self.network_wide_bytes

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
            failure = f"{error.step or 'the resident tensors'}: {error.missing} missing"
            program = plan(self.network, policy, self.machine, UNLIMITED)
        timeline, memory = program.simulate(), step_memory(program)
        moments = {number: end - start for number, (start, end) in timeline.steps().items() if number in memory}
        return VdnnRow(
            network=self.network.name,
            batch=self.network.batch,
            policy=name,
            network_wide_bytes=self.total,
            adopted=program.setup.name.partition(": ")[2] if program.tried else "",
            failure=failure,
            average_bytes=mean(memory.values()),
            weighted_bytes=sum(memory[n] * moments[n] for n in moments) / sum(moments.values()),
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


def of_policy(policy: str, rows: Iterable[VdnnRow]) -> tuple[list[VdnnRow], str]:
    """A policy's rows, and the networks that do not fit under it."""
    mine = [row for row in rows if row.policy == policy]
    return mine, ", ".join(titled(row) for row in mine if row.failure)


# -- memory: the abstracts, Figures 11 and 12 --------------------------------------------------------------------------


def memory(watch: Watch) -> Found:
    """The memory of the conventional networks under every policy."""
    rows = under_policies(CONVENTIONAL, watch)
    every = {row.network: row for row in rows if row.policy == "all (m)"}
    middle, large = row_of(rows, "vgg16", 128, "all (m)"), row_of(rows, "vgg16", 256, "all (m)")
    watch("vgg16(128), the window read literally")
    literal = Oracle(build("vgg16", 128)).under("literal", POLICIES["all (m)"].replace(prefetch=LITERAL))
    note = "vDNN's accounting, workspaces of the modelled cuDNN 4"
    figures = [Reproduced(published.NETWORK_WIDE, large.network_wide_bytes / GB, note)]
    for saved, note in (
        (published.SAVED, "all (m), over the steps of the feature extraction"),
        (published.SAVED_FIRST, "the same; the abstract names no policy"),
    ):
        figures += [Reproduced(figure, 100 * every[network].average_saving, note) for network, figure in saved.items()]
    note = f"window conv; read literally, it is {literal.peak_bytes / GB:.2f}"
    figures.append(Reproduced(published.PEAK, middle.peak_bytes / GB, note))
    for policy, (highest, average) in published.MEAN_SAVED.items():
        mine, misfits = of_policy(policy, rows)
        note = f"{misfits}, which does not fit, on a larger GPU" if misfits else ""
        savings = [100 * mean(row.peak_saving for row in mine), 100 * mean(row.average_saving for row in mine)]
        notes = [note, note]
        if policy == "dyn":
            theirs = [row_of(rows, "vgg16", 128, PAPER_TAKES) if titled(row) == "vgg16(128)" else row for row in mine]
            means = mean(row.peak_saving for row in theirs), mean(row.average_saving for row in theirs)
            notes = [f"with {PAPER_TAKES} on vgg16(128), as in the paper, it is {100 * one:.1f}" for one in means]
        figures += [Reproduced(*one) for one in zip((highest, average), savings, notes, strict=True)]
    for (name, batch), figure in published.FEATURES.items():
        total, without = row_of(rows, name, batch, "dyn").network_wide_bytes, classifier_bytes(build(name, batch))
        figures.append(Reproduced(figure, 100 * (1 - without / total), "all but W, dW and maps of the classifier"))
    note = f"the batch is not copied out; in 10^9 bytes it is {large.offloaded_bytes / 1e9:.1f}"
    figures.append(Reproduced(published.OFFLOADED, large.offloaded_bytes / GB, note))
    return Found(figures, rows)


# -- performance: the abstracts, Figure 14 -----------------------------------------------------------------------------


def performance(watch: Watch) -> Found:
    """The performance of the conventional networks under every policy."""
    rows = under_policies(CONVENTIONAL, watch)
    watch("vgg16(256) on a K40")
    old = Oracle(build("vgg16", 256), K40).under("dyn", VDNN_DYN)
    figures = []
    for figure, row in ((published.LOST, row_of(rows, "vgg16", 256, "dyn")), (published.LOST_FIRST, old)):
        assert row.performance_lost is not None
        figures.append(Reproduced(figure, 100 * row.performance_lost, f"vdnn-dyn adopts {row.adopted}"))
    for policy, figure in published.MEAN_LOST.items():
        mine, misfits = of_policy(policy, rows)
        note = f"without {misfits}, which does not fit" if misfits else ""
        lost = {titled(row): row.performance_lost for row in mine if row.performance_lost is not None}
        most = max(lost, key=lost.__getitem__)
        figures += [
            Reproduced(figure, 100 * mean(lost.values()), note),
            Reproduced(published.MOST_LOST[policy], 100 * lost[most], most),
        ]
    middle = row_of(rows, "vgg16", 128, "all (m)")
    assert middle.performance_lost is not None
    figures.append(Reproduced(published.LOST_MIDDLE, 100 * middle.performance_lost, ""))
    reached = {titled(row): row.performance for row in rows if row.policy == "dyn"}
    shares = [share for share in reached.values() if share is not None]
    worst = next(name for name, share in reached.items() if share == min(shares))
    figures += [
        Reproduced(published.REACHED, 100 * mean(shares), ""),
        Reproduced(published.WORST, 100 * min(shares), worst),
    ]
    rate = max(row.link_rate for row in rows if row.link_rate)
    note = f"{rate / 1e9:.1f} of {TITAN_X.bandwidth / 1e9:.0f} GB/s, what copies reach; 16 is the link's peak"
    figures.append(Reproduced(published.COPIES, 100 * rate / TITAN_X.bandwidth, note))
    return Found(figures, rows)


# -- ten networks: the introduction ------------------------------------------------------------------------------------


def ranges(watch: Watch) -> Found:
    """The ranges of the introduction under the dynamic policy, over the networks whose total exceeds 12 GB."""
    rows = [row for row in under_policies((*CONVENTIONAL, *DEEP), watch) if row.policy == "dyn"]
    failing = [row for row in rows if row.network_wide_bytes > TITAN_X.memory_bytes]
    figures = [Reproduced(published.FAIL, len(failing), ", ".join(map(titled, failing)))]
    of: tuple[tuple[tuple[Published, Published], Callable[[VdnnRow], float]], ...] = (
        (published.NEEDED, lambda row: row.network_wide_bytes / GB),
        (published.RANGE_SAVED, lambda row: 100 * row.average_saving),
        (published.RANGE_LOST, lambda row: 100 * (row.performance_lost or 0)),
    )
    for both, value in of:
        for figure, pick in zip(both, (min, max), strict=True):
            row = pick(failing, key=value)
            note = f"{titled(row)}, {row.adopted}"
            if titled(row) == "vgg16(128)" and figure not in published.NEEDED:
                theirs = row_of(policies(row.network, row.batch), row.network, row.batch, PAPER_TAKES)
                note += f"; with {PAPER_TAKES}, as in the paper, it has {value(theirs):.1f}"
            figures.append(Reproduced(figure, value(row), note))
    return Found(figures, rows)


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
    for (name, batch), figure in published.REUSE.items():
        watch(f"{name}({batch})")
        rows += (mine := waits(build(name, batch)))
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


# -- very deep networks: Figure 15 -------------------------------------------------------------------------------------


def deep(watch: Watch) -> Found:
    """Memory on the GPU and on the host, and performance, as VGG-16 gets deeper."""
    rows = under_policies(DEEP, watch)
    watch("vgg16(32)")
    start = Oracle(build("vgg16", 32)).total
    last = row_of(rows, *DEEP[-1], "dyn")
    figures = [
        Reproduced(published.DEEP_TOTAL, last.network_wide_bytes / GB, "vDNN's accounting"),
        Reproduced(published.DEEP_GROWTH, last.network_wide_bytes / start, f"from {start / GB:.2f} GB"),
        Reproduced(
            published.DEEP_HELD, last.peak_bytes / GB, f"at the peak; on average {last.average_bytes / GB:.2f} GB"
        ),
    ]
    for network, figure in published.DEEP_HOST.items():
        share = row_of(rows, network, 32, "dyn").host_share
        figures.append(Reproduced(figure, 100 * share, "of the host's and the GPU's at the peak"))
    return Found(figures, rows)

"""vDNN's figures, ours: the published ones, and its networks under every policy.

The conventions, the same for every network: GB is 2^30 bytes.  "Memory" of a step is its live maps and gradient maps
with the workspace, and W and dW of the convolutions; the average is taken over the steps of the feature extraction,
the classifier (everything from the first fully connected layer on) left out.  It is compared with the network-wide
total, classifier included, and with the largest workspace of the fastest algorithms: a fit to the published savings,
and not a proof.  An oracle is the same GPU with unlimited memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.machine import MACHINES, Timeline
from refimpl.memory import UNLIMITED
from refimpl.network import Network
from refimpl.network.accounting import network_wide_bytes
from refimpl.network.zoo import build
from refimpl.planner import DoesNotFit, Program, Setup, StepRow, plan
from refimpl.planner.baseline import NoOffload
from refimpl.reproduce.published import Found, Reproduced, Watch
from refimpl.reproduce.vdnn import published
from refimpl.vdnn.offload import ALL, CONV
from refimpl.vdnn.prefetch import LITERAL
from refimpl.vdnn.presets import MEMORY, PERFORMANCE, VDNN_DYN, static

GB = 1 << 30
TITAN_X = MACHINES["titan-x"]

#: The paper's networks with their batches, the conventional ones and the very deep ones.
NETWORKS = (
    ("alexnet", 128), ("overfeat", 128), ("googlenet", 128), ("vgg16", 64), ("vgg16", 128), ("vgg16", 256),
    ("vgg116", 32), ("vgg216", 32), ("vgg316", 32), ("vgg416", 32),
)  # fmt: skip

ORACLE = static("none (p)", NoOffload(), PERFORMANCE)
POLICIES: tuple[tuple[str, Setup], ...] = (
    *((f"{name} ({mode[0]})", static(f"{name} ({mode[0]})", offload, algorithms))
      for name, offload in (("all", ALL), ("conv", CONV))
      for mode, algorithms in (("memory", MEMORY), ("performance", PERFORMANCE))),
    ("dyn", VDNN_DYN),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A network under a policy, on a Titan X of 12 GiB.  Bytes and seconds; shares of 1."""

    network: str
    batch: int
    policy: str
    network_wide_bytes: int
    fits: bool
    failure: str = ""
    adopted: str = ""  #: by the dynamic policy
    average_saving: float | None = None
    weighted_saving: float | None = None  #: the same average, steps weighted by how long they take
    peak_saving: float | None = None
    peak_bytes: int | None = None  #: of the steps that are averaged
    offloaded_bytes: int | None = None
    seconds: float | None = None
    flops_rate: float | None = None  #: operations a second while kernels ran: slow kernels make any policy look free
    link_rate: float | None = None  #: bytes a second of all copies
    slowdown: float | None = None  #: against the oracle; 0.18 is 18 % slower


class Measured:
    """A program with the paper's measures of it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.timeline: Timeline = program.simulate()
        network = program.network
        first = next(i for i, layer in enumerate(network.layers) if layer.kind == "fc")
        extraction = set(network.layers[:first])
        self.rows = [row for row in program.rows if row.step.layer in extraction]
        self.filters = sum(2 * p.weight.nbytes for layer, _, p in network.parameters() if layer.kind == "conv")

    def memory(self, row: StepRow) -> int:
        return row.live_bytes + row.workspace_bytes + self.filters

    @property
    def average(self) -> float:
        return sum(map(self.memory, self.rows)) / len(self.rows)

    @property
    def weighted(self) -> float:
        """The average over time."""
        seconds = {number: end - start for number, (start, end) in self.timeline.steps().items()}
        total = sum(seconds.get(row.step.number, 0.0) for row in self.rows)
        return sum(self.memory(row) * seconds.get(row.step.number, 0.0) for row in self.rows) / total

    @property
    def peak(self) -> int:
        return max(map(self.memory, self.rows))

    @property
    def live_peak(self) -> int:
        """Maps and gradient maps, W and dW, without workspaces; all layers."""
        return self.program.peak.live_bytes + self.filters


class Oracle:
    """A network on the GPU that holds everything, and the network-wide total."""

    def __init__(self, network: Network) -> None:
        program = plan(network, ORACLE, TITAN_X, UNLIMITED)
        self.network, self.seconds = network, program.simulate().seconds
        self.total = network_wide_bytes(network, max(row.workspace_bytes for row in program.rows))

    def under(self, name: str, policy: Setup, budget: int = TITAN_X.memory_bytes) -> Row:
        network = self.network
        try:
            program = plan(network, policy, TITAN_X, budget)
        except DoesNotFit as error:
            failure = f"{error.step or 'the resident tensors'}: {error.missing} missing"
            return Row(network.name, network.batch, name, self.total, False, failure)
        measured = Measured(program)
        return Row(
            network=network.name,
            batch=network.batch,
            policy=name,
            network_wide_bytes=self.total,
            fits=True,
            adopted=program.setup.name.partition(": ")[2] if program.tried else "",
            average_saving=1 - measured.average / self.total,
            weighted_saving=1 - measured.weighted / self.total,
            peak_saving=1 - measured.peak / self.total,
            peak_bytes=measured.peak,
            offloaded_bytes=program.counts.offloaded_bytes,
            seconds=measured.timeline.seconds,
            flops_rate=network.flops / measured.timeline.busy("compute"),
            link_rate=measured.timeline.link_rate(),
            slowdown=measured.timeline.seconds / self.seconds - 1,
        )


def networks(watch: Watch) -> Found:
    """Every network under every policy."""
    rows: list[Row] = []
    for name, batch in NETWORKS:
        watch(f"{name}({batch})")
        oracle = Oracle(build(name, batch))
        rows += [oracle.under(policy, setup) for policy, setup in POLICIES]
    return Found([], rows)


def reproduced(watch: Watch) -> Found:
    """The published figures, ours beside them."""
    watch("published figures")
    large, middle, alexnet = (Oracle(build(name, batch)) for name, batch in NETWORKS[5:3:-1] + NETWORKS[:1])
    saving = alexnet.under("all (m)", POLICIES[0][1]).average_saving
    dyn = large.under("dyn", VDNN_DYN)
    assert saving is not None and dyn.slowdown is not None
    every = static("all (m)", ALL)
    measured, literal = (
        Measured(plan(middle.network, setup, TITAN_X, UNLIMITED)) for setup in (every, every.replace(prefetch=LITERAL))
    )
    wide, peak = large.total / GB, measured.live_peak / GB
    as_printed = f"window conv; read literally, it is {literal.live_peak / GB:.2f}"
    worst = "the worst of the layers that were joined on both sides"
    figures = [
        Reproduced(published.NETWORK_WIDE, wide, "vDNN's accounting, workspaces of the modelled cuDNN 4"),
        Reproduced(published.AVERAGE_SAVING, 100 * saving, "over the steps of the feature extraction"),
        Reproduced(published.SLOWDOWN, 100 * dyn.slowdown, f"simulated; vdnn-dyn adopts {dyn.adopted}"),
        Reproduced(published.PEAK, peak, as_printed),
        Reproduced(published.LAYER_TIME, layer_time(measured), worst),
    ]
    return Found(figures, [])


def layer_time(measured: Measured) -> float:
    """Of the forward layers that moved something, as did the one before: the largest of time / max(compute, copy)."""
    compute: dict[int, float] = {}
    copies: dict[int, float] = {}
    starts: dict[int, float] = {}
    for span in measured.timeline.spans:
        number = span.instruction.step
        if span.instruction.op == "launch":
            starts.setdefault(number, span.start)
            compute[number] = compute.get(number, 0.0) + span.end - span.start
        else:
            copies[number] = copies.get(number, 0.0) + span.end - span.start
    last = measured.program.network.depth - 1
    both = [number for number in copies if 1 < number < last and number - 1 in copies]
    return max((starts[k + 1] - starts[k]) / max(compute[k], copies[k]) for k in both)

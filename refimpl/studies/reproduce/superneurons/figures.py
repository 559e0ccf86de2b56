"""SuperNeurons' published figures beside ours, and the rows of its evaluation: `refimpl reproduce superneurons`.

Each part of the evaluation is a function of a progress callback (`watch`) and returns the published figures with ours,
and rows of everything else.  Memory is the planner's own count of *live* bytes: managed tensors alone (no weights, no
workspace), just before a step runs.  Networks are those that the paper built
(`:superneurons`), on a K40c of 12 GiB.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Program, Setup, plan
from refimpl.slots.algorithms import MemoryOptimal
from refimpl.studies.reproduce.evaluation import MIB, moved_bytes
from refimpl.studies.reproduce.published import Found, Published, Reproduced, Watch
from refimpl.studies.reproduce.superneurons import published, traffic
from refimpl.superneurons import presets as stages
from refimpl.superneurons.offload import ALL_CHECKPOINTS
from refimpl.superneurons.presets import DynamicWorkspace
from refimpl.superneurons.recompute import COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC, RecomputeSegments

K40C = MACHINES["k40c"]
MB = 10**6  #: bytes, in Figure 2

#: The paper's GPUs.  We do not know on which its speeds were measured.  The faster a GPU, the more a driver call costs.
GPUS = (K40C, MACHINES["titan-xp"])

#: The paper's networks with the batches of its tables; where it has none, 32 images as for its ResNets.
NETWORKS = {
    "alexnet": 200, "vgg16": 32, "vgg19": 32, "inceptionv4": 32, "resnet50": 32, "resnet101": 32, "resnet152": 32,
}  # fmt: skip

#: The setups of the paper's memory curve.
CURVE: dict[str, Setup] = {
    "liveness": stages.liveness(),
    "offload": stages.offload(),
    "recompute": stages.recompute(),
}


#: Liveness analysis, and the fastest convolutions: with unlimited memory there is room for every workspace.
FASTEST = stages.liveness(DynamicWorkspace())


def network(name: str, batch: int | None = None) -> Network:
    """As SuperNeurons built it."""
    return build(f"{name}:superneurons", batch or NETWORKS[name])


def planned(network: Network, setup: Setup) -> Program:
    """With unlimited memory: the question is how much it needs."""
    return plan(network, setup, K40C, UNLIMITED)


# -- the memory curve --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CurveRow:
    """A step of AlexNet(200) under one setup: the memory alive, as published and ours."""

    setup: str
    step: int
    direction: str
    layer: str
    published_mib: float
    mib: float
    published_tensors: int
    tensors: int

    @property
    def met(self) -> bool:
        return abs(self.mib - self.published_mib) <= published.CLOSE_MIB and self.tensors == self.published_tensors


def curve(watch: Watch) -> Found:
    """The paper's best-known figure: AlexNet(200) step by step, technique upon technique."""
    alexnet = network("alexnet")
    points = published.curve()
    figures = [
        Reproduced(published.TOTAL, alexnet.managed_bytes / MIB, "every map and gradient map"),
        Reproduced(published.TENSORS, len(alexnet.managed), ""),
    ]
    rows: list[CurveRow] = []
    for name, setup in CURVE.items():
        watch(setup.name)
        program = planned(alexnet, setup)
        mine = [
            CurveRow(
                name, point.step, point.direction, row.step.layer.name, point.mib[name], row.live_bytes / MIB,
                point.tensors[name], row.live_tensors,
            )
            for point, row in zip(points, program.rows, strict=True)
        ]  # fmt: skip
        rows += mine
        apart = max(abs(row.mib - row.published_mib) for row in mine)
        figures += [
            Reproduced(published.PEAKS[name], program.peak.live_bytes / MIB, setup.name),
            Reproduced(published.PEAK_STEPS[name], program.peak.step.number, str(program.peak.step)),
            Reproduced(published.STEPS[name], sum(row.met for row in mine), f"{apart:.3f} MiB apart at most"),
        ]
        if name in published.PRINTED_PEAKS:
            figures.append(Reproduced(published.PRINTED_PEAKS[name], program.peak.live_bytes / MIB, setup.name))
    return Found(figures, rows)


# -- everything together -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TotalRow:
    """A network's memory if everything is allocated at once: the paper's Figure 2.  Bytes.

    The paper does not define its figure.  This sum gives all seven networks to 0.06 %: every map and gradient map, and
    every weight with its gradient and its momentum, where a FORK's first branch is its input, the other branches are
    copies, and a JOIN's output is its first input.
    """

    network: str
    batch: int
    tensor_bytes: int  #: maps and gradient maps, none twice where two are one by this rule
    weight_bytes: int  #: weights, gradients and momentum
    forward_workspace_bytes: int  #: of the fastest algorithm of every convolution's forward
    backward_workspace_bytes: int
    least_seconds: float  #: an iteration with the least workspaces, simulated
    fastest_seconds: float  #: with the fastest convolutions

    @property
    def memory_bytes(self) -> int:
        return self.tensor_bytes + self.weight_bytes

    @property
    def speed_up(self) -> float:
        """The speed with workspaces over the speed without."""
        return self.least_seconds / self.fastest_seconds


def total(watch: Watch) -> Found:
    """The memory of the networks, without and with the convolutions' workspaces, and what these buy."""
    rows, figures = [], []
    for name in NETWORKS:
        watch(name)
        row = total_row(name, network(name))
        rows.append(row)
        memory, with_workspaces = published.NETWORK_BYTES[name]
        forward = row.memory_bytes + row.forward_workspace_bytes
        note = f"forward alone; backward too: {(forward + row.backward_workspace_bytes) / MB:,.0f}"
        figures.append(Reproduced(memory, row.memory_bytes / MB, "weights × 3; no alias twice"))
        figures.append(Reproduced(with_workspaces, forward / MB, note))
        faster = "simulated on a K40c, with the fastest and the least workspaces"
        figures.append(Reproduced(published.FASTER_WITH_WORKSPACES[name], row.speed_up, faster))
    return Found(figures, rows)


def total_row(name: str, built: Network) -> TotalRow:
    workspaces = workspace_bytes(built)
    tensors, weights = tensor_and_weight_bytes(built)
    least, fastest = (planned(built, setup).planned_seconds for setup in (stages.liveness(), FASTEST))
    return TotalRow(name, built.batch, tensors, weights, workspaces["forward"], workspaces["backward"], least, fastest)


def workspace_bytes(built: Network) -> dict[str, int]:
    """Direction → bytes of the fastest algorithms' workspaces, added up."""
    found = {"forward": 0, "backward": 0}
    for step in built.steps:
        fastest = [K40C.choices(call)[0] for call in step.calls if call.choosable]
        found[step.direction] += sum(choice.workspace_bytes for choice in fastest)
    return found


def tensor_and_weight_bytes(built: Network) -> tuple[int, int]:
    """By the rule of Figure 2: all maps and gradient maps, no alias twice; and all weights, three times."""
    weights = sum(parameter.weight.nbytes for _, _, parameter in built.parameters())
    return built.managed_bytes - aliased_bytes(built), 3 * weights


def aliased_bytes(built: Network) -> int:
    """Bytes of the maps that are another map in the paper's Figure 2: FORKs' first branches and JOINs' outputs."""
    firsts = [layer.outputs[0] for layer in built.layers if layer.kind in ("fork", "join")]
    return sum(map.nbytes for map in firsts)


# -- memory of the networks --------------------------------------------------------------------------------------------

#: What is left of the total: setup by setup, the last with what no other one keeps.
LEFT: dict[str, Setup] = CURVE | {
    "both": stages.recompute().replace(name="recompute, offload all", offload=ALL_CHECKPOINTS),
}


@dataclass(frozen=True)
class MemoryRow:
    """A network's memory with everything allocated once, and the peaks under each setup.  Bytes."""

    network: str
    batch: int
    layers: int
    tensors: int
    managed_bytes: int
    kind_bytes: dict[str, int]  #: kind of layer → allocated by its steps
    resident_bytes: int
    largest_step_bytes: int  #: the most that one step uses: no setup can do with less
    peak_bytes: dict[str, int]  #: setup → the most that is alive


def memory(watch: Watch) -> Found:
    """Total memory, memory by type of layer, and what each technique leaves of it."""
    rows = []
    for name, batch in NETWORKS.items():
        watch(name)
        built = network(name)
        row = MemoryRow(
            network=name,
            batch=batch,
            layers=len(built.layers),
            tensors=len(built.managed),
            managed_bytes=built.managed_bytes,
            kind_bytes=allocated_by_kind(built),
            resident_bytes=built.resident_bytes,
            largest_step_bytes=max(sum(t.nbytes for t in step.uses if t.managed) for step in built.steps),
            peak_bytes={left: planned(built, setup).peak.live_bytes for left, setup in LEFT.items()},
        )
        rows.append(row)
    return Found([], rows)


def allocated_by_kind(network: Network) -> dict[str, int]:
    """Kind of layer → bytes that its steps allocate; each tensor once."""
    first = {tensor: step.layer.kind for step in reversed(network.steps) for tensor in step.writes if tensor.managed}
    found: Counter[str] = Counter()
    for tensor, kind in first.items():
        found[kind] += tensor.nbytes
    return dict(found)


# -- recomputation -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecomputeRow:
    """A network under one way of recomputing.  Bytes."""

    network: str
    batch: int
    strategy: str
    extra_runs: int
    resident_peak_bytes: int  #: with the checkpoints' outputs on the device
    resident_peak_layer: str  #: in whose backward
    offloaded_peak_bytes: int  #: with them on the host, each fetched when a step needs it
    offloaded_peak_layer: str
    offloaded_bytes: int


def recomputation(watch: Watch) -> Found:
    """Extra forward runs and peaks of the three ways."""
    figures: list[Reproduced] = []
    rows: list[RecomputeRow] = []
    for name, (extra_runs, peaks) in published.RECOMPUTED.items():
        watch(name)
        mine = [_recomputed(network(name), way) for way in (SPEED_CENTRIC, MEMORY_CENTRIC, COST_AWARE)]
        rows += mine
        figures += [Reproduced(theirs, row.extra_runs, "") for theirs, row in zip(extra_runs, mine, strict=True)]
        figures += [_peak(theirs, row) for theirs, row in zip(peaks, mine, strict=True)]
    return Found(figures, rows)


def _recomputed(built: Network, way: RecomputeSegments) -> RecomputeRow:
    stays = stages.recompute(way)
    here, away = planned(built, stays), planned(built, stays.replace(offload=ALL_CHECKPOINTS))
    return RecomputeRow(
        network=built.name.partition(":")[0],
        batch=built.batch,
        strategy=way.name,
        extra_runs=here.counts.recomputed_layers,
        resident_peak_bytes=here.peak.live_bytes,
        resident_peak_layer=here.peak.step.layer.name,
        offloaded_peak_bytes=away.peak.live_bytes,
        offloaded_peak_layer=away.peak.step.layer.name,
        offloaded_bytes=away.counts.offloaded_bytes,
    )


def _peak(theirs: Published, row: RecomputeRow) -> Reproduced:
    """AlexNet's published peaks are those with the checkpoints on the device, the ResNets' those with them away."""
    if row.network == "alexnet":
        return Reproduced(theirs, row.resident_peak_bytes / MIB, "checkpoints on the device")
    note = f"checkpoints away; on the device: {row.resident_peak_bytes / MIB:.1f}"
    return Reproduced(theirs, row.offloaded_peak_bytes / MIB, note)


# -- the tensor cache --------------------------------------------------------------------------------------------------

GB = 10**9  #: bytes, in the table of the cache; `refimpl.studies.reproduce.superneurons.traffic` says why


def cache(watch: Watch) -> Found:
    """Bytes moved with the cache and without, at the batches of the paper's table."""
    rows = list(traffic.rows(watch))
    figures = []
    for row in rows:
        note = f"CONV and FC, out and in; the fit: {row.without_fitted_bytes / GB:.2f}"
        figures.append(Reproduced(published.WITHOUT_CACHE[row.batch], row.without_bytes / GB, note))
    for row in rows:
        note = f"with nothing freed: {row.with_nothing_freed_bytes / GB:.2f}"
        figures.append(Reproduced(published.WITH_CACHE[row.batch], row.with_bytes / GB, note))
    return Found(figures, rows)


#: All techniques, the convolutions with the least workspace: else the pool is as full as it may be.
SMALL = stages.everything(algorithms=MemoryOptimal())

#: Networks whose budget shrinks, to shares of the memory that they take when nothing moves.
SHRUNK = ("vgg16", "inceptionv4", "resnet50", "resnet101")
SHARES = tuple(0.20 + 0.05 * step for step in range(18))


@dataclass(frozen=True)
class BudgetRow:
    """A network under all techniques within a budget.  Bytes."""

    network: str
    batch: int
    budget_bytes: int
    budget_share: float  #: of the memory that it takes when nothing moves, holes included
    moved_bytes: int
    managed_bytes: int  #: of every map and gradient map together
    hits: int
    misses: int
    evictions: int


def shrinking(watch: Watch) -> Found:
    """Bytes that the cache moves as the pool grows from the least that fits; a budget that does not fit has no row."""
    rows: list[BudgetRow] = []
    for name in SHRUNK:
        watch(name)
        built = network(name)
        most = planned(built, SMALL).arena_bytes
        shares = {-(-int(share * most) // MIB) * MIB: share for share in SHARES}
        for program in traffic.by_budget(built, shares, SMALL):
            share, counts = shares[program.budget], program.counts
            moved, hits = moved_bytes(program), (counts.hits, counts.misses, counts.evictions)
            rows.append(BudgetRow(name, built.batch, program.budget, share, moved, built.managed_bytes, *hits))
    return Found([], rows)

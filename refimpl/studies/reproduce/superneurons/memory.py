"""SuperNeurons' evaluation of memory: the curve of AlexNet(200), networks without and with each technique, rebuilding.

Memory is the planner's own count of *live* bytes: managed tensors alone (no weights, no workspace), just before a step
runs.  Networks are those that the paper built (`:superneurons`), on a K40c of 12 GiB.

`published.json` has the published figures.  MB is 2^20 bytes in the paper's memory figures, and 10^6 in its Figure 2.
`alexnet200.csv` has the published curve step by step: read off the vector figure, and calculated with the paper's
conventions; the two agree to 0.015 MiB.  The file has the calculated bytes (C), as 1132.056 MiB at step 39, where the
paper draws 1132.05 and prints 1132.155.  The text prints two peaks that differ from the paper's own curve and table, by
0.1 and 0.16 MiB.  The paper is Wang et al., PPoPP 2018, arXiv 1801.04380.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Launch, Program, Setup, plan
from refimpl.report.tables import Column, Table, plain
from refimpl.studies.reproduce.evaluation import MIB, Part, titled
from refimpl.studies.reproduce.pictures import Datum, Marks
from refimpl.studies.reproduce.published import Figures, Found, Reproduced, Watch, sized
from refimpl.superneurons import presets as stages
from refimpl.superneurons.offload import ALL_CHECKPOINTS
from refimpl.superneurons.presets import DynamicWorkspace
from refimpl.superneurons.recompute import COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC

FIGURES = Figures(__file__)
CLOSE_MIB = 0.02  #: of the curve; read off its vector figure to about 0.01

K40C = MACHINES["k40c"]
MB = 10**6  #: bytes, in Figure 2
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
        return abs(self.mib - self.published_mib) <= CLOSE_MIB and self.tensors == self.published_tensors


def published_curve() -> list[dict[str, str]]:
    """The 46 steps of AlexNet(200): MiB and tensors alive, by setup."""
    with open(Path(__file__).with_name("alexnet200.csv"), encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def curve(watch: Watch) -> Found:
    """The paper's best-known figure: AlexNet(200) step by step, technique upon technique."""
    alexnet = network("alexnet")
    figures = [
        Reproduced(FIGURES.one("total"), alexnet.managed_bytes / MIB, "every map and gradient map"),
        Reproduced(FIGURES.one("tensors"), len(alexnet.managed), ""),
    ]
    rows: list[CurveRow] = []
    for name, setup in CURVE.items():
        watch(setup.name)
        program = planned(alexnet, setup)
        mine = [
            CurveRow(
                name, row.step.number, row.step.direction, row.step.layer.name, float(point[f"{name}_mib"]),
                row.live_bytes / MIB, int(point[f"{name}_tensors"]), row.live_tensors,
            )
            for point, row in zip(published_curve(), program.rows, strict=True)
        ]  # fmt: skip
        rows += mine
        top, apart = program.peak, max(abs(row.mib - row.published_mib) for row in mine)
        figures += [
            Reproduced(FIGURES.one(f"peak {name}"), top.live_bytes / MIB, setup.name),
            Reproduced(FIGURES.one(f"peak step {name}"), top.step.number, str(top.step)),
            Reproduced(FIGURES.one(f"steps {name}"), sum(row.met for row in mine), f"{apart:.3f} MiB apart at most"),
        ]
        if name != "liveness":
            figures.append(Reproduced(FIGURES.one(f"printed peak {name}"), top.live_bytes / MIB, setup.name))
    return Found(figures, rows)


def curve_tables(rows: Sequence[CurveRow]) -> list[Table]:
    """The 46 steps under the three setups: MiB as published and ours, and tensors."""
    steps: dict[int, dict[str, CurveRow]] = {}
    for row in rows:
        steps.setdefault(row.step, {})[row.setup] = row

    def of(setup: str) -> tuple[Column, Column, Column]:
        return (
            Column(setup, lambda found: found[setup].published_mib, "{:.3f}".format),
            Column("ours", lambda found: found[setup], lambda row: f"{row.mib:.3f}{'' if row.met else ' !'}"),
            Column("n", lambda found: found[setup],
                   lambda row: f"{row.tensors}{'' if row.tensors == row.published_tensors else '≠'}"),
        )  # fmt: skip

    columns = (
        Column("step", lambda found: found["liveness"].step, plain),
        Column("layer", lambda found: found["liveness"].layer.upper()),
        Column("", lambda found: found["liveness"].direction[0]), *of("liveness"), *of("offload"), *of("recompute"),
    )  # fmt: skip
    note = (
        "Live MiB just before each step, published and ours, and n tensors alive.  offload: liveness, offload and "
        "prefetch.  recompute: liveness and cost-aware recomputation, checkpoints on the device.  !: more than "
        f"{CLOSE_MIB} MiB apart; ≠: another number of tensors than published."
    )
    return [Table.of("AlexNet(200), step by step", steps.values(), columns, note)]


def curve_marks(rows: Sequence[CurveRow]) -> Iterator[Datum]:
    for row in rows:
        step = f"{row.step} {row.layer.upper()}"
        yield Datum(step, row.setup, row.mib, row.published_mib, "MiB alive just before the step")
        yield Datum(step, row.setup, row.tensors, row.published_tensors, "tensors alive")


CURVE_PICTURE = Marks(
    "What SuperNeurons' techniques leave of AlexNet's memory, step by step",
    "alexnet:superneurons, batch 200 · the planner's count; white: the paper's figure · offload: liveness, offload and "
    "prefetch", "alive", curve_marks, "points", size=(12, 4),
)  # fmt: skip

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
        forward = row.memory_bytes + row.forward_workspace_bytes
        note = f"forward alone; backward too: {(forward + row.backward_workspace_bytes) / MB:,.0f}"
        faster = "simulated on a K40c, with the fastest and the least workspaces"
        memory, with_workspaces = FIGURES.by("memory"), FIGURES.by("memory with workspaces")
        figures += [
            Reproduced(memory[titled(row)], row.memory_bytes / MB, "weights × 3; no alias twice"),
            Reproduced(with_workspaces[titled(row)], forward / MB, note),
            Reproduced(FIGURES.by("faster with workspaces")[name], row.speed_up, faster),
        ]
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
    aliased = [layer.outputs[0] for layer in built.layers if layer.kind in ("fork", "join")]
    return built.managed_bytes - sum(map.nbytes for map in aliased), 3 * weights


def total_marks(rows: Sequence[TotalRow]) -> Iterator[Datum]:
    for row in rows:
        memory, with_workspaces = (FIGURES.by(f"memory{rest}")[titled(row)] for rest in ("", " with workspaces"))
        forward = row.memory_bytes + row.forward_workspace_bytes
        yield Datum(titled(row), "memory", row.memory_bytes / 1e9, memory.value / 1e3)
        yield Datum(titled(row), "with workspaces, forward", forward / 1e9, with_workspaces.value / 1e3)
        yield Datum(titled(row), "with workspaces, both ways", (forward + row.backward_workspace_bytes) / 1e9)


TOTAL_PICTURE = Marks(
    "What SuperNeurons' networks take if everything is allocated at once",
    "maps, gradient maps, weights with gradients and momentum · workspaces of the fastest convolutions, K40c",
    "GB (10⁹ bytes)", total_marks,
)  # fmt: skip

# -- time and memory by type of layer ----------------------------------------------------------------------------------

#: Kind of layer → the paper's name of its type, without the structure layers.
TYPES = {
    "conv": "CONV", "pool": "POOL", "relu": "ACT", "lrn": "LRN", "batchnorm": "BN", "fc": "FC", "dropout": "DROPOUT",
    "softmax": "SOFTMAX",
}  # fmt: skip
STRUCTURE = "structure"  #: the type of FORK, JOIN and CONCAT; its networks have no other kinds

#: Seconds of each call of a library, fitted to Figure 8a (least squares, in percentage points), one for all networks.
#: In the paper a layer of a cheap type takes the same time whatever its bytes.  It is no cost of the GPU: with it an
#: iteration of ResNet-50 would take 16 s, where Table 2 has half a second.  So it is used here alone, and beside ours:
#: what is fitted to a figure does not meet it.
CALL_SECONDS = 0.02761

#: Kernel → the calls of cuDNN or cuBLAS in its place, where these are not one (R).  A CONV and an FC have five:
#: forward, its bias, and the gradients of bias, weights and map.  Weights are updated after the layers.
LIBRARY_CALLS = {
    "conv.forward": 2, "conv.backward_filter": 2, "conv.backward_bias": 0,
    "fc.forward": 2, "fc.backward_filter": 2, "fc.backward_bias": 0,
    "batchnorm.update_running": 0, "softmax.cross_entropy": 0, "sgd.update": 0,
}  # fmt: skip


@dataclass(frozen=True)
class TypeRow:
    """A network's time and memory by type of layer (§4, Figure 8), with no technique but liveness analysis.

    A type's memory is the paper's: the bytes that the forward step of a layer needs, and those that its backward step
    needs, added up over the type's layers without FORK, JOIN and CONCAT; a tensor that several steps need counts for
    each.  With this rule the shares of all networks but AlexNet are the published ones.  AlexNet's would be, if LRN had
    a gradient of its own (4.8 % of the total); in the paper's memory curve it is in place.

    A type's time is that of its layers' kernels.  Structure layers count, and are not drawn: the published shares of a
    network with forks add up to 88 to 91 %.
    """

    network: str
    batch: int
    kernel_seconds: dict[str, float]  #: type → in its kernels in an iteration, simulated; structure layers too
    calls: dict[str, int]  #: type → calls of a library, likewise
    needed_bytes: dict[str, int]  #: type → the sum of what the steps of its layers need; no structure layers

    @property
    def seconds(self) -> dict[str, float]:
        """Type → seconds, with the fitted cost of each call of a library."""
        return {name: found + CALL_SECONDS * self.calls[name] for name, found in self.kernel_seconds.items()}


def share(parts: Mapping[str, float], part: str) -> float:
    """Per cent of the sum."""
    return 100 * parts[part] / sum(parts.values())


def library_calls(network: Network) -> int:
    """How many calls of a library the paper's runtime makes in an iteration that rebuilds nothing."""
    return sum(LIBRARY_CALLS.get(call.function, 1) for step in network.steps for call in step.calls)


def type_row(name: str) -> TypeRow:
    """A network on a K40c with the fastest convolutions."""
    built = network(name)
    seconds = dict.fromkeys([*TYPES.values(), STRUCTURE], 0.0)
    calls, needed = dict.fromkeys(seconds, 0), dict.fromkeys(TYPES.values(), 0)
    for span in planned(built, FASTEST).simulate().spans:
        if isinstance(span.instruction, Launch):
            layer = built.steps[span.instruction.step - 1].layer
            seconds[TYPES.get(layer.kind, STRUCTURE)] += span.end - span.start
    for step in built.steps:
        kind = TYPES.get(step.layer.kind, STRUCTURE)
        calls[kind] += sum(LIBRARY_CALLS.get(call.function, 1) for call in step.calls)
        if kind in needed:
            needed[kind] += sum(tensor.nbytes for tensor in step.uses)
    return TypeRow(name, built.batch, seconds, calls, needed)


def types(watch: Watch) -> Found:
    """The paper's Figure 8."""
    rows = []
    for name in NETWORKS:
        watch(name)
        rows.append(type_row(name))
    times, needs = FIGURES.by_two("time shares"), FIGURES.by_two("memory shares")
    figures = [
        Reproduced(figure, share(row.kernel_seconds, kind), f"with a cost fitted to it: {share(row.seconds, kind):.1f}")
        for row in rows
        for kind, figure in times.get(row.network, {}).items()
    ]
    figures += [
        Reproduced(figure, share(row.needed_bytes, kind), "")
        for row in rows
        for kind, figure in needs.get(row.network, {}).items()
    ]
    return Found(figures, rows)


def type_marks(rows: Sequence[TypeRow]) -> Iterator[Datum]:
    for row in rows:
        for name, how, parts in (
            ("time", "", row.kernel_seconds), ("time", ", with a cost a call fitted to it", row.seconds),
            ("memory", "", row.needed_bytes),
        ):  # fmt: skip
            theirs = FIGURES.by_two(f"{name} shares").get(row.network, {})
            for kind in TYPES.values():
                known, panel = theirs.get(kind), f"share of {name}{how}"
                yield Datum(titled(row), kind, share(parts, kind), known.value if known else None, panel)


TYPES_PICTURE = Marks(
    "Time and memory of SuperNeurons' networks by type of layer", "time simulated on a K40c · white: published",
    "%", type_marks, text=lambda share: f"{share:.0f}" if share >= 6 else "",
)  # fmt: skip

# -- recomputation -----------------------------------------------------------------------------------------------------


def recomputation(watch: Watch) -> Found:
    """Extra forward runs and peaks of the three ways.

    AlexNet's published peaks are those with the checkpoints on the device, the ResNets' those with them away.
    """
    runs: list[Reproduced] = []
    peaks: list[Reproduced] = []
    ways = {way.name: stages.recompute(way) for way in (SPEED_CENTRIC, MEMORY_CENTRIC, COST_AWARE)}
    for key, figures in FIGURES.by_two("extra runs").items():
        watch(key)
        built = network(*sized(key))
        for way, setup in ways.items():
            here, away = planned(built, setup), planned(built, setup.replace(offload=ALL_CHECKPOINTS))
            runs.append(Reproduced(figures[way], here.counts.recomputed_layers, ""))
            resident, offloaded = here.peak.live_bytes / MIB, away.peak.live_bytes / MIB
            theirs = FIGURES.by_two("rebuilt peaks")[key][way]
            if key.startswith("alexnet"):
                peaks.append(Reproduced(theirs, resident, "checkpoints on the device"))
            else:
                peaks.append(Reproduced(theirs, offloaded, f"checkpoints away; on the device: {resident:.1f}"))
    return Found(runs + peaks, [])


PARTS = (
    Part("curve", "the memory curve of AlexNet(200)", len(CURVE), curve, curve_tables, CURVE_PICTURE),
    Part("total", "memory of the networks, without and with workspaces", len(NETWORKS), total,
         picture=TOTAL_PICTURE, units="MB: 10^6 bytes."),
    Part("types", "time and memory by type of layer", len(NETWORKS), types, picture=TYPES_PICTURE),
    Part("recompute", "extra runs and peaks of the three ways", len(FIGURES.by("extra runs")), recomputation),
)  # fmt: skip

"""The capacity of 12 GB: SuperNeurons' largest batches with their memory, and its deepest ResNet, under each technique.

To fit is to be planned within 12 GiB by the planner, with everything that trains counted: weights, their gradients and
momentum, the batch, maps, gradient maps, workspaces, rounding and holes.  Batches and depths are tried until one fits
and the next does not; as fitting is not monotone, a larger one that was not tried may fit too (`registry.largest`).

Host memory has no end here, and with the cache nothing but one step's tensors must be on the device at a time.  The
published batches of the ResNets are far smaller than those that then fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from refimpl.machine import Machine
from refimpl.names.largest_batch import Largest, attempt, largest
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Setup
from refimpl.report.tables import Column, Table, plain
from refimpl.slots.baseline import NetworkWide
from refimpl.studies.reproduce.evaluation import GIB, Part
from refimpl.studies.reproduce.published import Found, Published, Reproduced, Watch, sized
from refimpl.studies.reproduce.superneurons.memory import (
    FIGURES,
    K40C,
    network,
    tensor_and_weight_bytes,
    workspace_bytes,
)
from refimpl.superneurons import presets as stages
from refimpl.zoo.resnet import SHALLOWEST_DEEP

BUDGET = 12 << 30  #: bytes

NETWORKS = ("alexnet", "vgg16", "vgg19", "inceptionv4", "resnet50", "resnet101", "resnet152")
DEEP = "resnet:DEPTH"
DEEP_BATCH = 16  #: images
UNITS_OF_2500 = 789  #: of the third group: 2501 layers; the family has no depth of 2500

ALL = "all"

#: Each technique beside the baseline, which is the same heap and the same algorithms without any of them; then all.
SETUPS: dict[str, Setup] = {
    "baseline": stages.liveness().replace(name="baseline", liveness=NetworkWide()),
    "liveness": stages.liveness(),
    "offload": stages.offload(),
    "recompute": stages.recompute(),
    ALL: stages.everything(),
}
GB = 10**9  #: bytes, in Figure 13 as in Figure 2

ROUNDS = len(NETWORKS) + len(SETUPS) + 1  #: things that `capacity` announces
STEP = 16  #: images; the published batches are multiples of it


@dataclass(frozen=True)
class CapacityRow:
    """The largest batch of a network, or the deepest ResNet, under one setup on a K40c of 12 GiB.  Bytes."""

    network: str
    batch: int  #: images; for the deepest ResNet a constant
    depth: int | None  #: layers, of the deepest ResNet alone
    setup: str
    resident_bytes: int  #: of the 12 GiB: weights, their gradients, momentum, statistics and the batch
    peak_bytes: int  #: held by the pool at most, resident tensors included
    images_a_second: float  #: as planned, hence simulated
    published: Published | None = None  #: SuperNeurons' figure, beside all techniques

    @property
    def largest(self) -> int:
        """Images, or layers of the deepest ResNet; 0 where not even one image fits."""
        return self.batch if self.depth is None else self.depth


def largest_batch(name: str, setup: Setup, machine: Machine = K40C, budget: int = BUDGET) -> Largest:
    """The largest batch of a named network that fits `budget` bytes."""
    return largest(partial(build, name), setup, machine, budget)


def deepest(setup: Setup, budget: int = BUDGET, batch: int = DEEP_BATCH) -> Largest:
    """The deepest ResNet of SuperNeurons' family; its size counts the units of the third group, from 1."""
    return largest(partial(deep, batch=batch), setup, K40C, budget)


def depth_of(units: int) -> int:
    """Layers, with `units` units in the third group: 3 (6 + 32 + units + 6) + 2."""
    return SHALLOWEST_DEEP + 3 * (units - 1)


def deep(units: int, batch: int = DEEP_BATCH) -> Network:
    """As SuperNeurons built it."""
    return build(f"resnet:{depth_of(units)}:superneurons", batch)


def rows(watch: Watch = lambda name: None) -> Iterator[CapacityRow]:
    """Every network under every setup, then the deepest ResNet."""
    for name in NETWORKS:
        watch(name)
        for setup_name, setup in SETUPS.items():
            theirs = FIGURES.by("largest batch").get(name) if setup_name == ALL else None
            yield _row(name, setup_name, largest_batch(f"{name}:superneurons", setup), theirs)
    for setup_name, setup in SETUPS.items():
        watch(f"{DEEP}, {setup_name}")
        yield _row(DEEP, setup_name, deepest(setup), FIGURES.one("deepest") if setup_name == ALL else None)


def _row(network: str, setup: str, found: Largest, theirs: Published | None = None) -> CapacityRow:
    batch, depth = found.size, None
    if network == DEEP:
        batch, depth = DEEP_BATCH, depth_of(found.size) if found.size else 0
    figures, program = (0, 0, 0.0), found.program
    if program:
        figures = program.network.resident_bytes, program.peak_bytes, program.network.batch / program.planned_seconds
    return CapacityRow(network, batch, depth, setup, *figures, theirs)


# -- beside the published figures --------------------------------------------------------------------------------------


def capacity(watch: Watch = lambda name: None) -> Found:
    """The published figures with ours, and all rows."""
    found = list(rows(watch))
    figures = [Reproduced(row.published, row.largest, note(row)) for row in found if row.published is not None]
    others = max(FIGURES.data["deepest of others"])
    figures.append(Reproduced(FIGURES.one("deeper"), found[-1].largest / others, f"over {others} layers, published"))
    watch("ResNet2500")
    return Found([*figures, resnet2500()], found)


def resnet2500() -> Reproduced:
    """The abstract's ResNet2500: the first network of the deep family that has as many layers, under all techniques."""
    network = deep(UNITS_OF_2500)
    program = attempt(network, SETUPS[ALL], K40C, BUDGET)
    if program is None:
        return Reproduced(FIGURES.one("basic layers"), 0, f"{network.name} does not fit")
    peak, host = program.peak_bytes / GIB, program.pinned_bytes / GIB
    note = f"{network.name}, {network.batch} images: {peak:.1f} GiB of the device, {host:.1f} GiB of the host"
    return Reproduced(FIGURES.one("basic layers"), len(network.layers), note)


def note(row: CapacityRow) -> str:
    """How ours was found, in a few words."""
    if row.depth is not None:
        return f"{row.resident_bytes / GIB:.1f} GiB are weights, gradients and momentum"
    return f"in steps of {STEP}: {row.batch // STEP * STEP}"


def largest_tables(rows: Sequence[CapacityRow]) -> list[Table]:
    """The largest batch and the deepest ResNet under each setup."""
    found: dict[str, dict[str, CapacityRow]] = {}
    for row in rows:
        found.setdefault(row.network, {})[row.setup] = row

    def largest(setup: str) -> Column:
        return Column(setup, lambda line: line[1][setup].largest if setup in line[1] else "", plain)

    def theirs(line: tuple[str, dict[str, CapacityRow]]) -> float | None:
        return next((row.published.value for row in line[1].values() if row.published), None)

    deep = f"layers ({DEEP_BATCH} images)"
    columns = (
        Column("images", lambda line: deep if line[0] == DEEP else line[0]),
        *map(largest, dict.fromkeys(row.setup for row in rows)),
        Column("published", theirs, "{:g}".format),
    )  # fmt: skip
    deepest = zip(FIGURES.data["others"], FIGURES.data["deepest of others"], strict=True)
    others = "; ".join(
        f"{network} {', '.join('–' if n is None else str(n) for n in them)}"
        for network, them in FIGURES.data["largest batch of others"].items()
    )
    note = (
        "The largest that was tried within 12 GiB of a K40c, everything that trains counted.  baseline: nothing is "
        "freed before the iteration ends.  The next three are one technique each on top of liveness analysis.  Host "
        "memory has no end.  "
        f"With 12 GB others reached, in images: {others} (Caffe, MXNet, Torch, TensorFlow); "
        f"in layers: {', '.join(f'{who} {n}' for who, n in deepest)}."
    )
    return [Table.of("The largest batches and the deepest ResNet in 12 GiB", found.items(), columns, note)]


# -- memory at the largest batches: Figure 13 --------------------------------------------------------------------------


def costs(watch: Watch) -> Found:
    """SuperNeurons' own bars: memory as in Figure 2, with the fastest algorithm's workspace of every forward CONV."""
    found = []
    for key, figure in FIGURES.by("memory at the largest").items():
        watch(key)
        built = network(*sized(key))
        memory, workspaces = sum(tensor_and_weight_bytes(built)), workspace_bytes(built)["forward"]
        note = f"as in Figure 2; without workspaces: {memory / GB:.1f}"
        found.append(Reproduced(figure, (memory + workspaces) / GB, note))
    return Found(found, [])


PARTS = (
    Part("largest", "the largest batches and the deepest ResNet in 12 GiB", ROUNDS, capacity, largest_tables),
    Part("largest-memory", "memory at the largest batches", len(FIGURES.by("memory at the largest")), costs,
         units="GB: 10^9 bytes."),
)  # fmt: skip

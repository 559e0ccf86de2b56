"""The authors' microbenchmark: does the copy of a layer's input fit under the layer's kernels?

`conv_time` of the authors' public code (mark S) times a convolution, its bias and its ReLU, for filters of 1×1, 3×3, …,
19×19, then a max pool, and the copy of the same input to pinned memory: 128 images with 128 maps of 112².  Where the
copy takes longer, vDNN's join makes the next layer wait for the rest of it.  vDNN++ exists for these layers.

The code has no results with it, so there is nothing published to compare with.  Ours are those of a machine's model,
or measured on this computer by `refimpl reproduce vdnnpp --run`, with our own kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from refimpl.machine import MACHINES, Choice, Machine
from refimpl.machine.devices import Device
from refimpl.machine.measure import Bench
from refimpl.machine.timing import least_in_turns
from refimpl.network import VDNNPP, Call, Network
from refimpl.network.builder import PapersBuilder
from refimpl.network.parts import classified
from refimpl.report.tables import Column, Table
from refimpl.studies.reproduce.published import Found, Watch
from refimpl.text import duration, size

FILTERS = range(1, 20, 2)  #: height and width
LAYERS = len(FILTERS) + 1  #: the convolutions, and the pool
IMAGES, CHANNELS, SIDE = 128, 128, 112
SMALL = (2, 16, 56)  #: the same three where a CPU computes
MACHINE_NAMES = ("gtx-970", "titan-x")
TURNS, LIMIT_SECONDS = 5, 1.0  #: of the timing of one call


def network(images: int = IMAGES, channels: int = CHANNELS, side: int = SIDE) -> Network:
    """All layers of the microbenchmark as one chain, so that they have equal inputs."""
    b = PapersBuilder("conv-time", (images, channels, side, side), VDNNPP)
    for width in FILTERS:
        b.conv(channels, width, pad=width // 2, name=f"conv {width}×{width}")
        b.relu()
    b.pool(2, name="pool 2×2")
    return classified(b, 2)


@dataclass(frozen=True)
class HidingRow:
    """A layer's forward beside the copy of its input to the host, each alone."""

    device: str
    layer: str
    algorithm: str  #: of the convolution
    workspace_bytes: int
    kernel_seconds: float  #: bias and ReLU included
    copy_seconds: float

    @property
    def wait_seconds(self) -> float:
        """How long vDNN's join makes the next layer wait."""
        return max(0.0, self.copy_seconds - self.kernel_seconds)


def rows(
    device: str, timed: Network, fastest: Callable[[Call], Choice], copy_seconds: float, watch: Watch
) -> Iterator[HidingRow]:
    """A row for each layer.

    Args:
        device: its name.
        timed: `network()`, of any size.
        fastest: the fastest way to run a call on the device.
        copy_seconds: of the copy of a layer's input to pinned memory.
        watch: is called with every layer's name.
    """
    for step in timed.steps[:LAYERS]:
        watch(f"{device}, {step.layer.name}")
        calls = [fastest(call) for call in step.calls]
        chosen = calls[0]  # the ReLU has no algorithms
        seconds = sum(call.seconds for call in calls)
        yield HidingRow(device, step.layer.name, chosen.algorithm, chosen.workspace_bytes, seconds, copy_seconds)


def simulated(watch: Watch) -> Found:
    """On the models of both GPUs."""
    timed = network()
    found: list[HidingRow] = []
    for name in MACHINE_NAMES:
        machine = MACHINES[name]
        copy_seconds = machine.copy_seconds(timed.input.nbytes, "out")
        found += rows(name, timed, partial(modelled, machine), copy_seconds, watch)
    return Found([], found)


def modelled(machine: Machine, call: Call) -> Choice:
    """The fastest algorithm whose workspace fits the machine's memory beside the call's tensors."""
    if not call.choosable:
        return Choice("", 0, machine.seconds(call))
    room = machine.memory_bytes - sum(tensor.nbytes for tensor in call.operands)
    return next(choice for choice in machine.choices(call) if choice.workspace_bytes <= room)


def measured(device: Device, timed: Network, watch: Watch = lambda doing: None) -> Iterator[HidingRow]:
    """On this computer, with our kernels; of several turns the fastest."""
    bench = Bench(device, timed)
    copy = device.copy("out", timed.input.nbytes // 4)
    copy()
    copy_seconds = least_in_turns({"copy": copy}, device.seconds, TURNS)["copy"]

    def fastest(call: Call) -> Choice:
        option, seconds = min(bench.time(call, TURNS, LIMIT_SECONDS), key=lambda way: way[1])
        return Choice(option.algorithm, option.workspace_bytes, seconds) if option else Choice("", 0, seconds)

    return rows(device.name, timed, fastest, copy_seconds, watch)


HIDING = (
    Column("layer", "layer"), Column("algorithm", lambda row: row.algorithm or None),
    Column("workspace", lambda row: row.workspace_bytes or None, size), Column("kernels", "kernel_seconds", duration),
    Column("copy", "copy_seconds", duration), Column("vDNN waits", lambda row: row.wait_seconds or None, duration),
)  # fmt: skip


def hiding_table(device: str, rows: Sequence[HidingRow], note: str = "") -> Table:
    return Table.of(f"A layer's forward beside the copy of its input, on {device}", rows, HIDING, note)

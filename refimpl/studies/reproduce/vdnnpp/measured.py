"""vDNN++ on this computer: its iteration against vDNN's, its pinned memory, the maps that its threads compress.

- The iteration (§1): the same network and maps under vDNN, under vDNN++ with the maps left as they are, and under
  vDNN++ with them compressed; and with everything held, where that fits.  All with the same algorithms, call by call.
- The pinned memory (§4): one buffer a map, buffers on demand, and those with compression; and the bytes of each
  compressed map.
- The speed of compressing: maps of several densities there and back, beside a plain copy by the same threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from refimpl.cli.compressed import compressed_table
from refimpl.machine import timing
from refimpl.machine.devices import device_at_hand
from refimpl.names import by_name, presets
from refimpl.names.largest_batch import attempt
from refimpl.names.modules import module
from refimpl.planner import Program, Setup, SetupError
from refimpl.report.tables import Column, Table, percent, plain
from refimpl.studies.reproduce import measured
from refimpl.studies.reproduce.measured import Measurement, Request, Run, gigabytes, side_by_side
from refimpl.studies.reproduce.published import Watch
from refimpl.studies.reproduce.vdnnpp.figures import readings
from refimpl.text import counted, duration, offer, size
from refimpl.vdnnpp import packing

NETWORK, BATCH = "vgg16:vdnnpp", 128
RIVALS = {"vdnnpp-all": "vdnn-all", "vdnnpp-conv": "vdnn-conv"}  #: preset → vDNN's that offloads the same layers' maps
DENSITIES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
MAP_BYTES = 32 << 20  #: of a map whose compressing is timed: more than caches hold
TRIES = 5


@dataclass(frozen=True)
class Speed:
    """The host's threads together.  Bytes of the map a second, the best of some tries."""

    density: float  #: share of numbers that are not zero
    copy: float  #: reading and writing it, as it is
    compress: float
    decompress: float

    @property
    def both(self) -> float:
        """A map compressed and decompressed again."""
        return 1 / (1 / self.compress + 1 / self.decompress)


@dataclass(frozen=True, kw_only=True)
class MeasuredVdnnpp(Measurement):
    """All three."""

    backend: str
    batch: int
    budget_bytes: int
    threads: int  #: that compress
    vdnn: Run
    on_demand: Run  #: vDNN++ with the maps left as they are
    compressed: Run
    held: Run | None  #: nothing moves; None where it does not fit the device
    speeds: tuple[Speed, ...]

    def runs(self) -> tuple[Run, ...]:
        return (self.vdnn, self.on_demand, self.compressed, *((self.held,) if self.held else ()))

    @property
    def readings(self) -> dict[str, dict[str, float | None]]:
        """Setup → the three readings of a speed-up over vDNN, of the whole iteration."""
        theirs, held = self.vdnn.seconds, self.held.seconds if self.held else self.vdnn.seconds
        names = ("speed-up", "cut of time", "cut of overhead")
        return {
            ours.setup: dict(zip(names, readings(theirs, ours.seconds, held).values(), strict=True))
            for ours in (self.on_demand, self.compressed)
        }

    def tables(self) -> list[Table]:
        what = f"{self.network}({self.batch}) within {size(self.budget_bytes)}"
        threads, shares = counted(self.threads, "thread"), self.readings

        def share(name: str, run: Run) -> float | None:
            return shares.get(run.setup, {}).get(name)

        more = (
            Column("no kernel running", "stall_seconds", duration), Column("pinned memory", "pinned_bytes", size),
            Column("stored compressed", lambda run: sum(one.stored for one in run.compressed) or None, size),
            *(Column(f"over vDNN, {name}", partial(share, name), percent) for name in shares[self.on_demand.setup]),
        )  # fmt: skip
        runs = side_by_side(f"{what}: vDNN, and vDNN++ without and with compression", self.runs(), more)
        title = f"{what}: the maps that {threads} compressed in the last iteration"
        maps = self.compressed.compressed
        compressed = [compressed_table(maps, title)] if maps else []
        return [runs, *compressed, speed_table(self.speeds, self.threads)]

    def notes(self) -> list[str]:
        notes = {
            "Not measured: the same with everything held; the device cannot hold it.": self.held is None,
            "No map was compressed: by the plan the host's threads are too slow to be done in time.":
                not self.compressed.compressed,
            "On a CPU copies are made in their turn, within one memory: the cost of vDNN's join does not show there.":
                self.backend == "cpu",
        }  # fmt: skip
        return [note for note, applies in notes.items() if applies]


def rounds(backend: str, iterations: int) -> int:
    """How often `measure` calls its progress callback, where everything fits."""
    return 4 * iterations + len(DENSITIES)


def measure(ask: Request) -> MeasuredVdnnpp:
    """All three.  Without a network of its own: 128 images of VGG-16."""
    if ask.policy not in RIVALS:
        raise SetupError(f"{ask.policy} has no counterpart in vDNN to be measured against{offer(ask.policy, RIVALS)}")
    network, machine = ask.build(NETWORK, BATCH), ask.machine
    nbytes = by_name.budget_bytes(ask.budget, network, machine)

    def planned(wanted: Setup) -> Program:
        made = by_name.plan(network, wanted, machine, nbytes)
        made.verify()
        return made

    ours, theirs = presets.setup(ask.policy), presets.setup(RIVALS[ask.policy])
    ours = ours.replace(pinned=module("pinned", "vdnnpp-compressed"))
    compressed = planned(ours.replace(name=f"{ask.policy}, compressed"))
    same = measured.SameAlgorithms.as_in(compressed)
    on_demand = ours.replace(pinned=module("pinned", "vdnnpp-on-demand"), name=ask.policy, algorithms=same)
    programs = (planned(theirs.replace(name=theirs.name, algorithms=same)), planned(on_demand), compressed)
    held = attempt(network, measured.everything_held(same), machine, machine.memory_bytes)
    vdnn, uncompressed, packed = (ask.run(program) for program in programs)
    return MeasuredVdnnpp(
        device=device_at_hand().name,
        network=network.name,
        iterations=ask.iterations,
        backend=ask.backend,
        batch=network.batch,
        budget_bytes=nbytes,
        threads=packing.thread_count(),
        vdnn=vdnn,
        on_demand=uncompressed,
        compressed=packed,
        held=ask.run(held) if held else None,
        speeds=tuple(speeds(MAP_BYTES, ask.watch)),
    )


# -- the speed of compressing ------------------------------------------------------------------------------------------


def speeds(nbytes: int, watch: Watch = lambda doing: None, tries: int = TRIES) -> Iterator[Speed]:
    """A map of `nbytes` at every density, copied, compressed and decompressed in turns."""
    drawn = np.random.default_rng(0)
    numbers = drawn.random(nbytes // 4, np.float32) + 1
    order = drawn.random(nbytes // 4, np.float32)
    back = np.empty(nbytes, np.uint8)
    place = packing.Packed(np.empty(packing.packed_limit(nbytes), np.uint8), nbytes)

    def copied(given: np.ndarray, first: int, last: int) -> None:
        np.copyto(back[first:last], given[first:last])

    for density in DENSITIES:
        watch(f"compressing, {density:.0%} not zero")
        given = np.where(order < density, numbers, np.float32(0)).view(np.uint8)
        copy = partial(packing.side_by_side, partial(copied, given), nbytes)
        pack, unpack = partial(place.pack, given), partial(place.unpack, back)
        seconds = timing.least_in_turns({"copy": copy, "pack": pack, "unpack": unpack}, timing.by(), tries)
        yield Speed(density, *(nbytes / each for each in seconds.values()))


def speed_table(found: tuple[Speed, ...], threads: int) -> Table:
    """A line a density."""
    columns = (
        Column("not zero", lambda speed: f"{speed.density:.0%}", plain), Column("copying", "copy", gigabytes),
        Column("compressing", "compress", gigabytes), Column("decompressing", "decompress", gigabytes),
        Column("there and back", "both", gigabytes),
    )  # fmt: skip
    title = f"Compressing {size(MAP_BYTES)} by {counted(threads, 'thread')}, and the same threads copying it"
    return Table.of(title, found, columns)

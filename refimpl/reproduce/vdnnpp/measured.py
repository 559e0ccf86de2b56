"""vDNN++ on the device at hand: its iteration against vDNN's, its pinned memory, what its threads compress, how fast.

- The iteration (§1): the same network and maps under vDNN, under vDNN++ with the maps left as they are, and under
  vDNN++ with them compressed; and with everything held, where that fits.  All with the same algorithms, call by call.
- The pinned memory (§4): one buffer a map, buffers on demand, and those with compression; and what each compressed
  map took.
- The speed of compressing: maps of several densities there and back, beside a plain copy by the same threads.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from refimpl.machine import Machine
from refimpl.machine.measure import device_at_hand
from refimpl.network.zoo import build
from refimpl.planner import DoesNotFit, Program, Setup, SetupError, plan
from refimpl.registry import planning, presets
from refimpl.reproduce import measured
from refimpl.reproduce.measured import Run
from refimpl.text import duration, offer, size

NETWORK, BATCH = "vgg16:vdnnpp", 128
RIVALS = {"vdnnpp-all": "vdnn-all", "vdnnpp-conv": "vdnn-conv"}  #: preset → vDNN's with the same idea of what leaves
COMPRESSED, UNCOMPRESSED = "vdnnpp-compressed", "vdnnpp-on-demand"
DENSITIES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
MAP_BYTES = 32 << 20  #: of a map whose compressing is timed: more than caches hold
TRIES = 5

Watch = Callable[[str], None]
Table = tuple[str, list[str], list[list[str]]]  #: title, head, rows


@dataclass(frozen=True)
class Speed:
    """Of the host's threads, together.  Bytes of the map a second, the best of some tries."""

    density: float  #: share of numbers that are not zero
    copy: float  #: reading and writing it, as it is, by as many threads
    compress: float
    decompress: float

    @property
    def both(self) -> float:
        """A map compressed and decompressed again."""
        return 1 / (1 / self.compress + 1 / self.decompress)


@dataclass(frozen=True)
class Measured:
    device: str
    backend: str
    date: str
    network: str
    batch: int
    budget_bytes: int
    iterations: int
    threads: int  #: that compress
    vdnn: Run
    on_demand: Run  #: vDNN++ with the maps left as they are
    compressed: Run
    held: Run | None  #: nothing moves; None where it does not fit the device
    speeds: tuple[Speed, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        return (self.vdnn, self.on_demand, self.compressed, *((self.held,) if self.held else ()))

    def readings(self, ours: Run) -> dict[str, float | None]:
        """The three readings of a speed-up over vDNN, of the whole iteration."""
        saved = self.vdnn.seconds - ours.seconds
        over = self.vdnn.seconds - self.held.seconds if self.held else 0.0
        return {
            "speed-up": self.vdnn.seconds / ours.seconds - 1,
            "cut of time": saved / self.vdnn.seconds,
            "cut of overhead": saved / over if over > 0 else None,
        }

    def json(self) -> str:
        document: dict[str, Any] = asdict(self)
        document["readings"] = {run.setup: self.readings(run) for run in (self.on_demand, self.compressed)}
        document["speeds"] = [asdict(speed) | {"both": speed.both} for speed in self.speeds]
        return json.dumps(document, indent=1)

    def tables(self) -> list[Table]:
        """For people, one a question."""
        what = f"{self.network}({self.batch}) within {size(self.budget_bytes)}"
        head, rows = measured.compressed_table(self.compressed.compressed)
        tables = [
            (
                f"{what}: vDNN, and vDNN++ without and with compression",
                ["", *(r.setup for r in self.runs)],
                self._rows(),
            )
        ]
        if rows:
            tables.append(
                (f"{what}: the maps that {threads_of(self.threads)} compressed in the last iteration", head, rows)
            )
        return [*tables, speed_table(self.speeds, self.threads)]

    def _rows(self) -> list[list[str]]:
        rows = measured.side_by_side(self.runs)
        rows.append(["no kernel running", *(duration(run.stall_seconds) for run in self.runs)])
        rows.append(["pinned memory", *(size(run.pinned_bytes) for run in self.runs)])
        rows.append(["stored compressed", *(size(s) if (s := stored(run)) else "–" for run in self.runs)])
        readings = [{}, self.readings(self.on_demand), self.readings(self.compressed), *([{}] if self.held else [])]
        for name in readings[1]:
            values = [reading.get(name) for reading in readings]
            rows.append([f"over vDNN, {name}", *("" if value is None else f"{value:.1%}" for value in values)])
        return rows

    def notes(self) -> list[str]:
        """What is missing, and why."""
        found = []
        if self.held is None:
            found.append("Not measured: the same with everything held; the device cannot hold it.")
        if not self.compressed.compressed:
            found.append("No map was compressed: by the plan the host's threads are too slow to be done in time.")
        if self.backend == "cpu":
            found.append("On a CPU copies are made in their turn: what vDNN's join costs does not show there.")
        return found


def threads_of(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


def stored(run: Run) -> int:
    """Bytes of ordinary memory that the compressed maps took."""
    return sum(one.stored for one in run.compressed)


def steps(backend: str, iterations: int) -> int:
    """How often `measure` calls its `watch`, where everything fits."""
    return 4 * iterations + len(DENSITIES)


def measure(
    network: str | None,
    batch: int | None,
    policy: str,
    machine: Machine,
    budget: str,
    backend: str,
    iterations: int = 5,
    watch: Watch = lambda text: None,
) -> Measured:
    """Everything.  `network` None: so many images of VGG-16; `budget` is a text such as "12GiB"."""
    if policy not in RIVALS:
        raise SetupError(f"{policy} has no counterpart in vDNN to be measured against{offer(policy, RIVALS)}")
    built = build(network or NETWORK, batch or (None if network else BATCH))
    nbytes = planning.budget_bytes(budget, built, machine)

    def planned(wanted: Setup) -> Program:
        made = planning.plan(built, wanted, machine, nbytes)
        made.verify()
        return made

    ours = presets.setup(policy)
    compressed = planned(ours.replace(**modules(COMPRESSED)).replace(name=f"{policy}, compressed"))
    same = measured.SameAlgorithms.as_in(compressed)
    on_demand = planned(ours.replace(**modules(UNCOMPRESSED), name=policy, algorithms=same))
    theirs = presets.setup(RIVALS[policy])
    vdnn = planned(theirs.replace(name=theirs.name, algorithms=same))
    try:
        held = plan(built, measured.everything_held(same), machine, machine.memory_bytes)
    except DoesNotFit:
        held = None
    runs = [measured.measure(made, backend, iterations, watch) for made in (vdnn, on_demand, compressed)]
    return Measured(
        device=device_at_hand().name,
        backend=backend,
        date=datetime.date.today().isoformat(),
        network=built.name,
        batch=built.batch,
        budget_bytes=nbytes,
        iterations=iterations,
        threads=compressing_threads(),
        vdnn=runs[0],
        on_demand=runs[1],
        compressed=runs[2],
        held=measured.measure(held, backend, iterations, watch) if held else None,
        speeds=tuple(speeds(MAP_BYTES, watch)),
    )


def modules(pinned: str) -> dict[str, Any]:
    from refimpl.registry.modules import module

    return {"pinned": module("pinned", pinned)}


# -- the speed of compressing ------------------------------------------------------------------------------------------


def compressing_threads() -> int:
    from refimpl.memory import packing

    return packing.thread_count()


def speeds(nbytes: int, watch: Watch = lambda text: None, tries: int = TRIES) -> Iterator[Speed]:
    """A map of so many bytes at every density, compressed, decompressed and copied in turns."""
    from refimpl.memory.packing import Packed, packed_limit, side_by_side

    drawn = np.random.default_rng(0)
    numbers = drawn.random(nbytes // 4, np.float32) + 1
    order = drawn.random(nbytes // 4, np.float32)
    back = np.empty(nbytes, np.uint8)
    place = Packed(np.empty(packed_limit(nbytes), np.uint8), nbytes)

    def copied(given: np.ndarray, first: int, last: int) -> None:
        np.copyto(back[first:last], given[first:last])

    for density in DENSITIES:
        watch(f"compressing, {density:.0%} not zero")
        given = np.where(order < density, numbers, np.float32(0)).view(np.uint8)
        acts: dict[str, Callable[[], Any]] = {
            "copy": partial(side_by_side, partial(copied, given), nbytes),
            "compress": partial(place.pack, given),
            "decompress": partial(place.unpack, back),
        }
        best = dict.fromkeys(acts, float("inf"))
        for _ in range(tries):
            for name, act in acts.items():
                began = perf_counter()
                act()
                best[name] = min(best[name], perf_counter() - began)
        yield Speed(density, *(nbytes / best[name] for name in acts))


def speed_table(found: tuple[Speed, ...], threads: int) -> Table:
    def rates(speed: Speed) -> list[str]:
        return [f"{value / 1e9:.1f} GB/s" for value in (speed.copy, speed.compress, speed.decompress, speed.both)]

    rows = [[f"{speed.density:.0%}", *rates(speed)] for speed in found]
    title = f"Compressing {size(MAP_BYTES)} by {threads_of(threads)}, and as many copying it"
    return title, ["not zero", "copying", "compressing", "decompressing", "there and back"], rows


# -- written down ------------------------------------------------------------------------------------------------------


def write(found: Measured, root: Path) -> Iterator[Path]:
    """The tables as Markdown and JSON, in docs/measurements."""
    return measured.write_tables(found, root, "vdnnpp", "vDNN++")

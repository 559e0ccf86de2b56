"""What a memory policy costs on the device at hand: a network trained within a budget, and again without one.

Both with the same kernels: the run without a budget takes, call by call, the algorithms of the policy's program, and
holds every map.  The iteration's time is the least of some, untouched by events and with its batch in pinned memory
already; copies, and how much of them ran beside kernels, come from one iteration more whose every launch and copy is
timed.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from refimpl.backend import Trainer, data
from refimpl.backend.device import CallTimes
from refimpl.backend.host_thread import CompressedMap
from refimpl.machine import Choice, Machine, Timeline
from refimpl.machine.measure import device_at_hand, time_copies
from refimpl.network import Call, Network, Step
from refimpl.planner import CopyIn, CopyOut, Launch, PlanContext, Program, Setup, plan, slots
from refimpl.registry import presets
from refimpl.report.markdown import markdown_table, slug
from refimpl.text import duration, size


@dataclass(frozen=True)
class Run:
    """One program, measured.  Bytes, seconds, rates a second."""

    setup: str
    batch: int
    budget_bytes: int
    peak_bytes: int  #: of the pool, recounted from the executed instructions
    seconds: float  #: of an iteration
    images_rate: float
    moved_bytes: int  #: of maps in an iteration, out and in; the batch is not counted
    copying_seconds: float
    hidden: float  #: the share of them in which a kernel ran too
    out_rate: float | None  #: bytes a second of all copies out; None without any
    in_rate: float | None
    flops_rate: float  #: operations a second while kernels ran
    host_seconds: float | None  #: for an instruction
    driver_calls: CallTimes | None  #: of the fastest iteration, where a call of the driver allocates
    stall_seconds: float = 0.0  #: in which no kernel ran
    pinned_bytes: int = 0
    compressed: tuple[CompressedMap, ...] = ()  #: the maps that threads of the host compressed, in the last iteration


@dataclass(frozen=True)
class Comparison:
    device: str
    date: str
    network: str
    batch: int
    iterations: int
    plain_out: float  #: bytes a second of one large copy alone, out of the device
    plain_in: float
    within: Run
    without: Run

    @property
    def slowdown(self) -> float:
        """0.18 is 18 % slower than without a budget."""
        return self.within.seconds / self.without.seconds - 1

    def json(self) -> str:
        return json.dumps(asdict(self) | {"slowdown": self.slowdown}, indent=1)


@dataclass(frozen=True)
class SameAlgorithms(slots.Algorithms):
    """Every call by the algorithm that it has in a program: what is compared then differs in memory alone."""

    chosen: Mapping[Call, Choice]
    name: ClassVar[str] = "the same"
    summary: ClassVar[str] = "the algorithms of another program, call by call"

    @classmethod
    def as_in(cls, program: Program) -> SameAlgorithms:
        launches = (i for i in program.instructions if isinstance(i, Launch) and not i.rebuild)
        return cls({launch.call: launch.choice for launch in launches if launch.choice is not None})

    def bind(self, context: PlanContext) -> SameAlgorithms:
        return self

    def choose(self, step: Step, call: Call, largest_hole: int) -> Choice:
        return self.chosen[call]


def measure(program: Program, backend: str, iterations: int, watch: Callable[[str], None] = lambda text: None) -> Run:
    """Train for so many iterations on a synthetic batch."""
    network = program.network
    source = data.synthetic(network.input.shape[1:], network.predictions.shape[1], seed=1)
    images, labels = source.batch(network.batch, 0)
    with Trainer(program, backend, rate=1e-4, guard=False) as trainer:
        trainer.step(images, labels)  # what is done once is done
        turns: list[tuple[float, CallTimes | None]] = []
        for number in range(iterations):
            watch(f"{program.setup.name}: iteration {number + 1}")
            turns.append((trainer.repeat(), trainer.driver_calls))
        timeline = trainer.timeline()
        host = trainer.host_seconds_per_instruction
        peak, compressed = trainer.recounted_peak, tuple(trainer.compressed)
    copying = timeline.copying()
    seconds, calls = min(turns, key=lambda turn: turn[0])
    return Run(
        setup=program.setup.name,
        batch=network.batch,
        budget_bytes=program.budget,
        peak_bytes=peak,
        seconds=seconds,
        images_rate=network.batch / seconds,
        moved_bytes=sum(copy.nbytes for copy in copies_of_maps(program)),
        copying_seconds=copying,
        hidden=timeline.overlap() / copying if copying else 0.0,
        out_rate=link_rate(timeline, CopyOut),
        in_rate=link_rate(timeline, CopyIn),
        flops_rate=network.flops / timeline.busy("compute"),
        host_seconds=host,
        driver_calls=calls,
        stall_seconds=timeline.stall,
        pinned_bytes=program.pinned_bytes,
        compressed=compressed,
    )


def copies_of_maps(program: Program) -> Iterator[CopyIn | CopyOut]:
    """Everything that is copied but the batch and the results."""
    for instruction in program.instructions:
        if isinstance(instruction, (CopyIn, CopyOut)) and instruction.tensor not in program.pinned:
            yield instruction


def link_rate(timeline: Timeline, kind: type[CopyIn] | type[CopyOut]) -> float | None:
    """Bytes a second of all copies of maps in one direction; None without any."""
    spans = [s for s in timeline.spans if isinstance(s.instruction, kind) and s.instruction.tensor.managed]
    seconds = sum(span.end - span.start for span in spans)
    return sum(span.instruction.nbytes for span in spans) / seconds if seconds else None


def everything_held(algorithms: SameAlgorithms) -> Setup:
    """No map leaves, is dropped or made again."""
    held = presets.baseline(liveness="layer-wise")
    return held.replace(name="everything held", algorithms=algorithms)


def compare(
    network: Network,
    policy: Setup,
    machine: Machine,
    budget: int,
    backend: str,
    iterations: int = 5,
    watch: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """The policy within its budget, and the same kernels with all the device's memory."""
    within = plan(network, policy, machine, budget)
    within.verify()
    free = everything_held(SameAlgorithms.as_in(within))
    without = plan(network, free, machine, machine.memory_bytes)
    device = device_at_hand()
    return Comparison(
        device=device.name,
        date=datetime.date.today().isoformat(),
        network=network.name,
        batch=network.batch,
        iterations=iterations,
        plain_out=time_copies(device, "out").bytes_per_second,
        plain_in=time_copies(device, "in").bytes_per_second,
        within=measure(within, backend, iterations, watch),
        without=measure(without, backend, iterations, watch),
    )


def rate(value: float | None, unit: float, name: str) -> str:
    return "–" if value is None else f"{value / unit:,.1f} {name}"


def side_by_side(runs: Sequence[Run]) -> list[list[str]]:
    """What was measured, a row, of each run, a column."""
    rows = {
        "images": [f"{run.batch:,}" for run in runs],
        "budget": [size(run.budget_bytes) for run in runs],
        "pool, at most": [size(run.peak_bytes) for run in runs],
        "an iteration": [duration(run.seconds) for run in runs],
        "images a second": [f"{run.images_rate:,.1f}" for run in runs],
        "maps moved": [size(run.moved_bytes) for run in runs],
        "copying": [duration(run.copying_seconds) for run in runs],
        "of that beside kernels": [f"{run.hidden:.1%}" for run in runs],
        "out": [rate(run.out_rate, 1e9, "GB/s") for run in runs],
        "in": [rate(run.in_rate, 1e9, "GB/s") for run in runs],
        "kernels": [rate(run.flops_rate, 1e9, "GFLOP/s") for run in runs],
        "host, an instruction": ["–" if run.host_seconds is None else duration(run.host_seconds) for run in runs],
    }
    return [[name, *cells] for name, cells in rows.items()]


def compressed_table(compressed: Sequence[CompressedMap]) -> tuple[list[str], list[list[str]]]:
    """Head and rows; a row a map that the host's threads compressed, and one for all of them."""
    head = ["map", "bytes", "stored", "planned", "not zero", "compressing", "decompressing"]

    def row(name: str, some: Sequence[CompressedMap]) -> list[str]:
        nbytes = sum(one.nbytes for one in some)
        times = [sum(one.compress_seconds for one in some), sum(one.decompress_seconds for one in some)]
        return [
            name, size(nbytes), size(sum(one.stored for one in some)), size(sum(one.planned for one in some)),
            f"{sum(one.density * one.nbytes for one in some) / nbytes:.1%}",
            *(f"{duration(time)}" if time else "–" for time in times),
        ]  # fmt: skip

    together = [row("together", compressed)] if compressed else []
    return head, [*(row(one.tensor, [one]) for one in compressed), *together]


def table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Head and rows; a column a run."""
    runs = comparison.within, comparison.without
    within = comparison.within
    links = [("out", within.out_rate, comparison.plain_out), ("in", within.in_rate, comparison.plain_in)]
    rows = side_by_side(runs)
    for way, rate_, plain in links:
        share = "–" if rate_ is None else f"{rate_ / plain:.1%}"
        rows.append([f"{way}, of a copy alone", share, rate(plain, 1e9, "GB/s")])
    rows.append(["slower", f"{comparison.slowdown:.1%}", ""])
    return ["", *(run.setup for run in runs)], rows


def write(comparison: Comparison, root: Path, paper: str = "vdnn", title: str = "vDNN") -> Iterator[Path]:
    """The table as Markdown and JSON, in docs/measurements; `paper` is its name on the command line."""
    folder = root / "docs" / "measurements"
    folder.mkdir(parents=True, exist_ok=True)
    what = f"{comparison.network}({comparison.batch}) within {size(comparison.within.budget_bytes)}"
    head = f"# {title}: {what}, {comparison.device}, {comparison.date}"
    made = f"Made by `refimpl reproduce {paper} --run --write`; the least of {comparison.iterations} iterations."
    page = "\n\n".join([head, made, markdown_table(*table(comparison))])
    stem = f"{paper}-{comparison.network}-{slug(comparison.device)}-{comparison.date}"
    for suffix, text in ((".md", page + "\n"), (".json", comparison.json() + "\n")):
        path = folder / (stem + suffix)
        path.write_text(text, encoding="utf-8")
        yield path


class Tables(Protocol):
    """What was measured, as tables with notes."""

    @property
    def network(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def date(self) -> str: ...
    @property
    def iterations(self) -> int: ...

    def tables(self) -> Iterable[tuple[str, list[str], list[list[str]]]]: ...
    def notes(self) -> Iterable[str]: ...
    def json(self) -> str: ...


def write_tables(found: Tables, root: Path, paper: str, title: str) -> Iterator[Path]:
    """The tables as Markdown and JSON, in docs/measurements; `paper` is its name on the command line."""
    folder = root / "docs" / "measurements"
    folder.mkdir(parents=True, exist_ok=True)
    made = f"Made by `refimpl reproduce {paper} --run --write`; the least of {found.iterations} iterations."
    parts = [f"# {title}: {found.device}, {found.date}", made]
    for name, head, rows in found.tables():
        parts += [f"## {name}", markdown_table(head, rows)]
    page = "\n\n".join([*parts, *found.notes()])
    stem = f"{paper}-{slug(found.network)}-{slug(found.device)}-{found.date}"
    for suffix, text in ((".md", page + "\n"), (".json", found.json() + "\n")):
        path = folder / (stem + suffix)
        path.write_text(text, encoding="utf-8")
        yield path

"""What a memory policy costs on the device at hand: a network trained within a budget, and again without one.

Both with the same kernels: the run without a budget takes the module that the policy's program took its algorithms
from, and holds every map.  The iteration's time is the least of some, untouched by events; copies, and how much of them
ran beside kernels, come from one iteration more whose every launch and copy is timed.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from refimpl import data, vdnn
from refimpl.backend import Trainer
from refimpl.machine import Machine, Timeline
from refimpl.machine.measure import device_at_hand, time_copies
from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Program, Search, Setup, plan
from refimpl.planner.baseline import NoOffload
from refimpl.planner.errors import size
from refimpl.planner.listing import duration
from refimpl.tables import markdown_table, slug


@dataclass(frozen=True)
class Run:
    """One program, measured.  Bytes, seconds, rates a second."""

    setup: str
    budget_bytes: int
    peak_bytes: int  #: of the pool, as measured
    seconds: float  #: of an iteration
    copying_seconds: float
    hidden: float  #: the share of them in which a kernel ran too
    out_rate: float | None  #: bytes a second of all copies out; None without any
    in_rate: float | None
    flops_rate: float  #: operations a second while kernels ran
    host_seconds: float | None  #: for an instruction


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


def measure(program: Program, backend: str, iterations: int, watch: Callable[[str], None] = lambda text: None) -> Run:
    """Train for so many iterations on a synthetic batch."""
    network = program.network
    source = data.synthetic(network.input.shape[1:], network.predictions.shape[1], seed=1)
    images, labels = source.batch(network.batch, 0)
    with Trainer(program, backend, rate=1e-4, guard=False) as trainer:
        trainer.step(images, labels)  # what is done once is done
        seconds = []
        for number in range(iterations):
            watch(f"{program.setup.name}: iteration {number + 1}")
            start = perf_counter()
            trainer.step(images, labels)
            seconds.append(perf_counter() - start)
        timeline = trainer.timeline()
        host = trainer.host_seconds_per_instruction
        peak = trainer.measured_peak
    copying = timeline.copying()
    return Run(
        setup=program.setup.name,
        budget_bytes=program.budget,
        peak_bytes=peak,
        seconds=min(seconds),
        copying_seconds=copying,
        hidden=timeline.overlap() / copying if copying else 0.0,
        out_rate=link_rate(timeline, CopyOut),
        in_rate=link_rate(timeline, CopyIn),
        flops_rate=network.flops / timeline.busy("compute"),
        host_seconds=host,
    )


def link_rate(timeline: Timeline, kind: type[CopyIn] | type[CopyOut]) -> float | None:
    """Bytes a second of all copies of maps in one direction; None without any."""
    spans = [s for s in timeline.spans if isinstance(s.instruction, kind) and s.instruction.tensor.managed]
    seconds = sum(span.end - span.start for span in spans)
    return sum(span.instruction.nbytes for span in spans) / seconds if seconds else None


def compare(
    network: Network,
    policy: Setup | Search,
    machine: Machine,
    budget: int,
    backend: str,
    iterations: int = 5,
    watch: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """The policy within its budget, and the same kernels with all the device's memory."""
    within = plan(network, policy, machine, budget)
    within.verify()
    free = vdnn.static("everything held", NoOffload(), within.setup.algorithms)
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


def table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Head and rows; a column a run."""

    def rate(value: float | None, unit: float, name: str) -> str:
        return "–" if value is None else f"{value / unit:,.1f} {name}"

    def column(run: Run) -> list[str]:
        return [
            size(run.budget_bytes), size(run.peak_bytes), duration(run.seconds), duration(run.copying_seconds),
            f"{run.hidden:.1%}", rate(run.out_rate, 1e9, "GB/s"), rate(run.in_rate, 1e9, "GB/s"),
            rate(run.flops_rate, 1e9, "GFLOP/s"), "–" if run.host_seconds is None else duration(run.host_seconds),
        ]  # fmt: skip

    names = [
        "budget", "pool, at most", "an iteration", "copying", "of that beside kernels", "out", "in", "kernels",
        "host, an instruction",
    ]  # fmt: skip
    runs = comparison.within, comparison.without
    within = comparison.within
    links = [("out", within.out_rate, comparison.plain_out), ("in", within.in_rate, comparison.plain_in)]
    rows = [list(row) for row in zip(names, *(column(run) for run in runs), strict=True)]
    for way, rate_, plain in links:
        share = "–" if rate_ is None else f"{rate_ / plain:.1%}"
        rows.append([f"{way}, of a copy alone", share, rate(plain, 1e9, "GB/s")])
    rows.append(["slower", f"{comparison.slowdown:.1%}", ""])
    return ["", *(run.setup for run in runs)], rows


def write(comparison: Comparison, root: Path) -> Iterator[Path]:
    """The table as Markdown and JSON, in docs/measurements."""
    folder = root / "docs" / "measurements"
    folder.mkdir(parents=True, exist_ok=True)
    what = f"{comparison.network}({comparison.batch}) within {size(comparison.within.budget_bytes)}"
    title = f"# vDNN: {what}, {comparison.device}, {comparison.date}"
    made = f"Made by `refimpl reproduce vdnn --run --write`; the least of {comparison.iterations} iterations."
    page = "\n\n".join([title, made, markdown_table(*table(comparison))])
    stem = f"vdnn-{comparison.network}-{slug(comparison.device)}-{comparison.date}"
    for suffix, text in ((".md", page + "\n"), (".json", comparison.json() + "\n")):
        path = folder / (stem + suffix)
        path.write_text(text, encoding="utf-8")
        yield path

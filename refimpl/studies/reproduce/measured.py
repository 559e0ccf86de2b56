"""Shared by the papers' measurements: one program timed, a policy beside the same kernels without a budget, and
tables and JSON of them.

The iteration's time is the least of several, untouched by events and with its batch in pinned memory already.  Copies,
and the share of them beside kernels, come from one iteration more whose every launch and copy is timed.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from refimpl.backend import Trainer, data
from refimpl.backend.device import CallTimes
from refimpl.backend.host_thread import StoredMap
from refimpl.machine import Choice, Machine, Timeline
from refimpl.machine.devices import device_at_hand
from refimpl.machine.measure import time_copies
from refimpl.names import by_name, presets
from refimpl.names.networks import build
from refimpl.network import Call, Network, Step
from refimpl.planner import Context, CopyIn, CopyOut, Program, Setup, plan
from refimpl.report.figures import choices
from refimpl.report.markdown import slug, write_measurement
from refimpl.report.tables import Column, Table, count, in_units, percent
from refimpl.slots import questions as slots
from refimpl.studies.reproduce.evaluation import moved_bytes, to_json
from refimpl.studies.reproduce.published import Watch
from refimpl.text import counted, duration, size

# -- one program -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One program, measured.  Bytes, seconds, rates a second."""

    setup: str
    batch: int
    budget_bytes: int
    peak_bytes: int  #: the most in use at a time, recounted from the executed instructions
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
    compressed: tuple[StoredMap, ...] = ()  #: the maps that threads of the host compressed, in the last iteration


def measure(program: Program, backend: str, iterations: int, watch: Watch = lambda doing: None) -> Run:
    """Train for some iterations on a synthetic batch."""
    network = program.network
    source = data.synthetic_for(network, seed=1)
    images, labels = source.batch(network.batch, 0)
    with Trainer(program, backend, rate=1e-4, guard=False) as trainer:
        trainer.step(images, labels)  # everything that is done once
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
        moved_bytes=moved_bytes(program),
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


def link_rate(timeline: Timeline, kind: type[CopyIn] | type[CopyOut]) -> float | None:
    """Bytes a second of all copies of maps in one direction; None without any."""
    spans = [s for s in timeline.spans if isinstance(s.instruction, kind) and s.instruction.tensor.managed]
    seconds = sum(span.end - span.start for span in spans)
    return sum(span.instruction.nbytes for span in spans) / seconds if seconds else None


# -- one measurement ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """The arguments of a measurement."""

    network: str | None  #: its name; None: those of the paper
    batch: int | None  #: images; None: the paper's
    policy: str  #: the name of a preset
    machine: Machine  #: a model of this computer, to plan for
    budget: str  #: device memory, such as "12GiB"
    backend: str  #: "cuda" or "cpu"
    iterations: int = 5  #: timed ones; the least time counts
    watch: Watch = lambda doing: None

    def build(self, network: str, batch: int | None) -> Network:
        """The network of the request, or the paper's with the paper's batch."""
        return build(self.network or network, self.batch or (None if self.network else batch))

    def run(self, program: Program) -> Run:
        return measure(program, self.backend, self.iterations, self.watch)

    def compare(self, network: Network, budget: int) -> Comparison:
        """The policy within its budget (bytes), and the same kernels with all the device's memory."""
        within = plan(network, presets.setup(self.policy), self.machine, budget)
        within.verify()
        held = everything_held(SameAlgorithms.as_in(within))
        without = plan(network, held, self.machine, self.machine.memory_bytes)
        device = device_at_hand()
        return Comparison(
            device=device.name,
            network=network.name,
            iterations=self.iterations,
            batch=network.batch,
            plain_out=time_copies(device, "out").bytes_per_second,
            plain_in=time_copies(device, "in").bytes_per_second,
            within=self.run(within),
            without=self.run(without),
        )


@dataclass(frozen=True, kw_only=True)
class Measurement(ABC):
    """Something measured on this computer: tables with notes, and JSON of all of its fields and properties."""

    device: str
    date: str = field(default_factory=lambda: datetime.date.today().isoformat(), init=False)
    network: str
    iterations: int  #: timed ones; the least time counts

    @abstractmethod
    def tables(self) -> list[Table]:
        """For people, one a question."""

    def notes(self) -> list[str]:
        """Everything that is missing, and why."""
        return []

    def write(self, root: Path, paper: str, title: str) -> Iterator[Path]:
        """The tables as Markdown, and the JSON, into docs/measurements; `paper` is its name on the command line."""
        made = (
            f"Made by `refimpl reproduce {paper} --run --write`; the least of {counted(self.iterations, 'iteration')}."
        )
        parts = [f"# {title}: {self.device}, {self.date}", made]
        for table in self.tables():
            parts += [f"## {table.title}", table.markdown()]
        page = "\n\n".join([*parts, *self.notes()])
        stem = f"{paper}-{slug(self.network)}-{slug(self.device)}-{self.date}"
        return write_measurement(root, stem, page, to_json(self))


# -- a policy, and the same kernels without a budget -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Comparison(Measurement):
    """A policy within its budget, and the same kernels with every map held."""

    batch: int
    plain_out: float  #: bytes a second of one large copy alone, out of the device
    plain_in: float
    within: Run
    without: Run

    @property
    def slowdown(self) -> float:
        """0.18 is 18 % slower than without a budget."""
        return self.within.seconds / self.without.seconds - 1

    @property
    def performance_lost(self) -> float:
        """The same times as a share of performance, as vDNN published it: 18 % slower is 15.3 % lost."""
        return 1 - self.without.seconds / self.within.seconds

    def tables(self) -> list[Table]:
        within = self.within
        title = f"{self.network}({self.batch}) within {size(within.budget_bytes)}, and without"
        table = side_by_side(title, (within, self.without))
        for way, rate, plain in (("out", within.out_rate, self.plain_out), ("in", within.in_rate, self.plain_in)):
            share = "–" if rate is None else percent(rate / plain)
            table.rows.append([f"{way}, of a copy alone", share, gigabytes(plain)])
        table.rows.append(["slower", percent(self.slowdown), ""])
        table.rows.append(["performance lost", percent(self.performance_lost), ""])
        return [table]


@dataclass(frozen=True)
class PolicyBesideNone:
    """The measurement of a paper that has no other: a policy within a budget, and the same kernels without one."""

    network: str  #: where the request names none
    batch: int

    def rounds(self, backend: str, iterations: int) -> int:
        """How often `measure` calls its progress callback."""
        return 2 * iterations

    def measure(self, ask: Request) -> Comparison:
        network = ask.build(self.network, self.batch)
        return ask.compare(network, by_name.budget_bytes(ask.budget, network, ask.machine))


@dataclass(frozen=True)
class SameAlgorithms(slots.Algorithms):
    """Every call by the algorithm that it has in a program, so that two programs differ in memory alone."""

    chosen: Mapping[Call, Choice]
    name: ClassVar[str] = "the same"
    summary: ClassVar[str] = "the algorithms of another program, call by call"

    @classmethod
    def as_in(cls, program: Program) -> SameAlgorithms:
        return cls(choices(program))

    def bind(self, context: Context) -> SameAlgorithms:
        return self

    def choose(self, step: Step, call: Call, largest_hole: int, free_when_drained: int) -> Choice:
        return self.chosen[call]


def everything_held(algorithms: SameAlgorithms) -> Setup:
    """No map is offloaded, dropped or recomputed."""
    held = presets.baseline(liveness="layer-wise")
    return held.replace(name="everything held", algorithms=algorithms)


# -- tables ------------------------------------------------------------------------------------------------------------


def gigabytes(rate: float) -> str:
    return f"{rate / 1e9:,.1f} GB/s"


RUN = (
    Column("images", "batch", count), Column("budget", "budget_bytes", size),
    Column("peak", "peak_bytes", size), Column("an iteration", "seconds", duration),
    Column("images a second", "images_rate", in_units(1)), Column("maps moved", "moved_bytes", size),
    Column("copying", "copying_seconds", duration), Column("of that beside kernels", "hidden", percent),
    Column("out", "out_rate", gigabytes), Column("in", "in_rate", gigabytes),
    Column("kernels", "flops_rate", lambda rate: f"{rate / 1e9:,.1f} GFLOP/s"),
    Column("host, an instruction", "host_seconds", duration),
)  # fmt: skip


def side_by_side(title: str, runs: Sequence[Run], more: Sequence[Column] = ()) -> Table:
    """A line a figure, a column a run."""
    return Table.side_by_side(title, [run.setup for run in runs], runs, [*RUN, *more])

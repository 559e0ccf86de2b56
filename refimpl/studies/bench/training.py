"""An iteration of training beside PyTorch's, on the CPU at hand: `refimpl bench --training`.

Both train the same network from the same weights on the same batch, in turns within one run, with the same number of
threads; before each iteration the other's threads have time to go to sleep.  Ours is the baseline's program, planned
for `here`: it keeps every map and takes the fastest algorithms.  The ratio is that of the medians.  Beside it is the
ratio of the least processor seconds, of all threads together, waiting threads included: on a busy machine the medians
favour whichever framework waits less for its threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from kernels.targets.cpu.threads import thread_count
from refimpl.backend import Trainer, data
from refimpl.machine.here import available_bytes, load_average
from refimpl.machine.timing import Run, by, least_in_turns
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import plan
from refimpl.report.tables import Table
from refimpl.studies.bench import pytorch, written
from refimpl.studies.bench.kernels import PAUSE
from refimpl.studies.bench.written import verdict, versions
from refimpl.text import counted

#: Network and batch → the largest ratio to PyTorch's seconds that is asked.
NETWORKS = {
    ("alexnet", 8): 1.0,
    ("vgg16", 2): 1.0,
    ("lenet", 128): 1.1,
    ("googlenet", 4): 1.15,
    ("resnet50", 2): 1.15,
    ("tiny-vgg", 64): 1.1,
    ("tiny-resnet", 64): 1.1,
    ("mobilenet-v3-small", 16): 2.0,
    ("efficientnet-b0", 4): 2.0,
    ("tiny-vit", 64): 1.5,
    ("tiny-gpt", 16): 1.5,
}
TURNS = 5  #: at least
ROUNDS = len(NETWORKS)  #: how often `run` calls its watch


@dataclass(frozen=True)
class TrainingRow:
    """One network; seconds of an iteration."""

    network: str
    batch: int
    turns: int
    ours: float  #: the median
    ours_processor: float  #: the least processor seconds, of all threads together
    simulated: float
    pytorch: float | None  #: the median; None where PyTorch is not installed
    pytorch_processor: float | None

    @property
    def ratio(self) -> float | None:
        """Our median over PyTorch's."""
        return self.ours / self.pytorch if self.pytorch else None

    @property
    def processor_ratio(self) -> float | None:
        """Our processor seconds over PyTorch's."""
        return self.ours_processor / self.pytorch_processor if self.pytorch_processor else None


@dataclass(kw_only=True)
class TrainingReport(written.Report):
    """An iteration of every network."""

    title: ClassVar[str] = "An iteration of training"
    option: ClassVar[str] = "training"
    page: ClassVar[str] = "docs/speed.md"

    threads: int
    rows: list[TrainingRow]

    @property
    def how(self) -> str:
        missing = any(row.pytorch is None for row in self.rows)
        without = " PyTorch is not installed here: pip install torch" if missing else ""
        return f"Medians of turns on {counted(self.threads, 'thread')}.{without}"

    def tables(self) -> list[Table]:
        """Every network, with what was asked of the ratio."""
        head = [
            "network", "ours, ms", "PyTorch, ms", "ratio", "of processor time", "at most", "", "simulated, ms", "turns",
        ]  # fmt: skip
        body = []
        for row in self.rows:
            asked = NETWORKS[row.network, row.batch]
            body.append([
                f"{row.network}({row.batch})", milliseconds(row.ours), milliseconds(row.pytorch),
                f"{row.ratio:.2f}" if row.ratio else "", f"{row.processor_ratio:.2f}" if row.processor_ratio else "",
                f"{asked:g}", verdict(row.ratio <= asked) if row.ratio else "not measured",
                milliseconds(row.simulated), str(row.turns),
            ])  # fmt: skip
        return [Table("an iteration of training", head, body)]


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.1f}"


def measure(network: str, batch: int, seconds: float) -> TrainingRow:
    """Train in turns for `seconds`, and at least `TURNS` turns."""
    program = plan(build(network, batch), setup("baseline"), machine("here"), available_bytes() // 2)
    source = data.synthetic_for(program.network, seed=1)
    images, labels = source.batch(batch, 0)
    with Trainer(program, rate=1e-4) as trainer:
        runs: dict[str, Run] = {"ours": lambda: trainer.step(images, labels)}
        if pytorch.at_hand():
            import torch

            theirs = pytorch.TorchTraining(build(network, batch), pytorch.PLAIN)
            torch.set_num_threads(thread_count())
            runs["pytorch"] = theirs.step
        for run in runs.values():
            run()  # compiles, and lets PyTorch create its momentum
            run()
        processor: dict[Run, list[float]] = {run: [] for run in runs.values()}

        def rested(run: Run, times: int) -> float:
            """Seconds of a run that no other's threads disturb; its processor seconds are noted."""
            time.sleep(PAUSE)
            began = time.process_time()
            taken = by()(run, times)
            processor[run].append(time.process_time() - began)
            return taken

        medians = least_in_turns(runs, rested, limit_seconds=seconds, at_least=TURNS, counts=median)
    least = {name: min(processor[run]) for name, run in runs.items()}
    return TrainingRow(
        network, batch, len(processor[runs["ours"]]), medians["ours"], least["ours"], program.simulate().seconds,
        medians.get("pytorch"), least.get("pytorch"),
    )  # fmt: skip


def run(quick: bool, watch: Callable[[str], None]) -> TrainingReport:
    """Measure every network for some seconds; `watch` is called with each one's name before it starts."""
    load, rows = load_average(), []
    for network, batch in NETWORKS:
        watch(f"{network}({batch})")
        rows.append(measure(network, batch, 2.0 if quick else 15.0))
    used = versions("numba", "numpy", "torch")
    return TrainingReport(versions=used, load=load, threads=thread_count(), rows=rows)

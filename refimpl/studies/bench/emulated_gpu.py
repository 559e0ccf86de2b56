"""How fast the emulated GPU is on this computer: `refimpl bench --emulated`.

Each figure is processor time, of all threads and of the C compiler, so it hardly depends on what else the computer
does.  The checks of memory, barriers and order are on.  Races are searched for in the first launch of each kernel
alone, which is not measured.  No figure says anything about a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from refimpl.backend import Trainer, data
from refimpl.machine.here import load_average
from refimpl.machine.timing import Run, by, least_in_turns
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import plan
from refimpl.report.tables import Table
from refimpl.studies.bench import written
from refimpl.studies.bench.written import verdict, versions
from refimpl.text import counted

SIZE = 384  #: of the product's three sides
NETWORK, BATCH, POLICY = "tiny-resnet", 16, "superneurons"
RATE, ITERATION, COLD = 20.0, 1.0, 30.0  #: GFLOP/s a core, at least; seconds, at most
ROUNDS = 2  #: how often `run` calls its watch


@dataclass(kw_only=True)
class EmulatedReport(written.Report):
    """Seconds of processor time.  `cold`: None where it was not measured."""

    title: ClassVar[str] = "The emulated GPU's speed"
    option: ClassVar[str] = "emulated"
    page: ClassVar[str] = "docs/without-a-gpu.md"

    turns: int
    product: float  #: one product of the two matrices: the launch, the kernel, the wait for its end
    kernel: float  #: the kernel's part of that
    iteration: float  #: one iteration of training
    cold: float | None  #: a run of one iteration whose kernels all have to be compiled

    @property
    def how(self) -> str:
        return f"Seconds are processor time, the least of {counted(self.turns, 'turn')}. No figure is a GPU's."

    def tables(self) -> list[Table]:
        """What was asked beside what was measured."""
        billions = 2 * SIZE**3 / 1e9
        rate, kernel, seconds = billions / self.product, billions / self.kernel, self.iteration
        trains = f"{NETWORK} ({BATCH}) under {POLICY}"
        cold = ["not measured", ""] if self.cold is None else [f"{self.cold:.1f} s", verdict(self.cold <= COLD)]
        head = ["on the emulated GPU", "asked", "measured", ""]
        rows = [
            [f"split_fragments {SIZE}³, with launch", f"≥ {RATE:g} GFLOP/s", f"{rate:.1f} GFLOP/s",
             verdict(rate >= RATE)],
            ["the same, its kernel alone", "", f"{kernel:.1f} GFLOP/s", ""],
            [f"an iteration of {trains}", f"≤ {ITERATION:g} s", f"{seconds:.2f} s", verdict(seconds <= ITERATION)],
            ["a process of one iteration, no kernel compiled", f"≤ {COLD:g} s", *cold],
        ]  # fmt: skip
        return [Table("the emulated GPU", head, rows, wraps=(head[0],))]


def least(run: Run, turns: int, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the fastest turn; what is compiled and searched for races comes before the first."""
    run(), run()
    return least_in_turns({"run": run}, by(clock), turns)["run"]


def run(quick: bool, watch: Callable[[str], None]) -> EmulatedReport:
    """Measure; from then on this process's GPU is the emulated one.  `watch` hears of each thing that begins."""
    turns, load = 3 if quick else 10, load_average()
    watch("an iteration, a product")
    chosen = machine("h100")
    program = plan(build(NETWORK, BATCH), setup(POLICY), chosen, chosen.memory_bytes)
    source = data.synthetic(program.network.input.shape[1:], program.network.predictions.shape[1])
    images, labels = source.batch(BATCH, 0)
    with Trainer(program, backend="emulated") as trainer:
        iteration = least(lambda: trainer.step(images, labels), turns)
    product, kernel = products(3 * turns)
    watch("a cold start")
    cold = None if quick else cold_start()
    return EmulatedReport(
        versions=versions("numba", "numba-cuda", "numpy"), load=load, turns=turns, product=product, kernel=kernel,
        iteration=iteration, cold=cold,
    )  # fmt: skip


def products(turns: int) -> tuple[float, float]:
    """Seconds of a product of `SIZE` × `SIZE` matrices that are on the device already, and those of its kernel."""
    from kernels.fast import gemm
    from kernels.targets import emulated, gpu

    emulated.start()
    emulated.next_work("a product")
    random = np.random.default_rng(0)
    a, b = (gpu.to_device(random.standard_normal((SIZE, SIZE), np.float32)) for _ in "ab")
    c = gpu.to_device(np.zeros((SIZE, SIZE), np.float32))

    def multiply() -> None:
        gemm.gemm(a, b, c, algorithm="split_fragments")
        gpu.synchronize()

    return least(multiply, turns), least(multiply, turns, emulated.kernel_seconds)


def cold_start() -> float:
    """Seconds of a process that trains for one iteration, with an empty folder of compiled kernels."""
    command = f"run {NETWORK} --backend emulated --policy {POLICY} --batch {BATCH} --steps 1"
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "refimpl", *command.split()],
            env=os.environ | {"REFIMPL_CACHE": folder}, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system

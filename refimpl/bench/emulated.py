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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refimpl.backend import Trainer, data
from refimpl.bench import written
from refimpl.bench.written import verdict, versions
from refimpl.machine import machine
from refimpl.machine.here import processor
from refimpl.network.zoo import build
from refimpl.planner import plan
from refimpl.registry.presets import setup
from refimpl.report.markdown import markdown_table

SIZE = 384  #: of the product's three sides
NETWORK, BATCH, POLICY = "tiny-resnet", 16, "superneurons"
RATE, ITERATION, COLD = 20.0, 1.0, 30.0  #: GFLOP/s a core, at least; seconds, at most


@dataclass(kw_only=True)
class Report(written.Report):
    """Seconds of processor time.  `cold`: None where it was not measured."""

    turns: int
    product: float  #: one product of the two matrices: the launch, the kernel, the wait for its end
    kernel: float  #: the kernel's part of that
    iteration: float  #: one iteration of training
    cold: float | None  #: a run of one iteration whose kernels all have to be compiled


def least(run: Callable[[], Any], turns: int, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the fastest turn; what is compiled and searched for races comes before the first."""
    run(), run()
    taken = []
    for _ in range(turns):
        start = clock()
        run()
        taken.append(clock() - start)
    return min(taken)


def run(turns: int, with_cold_start: bool) -> Report:
    """Measure; from then on this process's GPU is the emulated one."""
    load = written.load_average()
    chosen = machine("h100")
    program = plan(build(NETWORK, BATCH), setup(POLICY), chosen, chosen.memory_bytes)
    source = data.synthetic(program.network.input.shape[1:], program.network.predictions.shape[1])
    images, labels = source.batch(BATCH, 0)
    with Trainer(program, backend="emulated") as trainer:
        iteration = least(lambda: trainer.step(images, labels), turns)
    product, kernel = products(3 * turns)
    cold = cold_start() if with_cold_start else None
    return Report(
        name=processor(), versions=versions("numba", "numba-cuda", "numpy"), load=load, turns=turns,
        product=product, kernel=kernel, iteration=iteration, cold=cold,
    )  # fmt: skip


def products(turns: int) -> tuple[float, float]:
    """Seconds of a product of `SIZE` × `SIZE` matrices that are on the device already, and those of its kernel."""
    from kernels import emulated, gemm, gpu

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


# -- shown and written down --------------------------------------------------------------------------------------------


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Head and rows: what was asked beside what was measured."""
    billions = 2 * SIZE**3 / 1e9
    rate, kernel, seconds = billions / report.product, billions / report.kernel, report.iteration
    trains = f"{NETWORK} ({BATCH}) under {POLICY}"
    cold = ["not measured", ""] if report.cold is None else [f"{report.cold:.1f} s", verdict(report.cold <= COLD)]
    rows = [
        [f"split_fragments {SIZE}³, with launch", f"≥ {RATE:g} GFLOP/s", f"{rate:.1f} GFLOP/s", verdict(rate >= RATE)],
        ["the same, its kernel alone", "", f"{kernel:.1f} GFLOP/s", ""],
        [f"an iteration of {trains}", f"≤ {ITERATION:g} s", f"{seconds:.2f} s", verdict(seconds <= ITERATION)],
        ["a process of one iteration, no kernel compiled", f"≤ {COLD:g} s", *cold],
    ]
    return ["on the emulated GPU", "asked", "measured", ""], rows


def markdown(report: Report) -> str:
    """The table with where and when."""
    where = f"{report.described} Seconds are processor time, the least of {report.turns} turns."
    return "\n\n".join([where, markdown_table(*table(report))])


def write(report: Report, root: Path) -> Iterator[Path]:
    """The table as Markdown and JSON, and between the markers of the documentation's page."""
    title = f"# The emulated GPU's speed: {report.name}, {report.date}"
    full = "\n\n".join([title, "Made by `refimpl bench --emulated --write`.", markdown(report)])
    return report.write(root, "emulated-", full, {Path("docs/emulated-gpu.md"): "bench emulated"}, markdown(report))

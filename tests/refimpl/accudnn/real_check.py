"""Images a second by batch, predicted and measured on this CPU: `python -m tests.refimpl.accudnn.real_check`.

Seconds are processor time with one thread, because other programs may run here too.  A profile and the training that it
predicts take turns, and the fastest of each counts.  On a CPU copies run in line and overlap with nothing, so the
prediction is the sum of all engines; only a GPU can show that they hide.  X(b) / X(b0) is compared, not X(b): a profile
takes the fastest turn of each call, an iteration takes them all.
"""

from __future__ import annotations

import os

if __name__ == "__main__":  # before Numba is imported
    os.environ["NUMBA_NUM_THREADS"] = "1"

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refimpl.backend import Trainer
from refimpl.combined.papers import ACCUDNN
from refimpl.machine.devices import Cpu
from refimpl.machine.measure import measure
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.planner import plan

#: Network → batches; the budget is this share of what the baseline takes for the largest.
CASES = {"tiny-vgg": (4, 6, 8, 12, 16), "tiny-resnet": (4, 8, 12, 16, 24)}
SHARE = 0.6
TURNS, ITERATIONS = 4, 8


class Point(NamedTuple):
    network: str
    batch: int
    predicted: float  #: images a second
    measured: float
    maps: int  #: that leave


class ProcessorTime(Cpu):
    def seconds(self, run: Callable[[], Any], times: int) -> float:
        started = time.process_time()
        for _ in range(times):
            run()
        return (time.process_time() - started) / times


def points(name: str, folder: Path) -> Iterator[Point]:
    """Each batch of one network, within one budget."""
    device, profile = ProcessorTime(), folder / "profile.json"
    budget = int(SHARE * unlimited_baseline(build(name, CASES[name][-1]), machine("titan-x")).peak_bytes)
    for batch in CASES[name]:
        network = build(name, batch)
        images = np.random.default_rng(0).standard_normal(network.input.shape, dtype=np.float32)
        predicted = measured = np.inf
        for _ in range(TURNS):
            measure(network, device, limit_seconds=1.0).save(profile)
            program = plan(network, ACCUDNN, machine(str(profile)), budget)
            timeline = program.simulate()
            predicted = min(predicted, timeline.busy("compute") + timeline.busy("out") + timeline.busy("in"))
            with Trainer(program, backend="cpu") as trainer:
                labels = np.zeros(batch, np.int32)
                trainer.step(images, labels)
                for _ in range(ITERATIONS):
                    started = time.process_time()
                    trainer.step(images, labels)
                    measured = min(measured, time.process_time() - started)
        maps = sum(fate.name == "offload" for fate in program.fates.values())
        yield Point(name, batch, batch / predicted, batch / measured, maps)


def apart(points: list[Point]) -> list[float]:
    """X(b) / X(b0), predicted over measured, less 1."""
    first = points[0]
    return [point.predicted / first.predicted / (point.measured / first.measured) - 1 for point in points]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            found = list(points(name, Path(folder)))
            for point, share in zip(found, apart(found), strict=True):
                print(
                    f"{name} {point.batch} predicted {point.predicted:.1f} measured {point.measured:.1f} images/s, "
                    f"{point.maps} maps leave, ratio apart {share:+.3f}"
                )


if __name__ == "__main__":
    main()

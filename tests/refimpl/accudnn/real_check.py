"""Images a second by batch, predicted and measured on this CPU: `python -m tests.refimpl.accudnn.real_check`.

Seconds are processor time with one thread, because other programs may run here too.  A profile and the training that it
predicts take turns, and the fastest of each counts.  On a CPU copies run in line and overlap with nothing, so the
prediction is the sum of all engines; only a GPU can show that they hide.  What is compared is X(b) / X(b0), predicted
over measured, less 1: a profile takes the fastest turn of each call, an iteration takes them all.
"""

from __future__ import annotations

import os

if __name__ == "__main__":  # before Numba is imported
    os.environ["NUMBA_NUM_THREADS"] = "1"

import tempfile
import time
from collections.abc import Callable
from typing import Any

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


class ProcessorTime(Cpu):
    def seconds(self, run: Callable[[], Any], times: int) -> float:
        started = time.process_time()
        for _ in range(times):
            run()
        return (time.process_time() - started) / times


def main() -> None:
    """Each batch of each network, within one budget."""
    device = ProcessorTime()
    for name, batches in CASES.items():
        budget = int(SHARE * unlimited_baseline(build(name, batches[-1]), machine("titan-x")).peak_bytes)
        first = 0.0
        for batch in batches:
            network = build(name, batch)
            images = np.random.default_rng(0).standard_normal(network.input.shape, dtype=np.float32)
            predicted = measured = np.inf
            for _ in range(TURNS):
                with tempfile.NamedTemporaryFile(suffix=".json") as profile:
                    measure(network, device, limit_seconds=1.0).save(profile.name)
                    program = plan(network, ACCUDNN, machine(profile.name), budget)
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
            first = first or measured / predicted
            print(
                f"{name} {batch} predicted {batch / predicted:.1f} measured {batch / measured:.1f} images/s, "
                f"{maps} maps leave, ratio apart {measured / predicted / first - 1:+.3f}"
            )


if __name__ == "__main__":
    main()

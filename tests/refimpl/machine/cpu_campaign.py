"""The machine `here` beside what is measured, on the CPU at hand: whole iterations, and every choice of an algorithm.

    python -m tests.refimpl.machine.cpu_campaign                  # the networks of `refimpl bench --training`
    python -m tests.refimpl.machine.cpu_campaign vgg16 lenet      # some of them

An iteration is the baseline's program, trained.  A computer that others share may be half as fast a few seconds later.
So the CPU is calibrated again before each of a few rounds of training; the round with the median ratio is shown.
Choices: of every convolution, each algorithm with each workspace is timed by itself, and the seconds of those that
`here` takes for the fastest are compared with those of the fastest.  The machine should do nothing else meanwhile; four
minutes in all, more where kernels have to be compiled first.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from statistics import median
from typing import NamedTuple

from refimpl.backend import Trainer, data
from refimpl.machine import cpu_costs
from refimpl.machine.devices import Cpu
from refimpl.machine.here import available_bytes
from refimpl.machine.measure import Bench
from refimpl.machine.measured_profile import key
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import plan
from refimpl.report.markdown import markdown_table
from refimpl.studies.bench.training import NETWORKS

ROUNDS = 5  #: a calibration, and some training
SECONDS = 1.0  #: of training in a round
CALL_SECONDS = 0.5  #: for all algorithms of a call, once each has run
TURNS = 3


class Row(NamedTuple):
    """One network; seconds of an iteration, and of its convolutions."""

    network: str
    batch: int
    simulated: float
    iteration: float
    chosen: float
    best: float

    @property
    def error(self) -> float:
        """The simulated iteration over the measured one."""
        return self.simulated / self.iteration

    @property
    def lost(self) -> float:
        """The chosen algorithms' seconds over those of the fastest."""
        return self.chosen / self.best


def measure(name: str, batch: int) -> Row:
    """Train the network, calibrating in between, and time its convolutions."""
    return Row(name, batch, *iteration(name, batch), *choices(name, batch))


def iteration(name: str, batch: int) -> tuple[float, float]:
    """Simulated and measured seconds of an iteration, in the round whose ratio is the median."""
    cpu_costs.measure_and_keep(lambda what: None)
    program = plan(build(name, batch), setup("baseline"), machine("here"), available_bytes() // 2)
    source = data.synthetic_for(program.network, seed=1)
    images, labels = source.batch(batch, 0)
    rounds: list[tuple[float, float]] = []
    with Trainer(program, rate=1e-4) as trainer:
        for _ in range(ROUNDS):
            cpu_costs.measure_and_keep(lambda what: None)
            trainer.step(images, labels)
            taken: list[float] = []
            end = time.perf_counter() + SECONDS
            while len(taken) < 3 or time.perf_counter() < end:
                start = time.perf_counter()
                trainer.step(images, labels)
                taken.append(time.perf_counter() - start)
            rounds.append((program.simulate(machine("here")).seconds, median(taken)))
    return sorted(rounds, key=lambda one: one[0] / one[1])[ROUNDS // 2]


def choices(name: str, batch: int) -> tuple[float, float]:
    """Measured seconds of all convolutions by the algorithms that `here` chooses, and by the fastest."""
    network, here = build(name, batch), machine("here")
    counts = Counter(key(call) for step in network.steps for call in step.calls if call.choosable)
    bench = Bench(Cpu(), network)
    chosen = best = 0.0
    for name, times in counts.items():
        call = bench.calls[name]
        timed = {(o.algorithm, o.workspace_bytes): s for o, s in bench.time(call, TURNS, CALL_SECONDS) if o}
        first = here.choices(call)[0]
        chosen += times * timed[first.algorithm, first.workspace_bytes]
        best += times * min(timed.values())
    return chosen, best


def main(names: list[str]) -> None:
    rows = [measure(name, batch) for name, batch in NETWORKS if not names or name in names]
    head = ["network", "simulated, ms", "measured, ms", "ratio", "chosen, ms", "fastest, ms", "ratio"]
    body = [
        [f"{r.network}({r.batch})", *(f"{1000 * s:.1f}" for s in (r.simulated, r.iteration)), f"{r.error:.2f}",
         *(f"{1000 * s:.1f}" for s in (r.chosen, r.best)), f"{r.lost:.2f}"]
        for r in rows
    ]  # fmt: skip
    print(markdown_table(head, body))


if __name__ == "__main__":
    main(sys.argv[1:])

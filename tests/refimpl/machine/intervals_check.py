"""Intervals of slow-downs beside slow-downs that are measured, on the CPU at hand.

    REFIMPL_THREADS=1 python -m tests.refimpl.machine.intervals_check             # the check
    REFIMPL_THREADS=1 python -m tests.refimpl.machine.intervals_check --widths    # and the widths

The check plans some programs for the machine `here`, which is calibrated first, and trains each of them and the
baseline of its network in turns.  A slow-down is the ratio of their least turns' processor time.  It should lie
between the 5th and the 95th percentile of the slow-downs on the possible machines, for at least 17 of 20.

The CPU runs an iteration's copies and kernels one after another, so both times are sums: nothing hides.  One thread
takes as much processor time as the work needs, whatever else the machine does, so the check means something also on a
busy machine.

The widths of `refimpl.machine.possible.CPU_DOUBT` are from other networks than those of the check: how far the model
is off for whole iterations, for each kernel beyond that (with a choice of algorithms, and without), and for copies,
again in processor time and in training; and how much programs differ that do the same work at other addresses.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import astuple
from functools import partial
from statistics import mean
from typing import Any, NamedTuple
from unittest import mock

from kernels.targets.cpu.threads import thread_count
from refimpl.backend import Trainer, cpu, data
from refimpl.machine import Machine, cpu_costs
from refimpl.machine.here import load_average, processor
from refimpl.machine.possible import Clocks, Doubt, PossibleMachines, interval, kernel_of
from refimpl.machine.simulator import timed
from refimpl.machine.timing import by
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Launch, Program, plan
from refimpl.report.markdown import markdown_table
from refimpl.studies.grid.rows import bytes_of, least_of

#: Of the check.
NETWORKS = {"tiny-vgg": 64, "tiny-resnet": 64, "lenet": 128, "tiny-vit": 32, "alexnet": 4}
SETUPS = ("vdnn-all", "superneurons", "superneurons-recompute", "dtr")
BUDGET = "least+30%"
ASKED = 17
#: Of the widths.
OTHERS = {"googlenet": 1, "mobilenet-v3-small": 2, "efficientnet-b0": 1, "tiny-gpt": 16}
SAME_WORK = (
    "liveness=layer-wise",
    "liveness=layer-wise allocator=first-fit",
    "liveness=layer-wise allocator=both-ends",
)
LEAST_SHARE = 0.01  #: of an iteration: kernels that take less do not count
SECONDS = 20.0  #: of training a network
TURNS = 7  #: at least
CALIBRATIONS, CALIBRATION_SECONDS = 3, 3.0


def calibrate() -> None:
    """Measure the CPU's kernels for this process: of some calibrations the least cost counts, of turns the least time.

    On a busy machine most turns are disturbed, and medians of them were up to six times too long.
    """
    rounds = [cpu_costs.calibrate(limit=CALIBRATION_SECONDS, counts=min) for _ in range(CALIBRATIONS)]
    costs = {name: tuple(map(min, zip(*(each[name] for each in rounds), strict=True))) for name in rounds[0]}
    cpu_costs._costs[:] = [costs]


class InTurn(Clocks):
    """One piece of work after another, whatever its stream and its engine."""

    def run(self, stream: int, engine: Any, seconds: Any) -> tuple[Any, Any]:
        start = self.now[0]
        self.now = [start + seconds] * len(self.now)
        return start, self.now[0]


def seconds_in_turn(program: Program, machines: PossibleMachines | Machine) -> Any:
    """An iteration's seconds where nothing runs beside anything else: of each machine."""
    clocks = InTurn(len(program.streams), False)
    for _ in timed(program.instructions, clocks, machines, False):
        pass
    return machines.of_program(clocks.end) if isinstance(machines, PossibleMachines) else clocks.end


class Checked(NamedTuple):
    """A program of the check."""

    network: str
    setup: str
    predicted: float
    low: float
    high: float
    measured: float

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high


def programs(network: Network, here: Machine) -> Iterator[tuple[str, Program]]:
    """The baseline's, then those of the check that fit."""
    yield "baseline", unlimited_baseline(network, here)
    for name in SETUPS:
        one = setup(name)
        least = least_of(network.name, name, "here", network.batch)
        try:
            yield name, plan(network, one, here, bytes_of(BUDGET, network, here, least))
        except DoesNotFit:
            continue


def checked(name: str, batch: int, seconds: float) -> list[Checked]:
    """Predict and measure the programs of a network."""
    here = machine("here")
    found = dict(programs(build(name, batch), here))
    machines = PossibleMachines(here)
    possible = {which: seconds_in_turn(program, machines) for which, program in found.items()}
    nominal = {which: seconds_in_turn(program, here) for which, program in found.items()}
    ratios = measured_ratios(found, seconds)
    return [
        Checked(f"{name}({batch})", which, float(nominal[which] / nominal["baseline"]),
                *interval(possible[which] / possible["baseline"]), ratio)
        for which, ratio in ratios.items()
    ]  # fmt: skip


def measured_ratios(found: Mapping[str, Program], seconds: float) -> dict[str, float]:
    """Processor seconds of the least turn over those of the baseline's least."""
    turns: list[dict[str, float]] = []
    with ExitStack() as opened:
        runs = {}
        for which, program in found.items():
            images, labels = data.synthetic_for(program.network, seed=1).batch(program.network.batch, 0)
            trainer = opened.enter_context(Trainer(program, rate=1e-4))
            runs[which] = partial(trainer.step, images, labels)
            runs[which]()
        end = time.perf_counter() + seconds
        while len(turns) < TURNS or time.perf_counter() < end:
            turns.append({which: by(time.process_time)(run, 1) for which, run in runs.items()})
    least = {which: min(turn[which] for turn in turns) for which in found}
    return {which: least[which] / least["baseline"] for which in found if which != "baseline"}


# -- the widths --------------------------------------------------------------------------------------------------------


class KernelError(NamedTuple):
    """Of one kernel beyond all of them."""

    error: float  #: natural logarithm of measured over predicted seconds
    seconds: float  #: predicted
    has_choice: bool


class ModelError(NamedTuple):
    """Of one network: natural logarithms of measured over predicted seconds."""

    network: str
    whole: float  #: of all kernels
    kernels: list[KernelError]
    copies: float  #: of all copies
    programs: list[float]  #: of each of some that do the same work at other addresses


def model_error(name: str, batch: int, seconds: float) -> ModelError:
    """Train the program that offloads all, and compare each launch and copy with what the model says."""
    here = machine("here")
    program = plan(build(name, batch), setup("vdnn-all"), here, 1 << 40)
    taken: list[list[float]] = []
    with mock.patch.object(cpu, "perf_counter", time.process_time), Trainer(program, rate=1e-4) as trainer:
        images, labels = data.synthetic_for(program.network, seed=1).batch(batch, 0)
        trainer.step(images, labels)
        end = time.perf_counter() + seconds
        while len(taken) < TURNS or time.perf_counter() < end:
            spans = trainer.timeline().spans
            taken.append([span.end - span.start for span in spans])
    measured: dict[str, float] = defaultdict(float)
    predicted: dict[str, float] = defaultdict(float)
    choosable = {"copy": False}
    for place, span in enumerate(spans):
        one = span.instruction
        if isinstance(one, Launch):
            what, expected = kernel_of(one.call, one.choice), here.seconds(one.call, one.choice)
            choosable[what] = one.call.choosable
        else:
            what, expected = "copy", here.copy_seconds(one.nbytes, "out")
        measured[what] += min(turn[place] for turn in taken)
        predicted[what] += expected
    copies = math.log(measured.pop("copy") / predicted.pop("copy"))
    whole = math.log(sum(measured.values()) / sum(predicted.values()))
    apart = [
        KernelError(math.log(measured[what] / predicted[what]) - whole, predicted[what], choosable[what])
        for what in measured
    ]
    return ModelError(f"{name}({batch})", whole, apart, copies, same_work(program.network, here, seconds))


def same_work(network: Network, here: Machine, seconds: float) -> list[float]:
    """Programs with the same launches at other addresses: the logarithms of their seconds over the first one's.

    Two of them differ by more than either differs from what is predicted of both: by the root of two.
    """
    found = {"baseline": unlimited_baseline(network, here)}
    found |= {name: plan(network, setup(f"baseline {name}"), here, 1 << 40) for name in SAME_WORK}
    return [math.log(ratio) / math.sqrt(2) for ratio in measured_ratios(found, seconds).values()]


def widths(errors: list[ModelError]) -> Doubt:
    """Root mean squares; each kernel that takes a share of the time worth naming counts once, as it is drawn once."""

    def root(values: Iterable[float]) -> float:
        return math.sqrt(mean(value**2 for value in values))

    def of_kernels(has_choice: bool) -> float:
        return root(
            kernel.error
            for one in errors
            for kernel in one.kernels
            if kernel.has_choice == has_choice
            and kernel.seconds >= LEAST_SHARE * sum(each.seconds for each in one.kernels)
        )

    return Doubt(
        compute=root(one.whole for one in errors),
        kernel=of_kernels(True),
        simple=of_kernels(False),
        link=root(one.copies for one in errors),
        program=root(value for one in errors for value in one.programs),
    )


# -- the command -------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", action="store_true", help="measure the widths on other networks, too")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of training a network")
    options = parser.parse_args()
    print(f"{processor()}; {thread_count()} thread(s); load {load_average():.1f}", flush=True)
    calibrate()
    if options.widths:
        errors = [model_error(name, batch, options.seconds) for name, batch in OTHERS.items()]
        rows = []
        for name, one in [*((each.network, widths([each])) for each in errors), ("width", widths(errors))]:
            rows.append([name, *(f"{value:.3f}" for value in astuple(one))])
        heads = ["network", "all kernels", "each with a choice", "each without", "copies", "each program"]
        print(markdown_table(heads, rows), flush=True)
    found = [row for name, batch in NETWORKS.items() for row in checked(name, batch, options.seconds)]
    rows = [
        [row.network, row.setup, f"{row.predicted:.2f}", f"{row.low:.2f}–{row.high:.2f}", f"{row.measured:.2f}",
         "yes" if row.inside else "no"]
        for row in found
    ]  # fmt: skip
    print(markdown_table(["network", "setup", "simulated ×", "5 to 95 %", "measured ×", "inside"], rows))
    inside = sum(row.inside for row in found)
    print(f"{inside} of {len(found)} are inside; asked: {ASKED} of 20. Load {load_average():.1f}.")


if __name__ == "__main__":
    main()

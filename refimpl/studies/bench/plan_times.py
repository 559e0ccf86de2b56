"""How long planning, verifying and simulating take, and how that grows with depth: `refimpl bench --planner`.

ResNets of the deep family and VGG-416 are planned with layer-wise liveness.  So is the deepest ResNet with all of
SuperNeurons: rebuilding, evicting and fetching, it has twice the instructions.  AccUDNN's policy and its tuner plan
several candidates, and so does vDNN++'s search for the least pool.  The search of the policy `combined` gives most of
its plans up early: one that offloads everything.

Seconds are processor time of this process, the least of some turns.  An exponent is the slope of the straight line
through log(seconds) over log(layers): 1 is linear.  That of each phase is over the ResNets with layer-wise liveness.
Every preset has one of its own, of planning alone, over ResNets of about 1,000, 3,000 and 10,000 layers; the budget
grows with them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from refimpl.combined import Combined, OnceDrained
from refimpl.combined.maps import Maps
from refimpl.combined.seeds import fates_of, seed
from refimpl.machine.here import load_average
from refimpl.machine.timing import Run, least_in_turns
from refimpl.memory import UNLIMITED
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.names.presets import PRESETS, baseline, setup
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, Setup, TooSlow, plan
from refimpl.report.tables import Table
from refimpl.studies.bench import written
from refimpl.studies.bench.written import verdict, versions
from refimpl.studies.tune.tuning import tune
from refimpl.text import counted, duration

PHASES = ("build", "plan", "verify", "simulate")


class PlanningCase(NamedTuple):
    """A network, its machine and a setup.  Without a preset: the baseline with layer-wise liveness."""

    network: str
    batch: int
    preset: str = ""
    machine: str = "titan-x"
    budget: int = UNLIMITED  #: bytes

    def __str__(self) -> str:
        return f"{self.network}, {self.preset}" if self.preset else self.network

    @property
    def setup(self) -> Setup:
        return setup(self.preset) if self.preset else baseline(liveness="layer-wise", algorithms="memory")


DEEP = ("resnet50", "resnet101", "resnet152", "resnet:302", "resnet:602", "resnet:1202", "resnet:2498")
SUPERNEURONS = PlanningCase("resnet:2498", 16, "superneurons", "k40c", 12 << 30)
ACCUDNN = PlanningCase("resnet152", 32, "accudnn", "titan-x", 3 << 30)
ACCUDNN_DEEP = SUPERNEURONS._replace(preset="accudnn")
VDNNPP_DYN, VDNNPP_ALL = (SUPERNEURONS._replace(preset=name) for name in ("vdnnpp-dyn", "vdnnpp-all"))
TUNE = PlanningCase("vgg16", 1, "accudnn", "titan-x", 12 << 30)  #: every batch of X(b) is planned
GIVEN_UP = PlanningCase("vgg16", 256, "combined", "titan-x", 12 << 30)
SEARCHED = (ACCUDNN_DEEP, VDNNPP_DYN, VDNNPP_ALL)
NETWORKS = (*(PlanningCase(name, 1) for name in DEEP), SUPERNEURONS, PlanningCase("vgg416", 32), ACCUDNN, *SEARCHED)

#: Limits: seconds for planning, verifying and simulating together, and for planning alone; growth.
TARGETS = {"resnet:2498": 5.0, str(SUPERNEURONS): 20.0, "vgg416": 0.5, str(ACCUDNN): 2.0}
PLAN_TARGETS = dict(zip(map(str, SEARCHED), (15.0, 20.0, 6.0), strict=True))
TUNE_SECONDS = 60.0  #: at most
GIVEN_UP_SECONDS = 3e-3  #: at most
EXPONENT = 1.1

SIZES = ("resnet:302", "resnet:902", "resnet:2999")  #: of about 1,000, 3,000 and 10,000 layers
IMAGES, GPU = 16, "k40c"
SHARES = (0.55, 0.9, 1.1)  #: of the baseline's peak; a preset has the first that it fits at the smallest size
EFFORT = 8  #: of the search of `combined`
PATIENCE = 300.0  #: seconds; a plan that is expected to take longer is not made
ALONE = 1.0  #: seconds; a plan that takes longer has one turn
PRESET_EXPONENT = 1.15
ROUNDS = len(NETWORKS) + 1 + len(PRESETS)  #: how often `run` calls its watch


@dataclass(frozen=True)
class PlanningRow:
    """One network; seconds of each phase."""

    network: str  #: and the preset, where it has one
    layers: int
    instructions: int
    build: float
    plan: float
    verify: float
    simulate: float

    @property
    def together(self) -> float:
        """Seconds of planning, verifying and simulating."""
        return self.plan + self.verify + self.simulate


@dataclass(frozen=True)
class Growth:
    """How long planning one preset takes at the sizes that were measured, the smallest first."""

    preset: str
    share: float  #: of the baseline's peak: the budget
    layers: list[int]
    seconds: list[float]

    @property
    def exponent(self) -> float:
        return slope(self.layers, self.seconds)

    @property
    def cells(self) -> list[str]:
        """The seconds; and for what was not measured, how long it would have taken."""
        not_measured = len(SIZES) - len(self.seconds)
        cells = [f"{seconds:.2f} s" for seconds in self.seconds]
        return cells + [f"not measured: more than {PATIENCE / 60:g} minutes expected"] * not_measured


@dataclass(kw_only=True)
class PlanningReport(written.Report):
    """How long planning takes, and how that grows."""

    title: ClassVar[str] = "Planning, verifying and simulating"
    option: ClassVar[str] = "planner"
    page: ClassVar[str] = "docs/speed.md"

    turns: int
    rows: list[PlanningRow]
    exponents: dict[str, float]  #: phase → growth with the number of layers of the ResNets
    tune: float  #: seconds of processor time of the tuner for `TUNE`
    given_up: float  #: of a plan of `GIVEN_UP` that is given up
    growth: list[Growth]  #: of every preset

    @property
    def how(self) -> str:
        return f"Seconds are processor time, the least of {counted(self.turns, 'turn')}."

    def tables(self) -> list[Table]:
        """Every network's phases, and in the last row how each phase grows; then the targets."""
        columns = (*PHASES, "together")
        body = [
            [row.network, f"{row.layers:,}", f"{row.instructions:,}", *(f"{getattr(row, of):.3f} s" for of in columns)]
            for row in self.rows
        ]
        body.append(["exponent", "", "", *(f"{self.exponents[name]:.2f}" for name in columns)])
        head = ["network", "layers", "instructions", *PHASES, "last three"]
        return [Table("the planner, seconds of processor time", head, body), self._presets(), self._targets()]

    def _presets(self) -> Table:
        """Every preset's seconds of planning, and how they grow."""
        layers = max((growth.layers for growth in self.growth), key=len, default=[])
        sizes = [f"{count:,} layers" for count in layers] + list(SIZES[len(layers) :])
        body = [[one.preset, f"{one.share:g}", *one.cells, f"{one.exponent:.2f}"] for one in self.growth]
        return Table("planning, every preset", ["preset", "budget", *sizes, "exponent"], body)

    def _targets(self) -> Table:
        taken = {row.network: row for row in self.rows}
        limits = [(name, "plan, verify, simulate", most, taken[name].together) for name, most in TARGETS.items()]
        limits += [(name, "plan", most, taken[name].plan) for name, most in PLAN_TARGETS.items()]
        growth = self.exponents["together"]
        steepest = max(self.growth, key=lambda one: one.exponent)
        body = [
            *([f"{name}: {phases}", f"{most:g} s", f"{seconds:.2f} s", verdict(seconds <= most)]
              for name, phases, most, seconds in limits),
            [f"tune {TUNE}, 12 GiB", f"{TUNE_SECONDS:g} s", f"{self.tune:.2f} s", verdict(self.tune <= TUNE_SECONDS)],
            [f"{GIVEN_UP}: a plan that is given up early", duration(GIVEN_UP_SECONDS), duration(self.given_up),
             verdict(self.given_up <= GIVEN_UP_SECONDS)],
            ["growth with the layers, exponent", f"{EXPONENT}", f"{growth:.2f}", verdict(growth <= EXPONENT)],
            ["growth of every preset, exponent", f"{PRESET_EXPONENT}",
             f"{steepest.exponent:.2f} ({steepest.preset})", verdict(steepest.exponent <= PRESET_EXPONENT)],
        ]  # fmt: skip
        return Table("targets", ["target", "at most", "measured", ""], body)


def processor_seconds(run: Run) -> float:
    """Of one run."""
    gc.collect()
    start = time.process_time()
    result = run()
    seconds = time.process_time() - start
    del result
    return seconds


def measure_tuner(turns: int) -> float:
    """The least processor time of the tuner in some turns."""
    chosen = machine(TUNE.machine)
    return min(processor_seconds(lambda: tune(TUNE.network, TUNE.setup, chosen, TUNE.budget)) for _ in range(turns))


def measure_given_up(turns: int) -> float:
    """The least processor time of a plan of `GIVEN_UP` that may take a twentieth more than the floor, in some turns."""
    network, chosen = build(GIVEN_UP.network, GIVEN_UP.batch), machine(GIVEN_UP.machine)
    maps = Maps(Context(network, chosen))
    everything_leaves = seed(fates_of(maps, tau=0.0, q=8), OnceDrained())

    def run() -> None:
        try:
            plan(network, everything_leaves, chosen, GIVEN_UP.budget, 1.05 * maps.floor)
        except TooSlow:
            return
        raise AssertionError("the plan was not given up")

    return min(processor_seconds(run) for _ in range(5 * turns))


def measure(case: PlanningCase, turns: int) -> PlanningRow:
    """The least processor time of each phase in some turns."""
    wanted, chosen = case.setup, machine(case.machine)
    made: dict[str, Any] = {"network": build(case.network, case.batch)}  # the first one imports what it needs

    def of_a_run(run: Run, _times: int) -> float:
        old = dict(made)  # what is replaced is freed after the measurement
        seconds = processor_seconds(run)
        del old
        return seconds

    least = least_in_turns(
        {
            "build": lambda: made.update(network=build(case.network, case.batch)),
            "plan": lambda: made.update(program=plan(made["network"], wanted, chosen, case.budget)),
            "verify": lambda: made["program"].verify(),
            "simulate": lambda: made["program"].simulate(),
        },
        of_a_run,
        turns,
    )
    return PlanningRow(str(case), len(made["network"].layers), len(made["program"].instructions), **least)


class Size(NamedTuple):
    """A network of `SIZES`, and what of its baseline the budgets are shares of."""

    network: Network
    peak_bytes: int

    @classmethod
    def named(cls, name: str) -> Size:
        network = build(name, IMAGES)
        return cls(network, plan(network, baseline(), machine(GPU), UNLIMITED).peak_bytes)

    def seconds(self, setup: Setup, share: float, turns: int) -> float | None:
        """The least processor time of planning within a share, in some turns; None if it does not fit."""

        def run() -> None:
            plan(self.network, setup, machine(GPU), int(share * self.peak_bytes))

        try:
            least = processor_seconds(run)
        except DoesNotFit:
            return None
        return min([least, *(processor_seconds(run) for _ in range(turns - 1 if least < ALONE else 0))])


def measure_growth(preset: str, sizes: Sequence[Size], turns: int) -> Growth:
    """The least processor time of a preset's plan at each size, up to the first that would take too long."""
    setup = PRESETS[preset].setup
    if isinstance(setup, Combined):
        setup = replace(setup, effort=EFFORT)  # the same number of plans at every size
    tried = ((share, sizes[0].seconds(setup, share, turns)) for share in SHARES)
    share, first = next((share, seconds) for share, seconds in tried if seconds is not None)
    layers, taken = [len(sizes[0].network.layers)], [first]
    for size in sizes[1:]:
        count = len(size.network.layers)
        exponent = slope(layers, taken) if len(taken) > 1 else 1.0
        if taken[-1] * (count / layers[-1]) ** exponent > PATIENCE:
            break
        seconds = size.seconds(setup, share, turns)
        if seconds is None:
            raise AssertionError(f"{preset} fits {share:g} of the baseline's peak for {layers[0]} layers, not {count}")
        layers.append(count)
        taken.append(seconds)
    return Growth(preset, share, layers, taken)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Of the straight line, by least squares, through log y over log x."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def run(quick: bool, watch: Callable[[str], None]) -> PlanningReport:
    """Measure every network; `watch` is called with each one's name before it starts."""
    turns, load, rows = 1 if quick else 3, load_average(), []
    for case in NETWORKS:
        watch(str(case))
        rows.append(measure(case, turns))
    watch(f"tune {TUNE}")
    tuner, given_up = measure_tuner(turns), measure_given_up(turns)
    sizes, growth = [Size.named(name) for name in SIZES], []
    for preset in PRESETS:
        watch(f"{preset}, {' '.join(SIZES)}")
        growth.append(measure_growth(preset, sizes, turns))
    return report(rows, turns, load, tuner, given_up, growth)


def report(
    rows: list[PlanningRow], turns: int, load: float, tuner: float, given_up: float, presets: list[Growth]
) -> PlanningReport:
    """The rows and the other seconds with where and when, and how the plain ResNets grow."""
    deep = [row for row in rows if row.network in DEEP]
    layers = [row.layers for row in deep]
    growth = {phase: slope(layers, [getattr(row, phase) for row in deep]) for phase in (*PHASES, "together")}
    return PlanningReport(
        versions=versions("numpy"), load=load, turns=turns, rows=rows, exponents=growth, tune=tuner, given_up=given_up,
        growth=presets,
    )  # fmt: skip

"""What the tests of the labs of modules check: each check is a function that returns the share reached, and why.

`ModuleTests` has a test for each.  A lab's file (`test_a3.py`) says which slots a submission fills, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import pytest

from refimpl.backend import Trainer
from refimpl.cli.parser import error_line
from refimpl.importing import own_code
from refimpl.memory import UNLIMITED
from refimpl.planner import DoesNotFit, Program, Setup, SetupError, plan
from refimpl.planner.verify import Unsafe
from refimpl.studies.optimum.bound import NoSolver, lower_bound
from refimpl.studies.program_file import document
from refimpl.text import counted
from tutorials.labs.cases import LAYER_WISE, Lab, LabCase, machine

CLOSE = 1.15  #: as good as the paper's: on average at most this many times its bytes, or its seconds
BOUNDED = ("lenet", "tiny-vgg")  #: whose lower bound takes a moment
STEPS = 2  #: of training
PAPERS = tuple(f"refimpl.{paper}" for paper in ("vdnn", "vdnnpp", "superneurons", "accudnn", "combined"))
Check = tuple[float, str]  #: the share of the points, and why
NOTHING: Check = (0.0, "no program; fits says why")


# -- a submission ------------------------------------------------------------------------------------------------------


def setup_of(path: Path, lab: Lab) -> Setup:
    """The lab's setup with the modules of a submission's file in its slots.

    Raises:
        RefimplError: the file cannot be executed, a name is missing, or is no module of its slot.
    """
    module = own_code.executed(str(path), path.stat().st_mtime_ns)
    whole = getattr(module, "setup", None) if "setup" in lab.may_fill else None
    if whole is not None:
        if not isinstance(whole, Setup):
            raise SetupError(f"setup is {whole!r}, not a setup; write setup = refimpl.presets.vdnn_all()")
        return whole
    found = {name: getattr(module, name) for name in (*lab.slots, *lab.may_fill) if hasattr(module, name)}
    if missing := [name for name in lab.slots if name not in found]:
        raise SetupError(f"the file has no {' and no '.join(missing)}; write, as in the lab's file, {missing[0]} = …")
    return lab.base.replace(name="submission", **found)


@dataclass(eq=False)
class Planned:
    """A case and the submission's program for it, if there is one."""

    case: LabCase
    lab: Lab
    program: Program | None = None
    why: str = ""  #: why there is no program, or why it is not proved

    @property
    def good(self) -> bool:
        return self.program is not None and not self.why

    @cached_property
    def seconds(self) -> float:
        assert self.program
        return self.program.simulate().seconds

    @cached_property
    def paper(self) -> Program | None:
        """The paper's program; None where the budget is too small for it."""
        try:
            return plan(self.case.built, self.lab.paper, machine(), self.case.budget)
        except DoesNotFit:
            return None


def planned(setup: Setup, lab: Lab, case: LabCase) -> Planned:
    """Plan a case with the submission's setup, and prove the program."""
    try:
        program = plan(case.built, setup, machine(), case.budget)
    except Exception as error:  # whatever the submission's modules raise
        return Planned(case, lab, why=error_line(error))
    try:
        program.verify()
    except Unsafe as error:
        return Planned(case, lab, program, error_line(error))
    return Planned(case, lab, program)


# -- the checks --------------------------------------------------------------------------------------------------------


def fits(plans: Sequence[Planned]) -> Check:
    """In how many cases there is a program."""
    unfit = [one for one in plans if not one.program]
    why = f"; {unfit[0].case}: {unfit[0].why}" if unfit else ""
    return 1 - len(unfit) / len(plans), f"{len(plans) - len(unfit)} of {counted(len(plans), 'case')}{why}"


def proved(plans: Sequence[Planned]) -> Check:
    """In how many cases `verify` proves the program.  One program without a proof is one too many."""
    for one in plans:
        if one.program and one.why:
            return 0.0, f"{one.case}: {one.why}"
    good = sum(one.good for one in plans)
    return good / len(plans), f"{good} of {counted(len(plans), 'program')}"


def repeatable(plans: Sequence[Planned], setup: Setup) -> Check:
    """Whether each program is the same when the cases are planned once more, the last one first."""
    for one in reversed([one for one in plans if one.program]):
        again = planned(setup, one.lab, one.case).program
        if again is None or one.program is None or document(again) != document(one.program):
            return (
                0.0,
                f"{one.case}: another program the second time; a module keeps something, or reads a clock",
            )
    return (1.0, "the same programs in another order") if any(one.program for one in plans) else NOTHING


def own_work(plans: Sequence[Planned], setup: Setup) -> Check:
    """Whether the modules are the submission's, and neither the project's nor made from a paper's."""
    for name in plans[0].lab.slots:
        kind, *bases = type(setup.module(name)).__mro__
        theirs = [one for one in bases if one.__module__.startswith(PAPERS)]
        if theirs or kind.__module__.startswith("refimpl."):
            return 0.0, f"{name} is the project's {(theirs or [kind])[0].__qualname__}; write your own"
    return (1.0, "the modules are the file's own") if any(one.program for one in plans) else NOTHING


def bits(plans: Sequence[Planned]) -> Check:
    """In how many small cases the weights, trained on the CPU, have the baseline's bits."""
    small = [one for one in plans if one.case.small]
    good = [one for one in small if one.good]
    for one in good:
        assert one.program
        if trained(one.program) != baseline_bits(one.case, tuple(sorted(one.program.algorithms.items()))):
            return 0.0, f"{one.case}: trained, its weights are not the baseline's"
    names = " and ".join(str(one.case) for one in good)
    return (len(good) / len(small), f"{names} trained: the baseline's to the bit") if good else NOTHING


def trained(program: Program) -> dict[str, bytes]:
    """Every weight and state after a few iterations, on batches that depend on the shapes alone."""
    network, numbers = program.network, np.random.default_rng(0)
    with Trainer(program, backend="cpu", rate=0.01) as trainer:
        for _ in range(STEPS):
            images = numbers.standard_normal(network.data[0].shape).astype(np.float32)
            trainer.step(images, numbers.integers(0, 10, network.batch).astype(np.int32))
        return {name: value.tobytes() for name, value in trainer.state().items()}


@lru_cache(maxsize=16)
def baseline_bits(case: LabCase, algorithms: tuple[tuple[str, str], ...]) -> dict[str, bytes]:
    """The same with memory enough, and the same algorithms."""
    return trained(plan(case.built, LAYER_WISE, machine().with_algorithms(dict(algorithms)), UNLIMITED >> 20))


def as_good(plans: Sequence[Planned], figure: Callable[[Program], float]) -> Check:
    """A figure is on average at most CLOSE times the paper's; twice as much has half of the points."""
    good = [one for one in plans if one.good and one.program]
    if not good:
        return NOTHING
    pairs = [(figure(one.program), figure(one.paper)) for one in good if one.program and one.paper]
    mean = fmean([ours / theirs for ours, theirs in pairs if theirs] or [1.0])
    why = f"{mean:.2f} × {plans[0].lab.paper.name}'s on average, in {len(good)} of {counted(len(plans), 'case')}"
    return len(good) / len(plans) * CLOSE / max(CLOSE, mean), why


def moved(program: Program) -> int:
    """Bytes that are copied between the device and the host."""
    counts = program.counts
    return counts.offloaded_bytes + counts.evicted_bytes + counts.prefetched_bytes + counts.on_demand_bytes


def distance(plans: Sequence[Planned]) -> Check:
    """How far the seconds are above the least that any policy of whole steps needs; none at `near` + 100 %."""
    bounded = [one for one in plans if one.case.network in BOUNDED]
    good = [one for one in bounded if one.good]
    if not good:
        return 0.0, "no program of a network whose bound takes a moment"
    try:
        above = max(0.0, fmean(one.seconds / least_seconds(one.case) - 1 for one in good))
    except NoSolver as error:
        pytest.skip(str(error))
    near = plans[0].lab.near
    names = ", ".join(str(one.case) for one in good)
    why = f"{above:.0%} above the least seconds that any policy of whole steps needs ({names}); {near:.0%} is near"
    return len(good) / len(bounded) * min(1.0, max(0.0, 1 + near - above)), why


@lru_cache(maxsize=64)
def least_seconds(case: LabCase) -> float:
    found = lower_bound(case.built, machine(), case.budget)
    assert found  # a program fits
    return found.seconds


# -- the tests ---------------------------------------------------------------------------------------------------------


class ModuleTests:
    """The tests of a lab whose submission is a file of modules: a subclass says which lab."""

    lab: ClassVar[Lab]

    @pytest.mark.points(30)
    def test_fits(self, plans: list[Planned], award: Any) -> None:
        award(*fits(plans))

    @pytest.mark.points(20)
    def test_proved(self, plans: list[Planned], award: Any) -> None:
        award(*proved(plans))

    @pytest.mark.points(10)
    def test_repeatable(self, plans: list[Planned], setup: Setup, award: Any) -> None:
        award(*repeatable(plans, setup))

    @pytest.mark.points(5)
    def test_own_work(self, plans: list[Planned], setup: Setup, award: Any) -> None:
        award(*own_work(plans, setup))

    @pytest.mark.points(10)
    def test_bits(self, plans: list[Planned], award: Any) -> None:
        award(*bits(plans))

    @pytest.mark.points(10)
    def test_bytes(self, plans: list[Planned], award: Any) -> None:
        award(*as_good(plans, moved if self.lab.bytes == "moved" else lambda program: program.arena_bytes))

    @pytest.mark.points(10)
    def test_seconds(self, plans: list[Planned], award: Any) -> None:
        award(*as_good(plans, lambda program: program.simulate().seconds))

    @pytest.mark.points(5)
    def test_distance(self, plans: list[Planned], award: Any) -> None:
        award(*distance(plans))

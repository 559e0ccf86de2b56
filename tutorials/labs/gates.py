"""What a submission has to pass before its mark counts: its programs are proved, repeatable, right, and its own work.

`Marked` has a test for each, and the mark is the last; `Counted` has the mark alone, for a kernel and a script.  Each
function returns a sentence; an empty one is a pass.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import numpy as np

import refimpl
from refimpl.backend import Trainer
from refimpl.cli.parser import error_line
from refimpl.memory import UNLIMITED
from refimpl.planner import Program, plan
from refimpl.slots import questions
from tutorials.labs.curve import Mark
from tutorials.labs.lab import LAYER_WISE, Case, Lab, Measured, machine

ROOT = str(Path(refimpl.__file__).parent) + os.sep
PAPERS = ("vdnn", "vdnnpp", "superneurons", "accudnn", "combined", "studies")
#: What decides: a submission writes it itself.
DECIDES = ("bind", "open", "search", "dead", "offloads", "leaves", "due", "drops", "sources", "chain", "victim")
#: What the labs' texts name as help, of `refimpl.slots` and `refimpl.memory`.
HELPERS = ("Departures", "Releases", "LastConsumerSends", "FitPool", "FreeList", "Pool", "Allocator", "lives")
STEPS = 2  #: of training


# -- own work ----------------------------------------------------------------------------------------------------------


def own_work(lab: Lab, modules: Mapping[str, Any], cases: Sequence[Case], folder: Path) -> str:
    """Whether the submission decides itself: who defines its methods, and which modules it asks while it plans.

    It cannot see text of others that was copied or typed again; `alike.py` compares syntax trees, and programs.
    """
    for slot, module in modules.items() if not lab.anything else ():
        if said := theirs(module):
            return f"{slot} is the project's own: {said}; write yours"
    found: list[str] = []
    for case in sorted(cases, key=lambda one: one.built.depth)[:2] if not lab.anything else ():
        with asked_of_the_project(found, str(folder), around(lab)), suppress(Exception):  # the cases say what is raised
            lab.figure_of(case, modules)
    return f"it asks the project's {found[0]} what to decide; write your own" if found else ""


def theirs(module: object) -> str:
    """The first deciding method that the project defines."""
    for name in DECIDES:
        method = getattr(type(module), name, None)
        if method is None or getattr(method, "__isabstractmethod__", False):
            continue
        if method.__module__.startswith("refimpl.") and method.__qualname__.split(".")[0] not in HELPERS:
            return f"{type(module).__name__}.{name} is {method.__module__}.{method.__qualname__}"
    return ""


def around(lab: Lab) -> set[type]:
    """The project's modules that a lab has in the other slots."""
    setups = lab.around.values()
    return {type(setup.module(slot)) for setup in setups for slot in setup.slots if slot not in lab.slots}


@contextmanager
def asked_of_the_project(found: list[str], folder: str, known: Collection[type]) -> Iterator[None]:
    """Note what of the papers' folders, and which `bind`, the submission's code calls or inherits.

    A plan within the plan may ask the modules that are `known`, and no others of the project.
    """

    def watch(frame: FrameType, event: str, argument: object) -> None:
        code, caller, owner = frame.f_code, frame.f_back, frame.f_locals.get("self")
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name in HELPERS:
            return
        where = caller.f_code.co_filename if caller else ""
        called = where.startswith(folder) and not where.startswith(ROOT) and "site-packages" not in where
        inherited = owner is not None and not type(owner).__module__.startswith("refimpl.")
        of_a_paper = code.co_filename[len(ROOT) :].split(os.sep)[0] in PAPERS
        planned = code.co_name == "bind" and where == questions.__file__ and not inherited and type(owner) not in known
        if (called and (of_a_paper or code.co_name == "bind")) or (inherited and of_a_paper) or planned:
            kind = f"{type(owner).__name__}." if owner is not None else ""
            found.append(f"{kind}{code.co_name} ({code.co_filename[len(ROOT) :]})")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)


# -- programs ----------------------------------------------------------------------------------------------------------


def unproved(measured: Sequence[Measured]) -> str:
    return next((one.unsafe for one in measured if one.unsafe), "")


def changing(lab: Lab, modules: Mapping[str, Any], measured: Sequence[Measured]) -> str:
    """Whether the first case has the same program after all the others."""
    for one in measured:
        if one.program is not None:
            if not lab.once_more(one.case, modules, one.program):
                return f"{one.case} has another program the second time; a module keeps something, or reads a clock"
            break
    return ""


def other_bits(lab: Lab, modules: Mapping[str, Any]) -> str:
    """Whether a small network, trained on the CPU, has the baseline's weights to the bit."""
    try:
        program = lab.planned(lab.trained, modules)
        program.verify()
    except Exception as error:  # whatever the submission's modules raise
        return f"{lab.trained}, which is trained: {error_line(error)}"
    if trained(program) != baseline_bits(lab.trained, tuple(sorted(program.algorithms.items()))):
        return f"{lab.trained}: trained, its weights are not the baseline's"
    return ""


def trained(program: Program) -> dict[str, bytes]:
    """Every weight and state after a few iterations, on batches that depend on the shapes alone."""
    network, numbers = program.network, np.random.default_rng(0)
    with Trainer(program, backend="cpu", rate=0.01) as trainer:
        for _ in range(STEPS):
            images = numbers.standard_normal(network.data[0].shape).astype(np.float32)
            trainer.step(images, numbers.integers(0, 10, network.batch).astype(np.int32))
        return {name: value.tobytes() for name, value in trainer.state().items()}


@lru_cache(maxsize=16)
def baseline_bits(case: Case, algorithms: tuple[tuple[str, str], ...]) -> dict[str, bytes]:
    """The same with memory enough, and the same algorithms."""
    return trained(plan(case.built, LAYER_WISE, machine().with_algorithms(dict(algorithms)), UNLIMITED >> 20))


# -- the tests ---------------------------------------------------------------------------------------------------------


class Counted:
    """The last test of a lab: a subclass says which lab."""

    lab: ClassVar[Lab]

    def test_the_mark(self, measured: list[Measured], marked: Callable[[Mark], None]) -> None:
        marked(Mark(measured, self.lab.table()[0], unproved(measured)))


class Marked:
    """The last tests of a lab of modules: a subclass says which lab."""

    lab: ClassVar[Lab]

    def test_every_program_is_proved(self, measured: list[Measured]) -> None:
        assert any(one.program for one in measured), measured[0].said
        assert not (said := unproved(measured)), said

    def test_two_plans_are_alike(self, measured: list[Measured], changed: str) -> None:
        assert any(one.program for one in measured), measured[0].said
        assert not changed, changed

    def test_it_is_your_own_work(self, measured: list[Measured], own: str) -> None:
        assert not own, own
        assert any(one.program for one in measured), measured[0].said

    def test_trained_weights_have_the_bits_of_plain_training(self, bits: str) -> None:
        assert not bits, bits

    def test_the_mark(
        self, measured: list[Measured], own: str, changed: str, bits: str, marked: Callable[[Mark], None]
    ) -> None:
        marked(Mark(measured, self.lab.table()[0], own or unproved(measured) or changed or bits))

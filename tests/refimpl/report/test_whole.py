"""Every report and every picture of a few small programs, whole: nothing in it may differ.

`whole/` has a file a program, with its tables, its document for programs, its page's data and its traces, and a file a
picture.  After a change that is meant to change them, `python -m tests.refimpl.report.test_whole` rewrites the files:
read the difference before you commit it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import Program, plan
from refimpl.report.attribution import attributions
from refimpl.report.batch_picture import batch_picture
from refimpl.report.comparison import Compared, Spread, compared
from refimpl.report.comparison_picture import comparison_picture
from refimpl.report.exports import chrome_trace, rmm_events, torch_snapshot
from refimpl.report.figures import fragmentation, memory_curve
from refimpl.report.json import plan_json
from refimpl.report.page.document import document
from refimpl.report.tables import compare_table, plan_table, steps_table, summary_table, tried_table
from refimpl.report.timeline_picture import timeline_picture
from refimpl.report.times import host_stays
from tests.refimpl.modules import machine
from tests.refimpl.report.drawn import facts, held
from tests.refimpl.report.programs import SMALL, baseline, compressing, evicting, offloading, sharing, timeline
from tests.refimpl.report.test_pictures import PICTURES

STORED = Path(__file__).parent / "whole"


@cache
def searching() -> Program:
    """A policy that has tried several setups, in little memory, with a pool that a search has found."""
    return plan(build("tiny-resnet", 16), setup("vdnn-dyn"), machine(), 9 << 20)


@cache
def parallel() -> Program:
    """Four ranks, whose gradients are reduced in small buckets."""
    return plan(build("tiny-resnet", 8).data_parallel(4, 1 << 14), setup("vdnn-all"), machine(), 1 << 30)


def several(possible: bool = False, papers: bool = False) -> list[Compared]:
    """Every program, and a setup that does not fit."""
    found = [compared(make.__name__, make(), timeline(make)) for make in SMALL]
    if papers:
        other = compared("another", sharing(), timeline(sharing))
        missing = Compared("no", 512, misfit="is too large"), Compared("nor this", 512, misfit="is too large")
        found = [replace(one, paper=f"paper of {one.name}") for one in found[:2]]
        return [replace(found[0], others=(other, *missing)), found[1]]
    if possible:
        spans = [np.linspace(0.9 - 0.1 * k, 1.0 + 0.2 * k, 21) for k in range(len(found))]
        found = [replace(one, possible=one.seconds * span) for one, span in zip(found, spans, strict=True)]
    return [*found, Compared("greedy", 512, misfit="fails at conv1 forward")]


def curve_of(program: Program) -> dict[str, list[float]]:
    """Held at every moment: the moments, their steps, and the bytes of each kind."""
    curve = memory_curve(program)
    arrays = {"positions": curve.positions, "steps": curve.steps, "total": curve.total} | curve.by_kind
    return {name: [float(value) for value in array] for name, array in arrays.items()}


def of_program(make: Callable[[], Program]) -> str:
    """Every report of a program."""
    program, when = make(), timeline(make)
    tables = [
        plan_table(program, when, 0.75 * when.seconds),
        summary_table(program.network),
        steps_table(program, when),
    ]
    if program.tried:
        tables.append(tried_table(program))
    documents = {
        "plan": plan_json(program, when, 0.5 * when.seconds), "page": document(program, when),
        "chrome": chrome_trace(program, when), "torch": torch_snapshot(program, when),
        "curve": curve_of(program), "holes": [[float(value) for value in row] for row in fragmentation(program).rows],
        "rmm": [str(event) for event in rmm_events(program, when)],
        "stays": [stay._asdict() if hasattr(stay, "_asdict") else str(stay) for stay in host_stays(program, when)],
        "attribution": attributions([("this", compared("this", program, when).attribution), ("none", None)]),
            }  # fmt: skip
    return "\n".join([*(table.text() for table in tables), *("".join(facts(*one[::-1])) for one in documents.items())])


def of_comparisons() -> str:
    """The table of several programs, in all its forms."""
    rows, possible = several(), several(possible=True)
    spread = Spread.of(possible, (possible[0].possible, 0.5) if possible[0].possible is not None else None)
    tables = [
        compare_table("fastest", rows), compare_table("baseline", rows, 0.5),
        compare_table("possible", possible, 0.5, spread), compare_table("papers", several(papers=True), 0.5),
    ]  # fmt: skip
    return "\n".join([*(table.text() for table in tables), held(comparison_picture("possible", possible, spread))])


def of_figure(draw: Callable[[], Figure]) -> str:
    return held(draw())


FIGURES: dict[str, Callable[[], Figure]] = {
    **{f"picture {name}": draw for name, (draw, _) in PICTURES.items() if name != "deep memory"},
    "picture window": lambda: timeline_picture(offloading(), timeline(offloading), range(5, 9)),
    "picture batches": lambda: batch_picture(
        "X(b)",
        "of a network",
        {1: 10.0, 2: 19.0, 8: 60.0, 32: 90.5},
        [("best", 32, 90.5), ("most", 32, 90.5), ("b0", 8, 60)],
    ),
}
WHOLE: dict[str, Callable[[], str]] = {
    **{make.__name__: partial(of_program, make)
       for make in (baseline, evicting, sharing, compressing, searching, parallel)},
    "comparison": of_comparisons,
    **{name: partial(of_figure, draw) for name, draw in FIGURES.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_it_is_the_same(name: str) -> None:
    assert WHOLE[name]() == (STORED / f"{name.replace(' ', '-')}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    STORED.mkdir(exist_ok=True)
    for name, text in WHOLE.items():
        (STORED / f"{name.replace(' ', '-')}.txt").write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{len(WHOLE)} files written\n")

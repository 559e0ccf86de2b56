"""Lab A2, waits: pytest tutorials/labs/test_a2.py --submission mine.py"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

import pytest

from refimpl.planner import Copy, CopyIn, CopyOut, Launch
from tutorials.labs.gates import Counted, unproved
from tutorials.labs.lab import Measured
from tutorials.labs.waits import BATCH, FUNCTION, Clash, ScriptLab, clashes, mark_of, needless, own, waits_of

LAB = ScriptLab("a2", (FUNCTION,), {}, unit=lambda waits: f"{waits:.0f} waits")
FEWEST = 9  #: waits with which every batch is safe, if they may be anywhere
Work = type[Copy] | type[Launch]


@pytest.fixture(scope="module")
def unordered(modules: dict[str, Any]) -> list[Clash]:
    """What no wait of the submission orders, with the script's own batch."""
    return clashes(BATCH, modules[FUNCTION])


def refuse(unordered: list[Clash], first: Work, second: Work, backward: bool | None = None) -> None:
    """Say what is not ordered within an iteration, of such pairs of work."""
    for clash in unordered:
        if clash.before or not isinstance(clash.first.work, first) or not isinstance(clash.second.work, second):
            continue
        if backward in (None, clash.second.work.step > own(BATCH).network.depth):
            pytest.fail(clash.said(), pytrace=False)


# -- step 1: what is missing -------------------------------------------------------------------------------------------


def test_forward_reads_the_batch_after_it_is_copied_in(unordered: list[Clash]) -> None:
    refuse(unordered, CopyIn, Launch, backward=False)


def test_a_map_is_copied_out_after_its_last_writer(unordered: list[Clash]) -> None:
    refuse(unordered, Launch, CopyOut)


def test_no_kernel_overwrites_a_map_while_it_is_copied_out(unordered: list[Clash]) -> None:
    refuse(unordered, CopyOut, Launch)


def test_backward_reads_a_map_after_it_is_copied_in(unordered: list[Clash]) -> None:
    refuse(unordered, CopyIn, Launch, backward=True)


def test_nothing_is_copied_in_over_bytes_that_a_kernel_uses(unordered: list[Clash]) -> None:
    refuse(unordered, Launch, CopyIn)


# -- step 2: what one run does not show --------------------------------------------------------------------------------


def test_the_next_iteration_waits_too(unordered: list[Clash]) -> None:
    """The proof gives the streams a second iteration at once, and the script could."""
    for clash in unordered:
        if clash.before:
            pytest.fail(clash.said(), pytrace=False)


def test_other_batches_are_safe(measured: list[Measured]) -> None:
    assert not (said := unproved(measured)), said


# -- steps 3 and 4: what is needless -----------------------------------------------------------------------------------


def test_no_wait_is_needless(modules: dict[str, Any], measured: list[Measured]) -> None:
    assert not (said := unproved(measured)), said
    body = modules[FUNCTION]
    if found := needless([one.case.batch for one in measured], body):
        streams = " and ".join(f"{number} of `{name}`" for name, number in Counter(map(stream_of, found)).items())
        pytest.fail(f"{len(found)} of {len(waits_of(body))} waits can go, each by itself: {streams}", pytrace=False)


def stream_of(wait: ast.stmt) -> str:
    mark = mark_of(wait)
    return mark.stream if mark else ""


def test_nine_waits_are_enough(modules: dict[str, Any], measured: list[Measured]) -> None:
    assert not (said := unproved(measured)), said
    waits = len(waits_of(modules[FUNCTION]))
    assert waits <= FEWEST, f"{waits} waits; at the right places {FEWEST} order everything"


class TestMark(Counted):
    lab = LAB

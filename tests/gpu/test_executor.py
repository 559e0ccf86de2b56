"""The executor on a GPU: the bits of the baseline, no race, and one where a wait is left out, unless it is a join's."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.copies import NoGpu
from kernels.targets import emulated
from kernels.targets.shim import cuda
from refimpl.executor import Action, Executor
from refimpl.network import Builder, Network
from refimpl.slots.setup import BASELINE, Setup
from tests.refimpl.plainly import draw_batch
from tests.refimpl.test_executor import PAPERS, learnt, least


def small() -> Network:
    b = Builder("small", (2, 1, 8, 8))
    for _ in range(2):
        b.conv(4, 3, pad=1)
        b.relu()
        b.pool(2)
    b.fc(3)
    b.softmax()
    return b.build()


NETWORK = small()


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["vdnn-all", "vdnnpp-all", "superneurons"])
def test_every_setup_learns_what_the_baseline_learns(preset: str) -> None:
    setup = PAPERS[preset]
    assert learnt(NETWORK, setup, least(NETWORK, setup), cuda) == learnt(NETWORK, BASELINE, 1 << 20, cuda)


@pytest.mark.emulated
@pytest.mark.slow
@pytest.mark.parametrize("order", emulated.ORDERS)
def test_no_race_is_found_in_any_order(order: str) -> None:
    emulated.order(order, 1)
    try:
        for setup in (PAPERS["vdnn-all"], PAPERS["superneurons"]):
            emulated.forgive()
            learnt(NETWORK, setup, least(NETWORK, setup), cuda)
            assert emulated.forgive() == [], setup.name
    finally:
        emulated.order("late")


class WithoutAWait:
    """A GPU on which one wait does nothing; the host goes on as if it had waited."""

    def __init__(self, number: int) -> None:
        self.number, self.waits = number, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(cuda, name)

    def event(self) -> Any:
        event = cuda.event()
        return SimpleNamespace(record=event.record, wait=partial(self.wait, event))

    def wait(self, event: Any, stream: Any) -> None:
        self.waits += 1
        if self.waits != self.number:
            event.wait(stream)


def waits_of(actions: Iterable[Action]) -> list[bool]:
    """Of each wait, whether it belongs to a join."""
    found, joins = [], False
    for action in actions:
        joins = action.what == "join" or (joins and action.what == "wait")
        found += [joins] if action.what == "wait" else []
    return found


@pytest.mark.emulated
@pytest.mark.slow
@pytest.mark.parametrize("preset", ["vdnn-all", "superneurons"])
def test_a_wait_that_is_left_out_is_found_unless_it_is_a_joins(preset: str) -> None:
    """vDNN's join at the end of a layer is policy, and not safety; so is, for all, the join that ends the iteration."""
    gc.collect()
    gc.disable()  # an earlier test's arrays that are freed meanwhile would hold up all streams
    try:
        joins, found = waits_that_are_found(PAPERS[preset])
    finally:
        gc.enable()
    assert [number for number, join in enumerate(joins, 1) if not (join or found[number - 1])] == []
    assert False in found  # which of a join's are missed depends on how late the streams run


def waits_that_are_found(setup: Setup) -> tuple[list[bool], list[bool]]:
    """Of each wait, whether it belongs to a join, and whether leaving it out is found."""
    held, found = [], []
    nbytes, batch = least(NETWORK, setup), draw_batch(NETWORK)
    joins = waits_of(Executor(NETWORK, setup, nbytes, NoGpu()).iteration(*batch))
    for number in range(1, len(joins) + 1):
        emulated.forgive()
        held.append(Executor(NETWORK, setup, nbytes, WithoutAWait(number)))  # to free one holds up all streams
        held[-1].train(*batch)
        found.append(bool(emulated.forgive()))
    return joins, found

"""The host's thread: work in order, failures and pieces that never end, and what must wait for it."""

from __future__ import annotations

import dataclasses
import threading
from itertools import pairwise
from typing import Any

import pytest

from refimpl.backend import CopiesLate, DeviceFailed, RunError, host_thread
from refimpl.backend.host_thread import HostThread, HostWork, Piece, host_stream, work_to_await
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.planner import FromStore, Launch, Program, ToStore
from refimpl.vdnnpp.packing import packed_limit
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trainer
from tests.refimpl.modules import least_plan
from tests.refimpl.plainly import draw_batch
from tests.refimpl.planner.mutations import inserted

pytestmark = pytest.mark.vdnnpp

KEEPS_UP = dataclasses.replace(MACHINE, host_rate=1e12)  # the threads are done with a map before the next one comes


@pytest.fixture(scope="module")
def program() -> Program:
    made = least_plan(build("tiny-vgg:vdnnpp", 8), presets.vdnnpp_all(), KEEPS_UP, 0.3)
    assert sum(isinstance(i, ToStore) for i in made.instructions) >= 2
    return made


def test_a_failure_is_told_and_what_stands_on_it_is_skipped() -> None:
    thread, done, counted = HostThread(), [], []

    def fail() -> None:
        raise ValueError("no\nsuch map")

    for i, work in enumerate((lambda: done.append(0), fail, lambda: done.append(2))):
        thread.start(Piece(f"compressing {i}", work, ended=lambda i=i: counted.append(i)))  # type: ignore[misc]
    with raises_naming(DeviceFailed, 1) as caught:
        thread.finish()
    assert isinstance(caught.value.__cause__, ValueError)
    assert done == [0] and counted == [0, 1, 2]  # a wait for the third ends
    thread.start(Piece("compressing 3", lambda: done.append(3)))  # another iteration
    thread.finish()
    assert done == [0, 3]


def test_a_piece_that_never_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_thread, "PATIENCE", 0.05)
    thread, gate = HostThread(), threading.Event()

    def waits() -> None:
        gate.wait(10)

    thread.start(Piece("compressing conv1", waits))
    thread.start(Piece("compressing conv2", lambda: None))
    with raises_naming(DeviceFailed, "conv1", "0.05"):
        thread.finish()
    with raises_naming(DeviceFailed, "conv1", "0.05"):
        thread.start(Piece("compressing conv3", lambda: None))
    gate.set()


def test_one_map_in_two_places_of_the_store(program: Program) -> None:
    """Each decompressing reads the place that it names."""
    index = next(p for p, i in enumerate(program.instructions) if isinstance(i, ToStore))
    first: Any = program.instructions[index]
    assert any(isinstance(i, FromStore) and i.tensor is first.tensor for i in program.instructions)
    twice = inserted(program, index + 1, dataclasses.replace(first, store_address=program.store_bytes))
    larger = dataclasses.replace(twice, store_bytes=program.store_bytes + packed_limit(first.nbytes))
    larger.verify()
    for order, poison in ((None, False), (CopiesLate(), True)):
        with trainer(larger, order=order, poison=poison) as made:
            made.device.store[program.store_bytes :] = 0x55
            made.step(*draw_batch(program.network))
            assert differing(made.state(), plain_training(program, 1)) == []


def test_packing_runs_beside_the_kernels(program: Program) -> None:
    """A piece is not done before a kernel that does not wait for it is."""
    awaited = work_to_await(program, host_stream(program))
    packing, kernel = next(
        (first, p)
        for first, piece in enumerate(program.instructions)
        if isinstance(piece, (ToStore, FromStore))
        for p in range(first + 1, min([q for q, needed in awaited.items() if q > first and needed >= first]))
        if isinstance(program.instructions[p], Launch)
    )
    ran, waited = threading.Event(), list[bool]()
    with trainer(program) as made:
        work: Any = made.replay._work  # type: ignore[attr-defined]
        (compress,) = work[packing]

        def once_it_ran() -> None:
            waited.append(ran.wait(60))
            compress()

        work[packing] = [once_it_ran]
        work[kernel].append(ran.set)
        made.step(*draw_batch(program.network))
        assert waited == [True]
        timeline = made.timeline()
    compressing = [span for span in timeline.spans if span.engine == "host"]
    assert [span.instruction for span in compressing] == [
        i for i in program.instructions if isinstance(i, (ToStore, FromStore))
    ]
    assert all(a.end <= b.start for a, b in pairwise(compressing))
    assert all(0 <= span.start <= span.end <= timeline.seconds for span in timeline.spans)


@pytest.mark.parametrize("guard", [True, False])
def test_a_failure_cuts_the_iteration_off(program: Program, monkeypatch: pytest.MonkeyPatch, guard: bool) -> None:
    def fail(self: HostWork, work: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(HostWork, "run", fail)
    with trainer(program, guard=guard) as made:
        with raises_naming(DeviceFailed, "conv1_1", 5, "MemoryError"):
            made.step(*draw_batch(program.network))
        with raises_naming(RunError, "checkpoint"):
            made.step(*draw_batch(program.network))
        with raises_naming(RunError, "checkpoint"):
            made.timeline()

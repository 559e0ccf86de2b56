"""Programs whose maps are compressed by the host's threads, on the cuda backend.  Run by `test_host_code.py`.

The threads, their work and the copies are real; the kernels compute nothing, so the maps are what the tests put into
the arena.
"""

from __future__ import annotations

import ctypes
import dataclasses
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as driver_api

from kernels.fast import relu
from kernels.targets import gpu
from refimpl.backend import DeviceFailed, RunError, Trainer, host_thread
from refimpl.backend.host_thread import HostWork, host_stream
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.planner import CopyIn, CopyOut, FromStore, Launch, Program, Record, ToStore, Wait
from tests.host.backend_calls import driver, held, made, noted, on_gpu
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE
from tests.refimpl.modules import least_plan
from tests.refimpl.plainly import draw_batch
from tests.refimpl.planner.mutations import through_the_host

driver.emulated_event_waits.restype = ctypes.c_long
KEEPS_UP = dataclasses.replace(MACHINE, host_rate=1e12)  # the threads are done with a map before the next one comes


@pytest.fixture(scope="module")
def program() -> Program:
    made_ = least_plan(build("tiny-vgg:vdnnpp", 8), presets.vdnnpp_all(), KEEPS_UP, 0.3)
    assert sum(isinstance(i, ToStore) for i in made_.instructions) >= 2
    return made_


def opened(program: Program, **given: Any) -> Trainer:
    trainer = Trainer(program, backend="cuda", guard=False, **given)
    losses = program.network.losses  # no launch will write them
    trainer.device.write(program.resident[losses], np.zeros(losses.shape, np.float32))
    return trainer


@pytest.fixture
def trainer(program: Program) -> Iterator[Trainer]:
    with opened(program) as made_:
        made_.step(*draw_batch(program.network))
        yield made_


def calls(trainer: Trainer) -> Iterator[tuple[str, int, int | None]]:
    """The calls of one iteration, read off the program: what, which stream, and for a wait for the host its value."""
    program, host = trainer.program, host_stream(trainer.program)
    records = 0
    recorded: dict[int, int] = {}  #: event of the host's stream → records up to it
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Record) and instruction.stream == host:
            records += 1
            recorded[instruction.event] = records
        elif isinstance(instruction, Wait) and instruction.event in recorded and instruction.stream != host:
            yield "wait value", instruction.stream, recorded[instruction.event]
        elif isinstance(instruction, (Record, Wait)) and instruction.stream != host:
            yield instruction.op, instruction.stream, None
        elif isinstance(instruction, Launch):
            for _ in trainer.replay._bound.launches[position]:  # type: ignore[attr-defined]
                yield "launch", instruction.stream, None
        elif isinstance(instruction, (CopyIn, CopyOut)):
            yield instruction.op, instruction.stream, None


def test_the_streams_are_told_to_wait_for_the_threads(trainer: Trainer) -> None:
    event_waits = driver.emulated_event_waits()
    notes = noted(lambda: trainer.step(*draw_batch(trainer.network)))
    wanted = list(calls(trainer))
    assert [note.what.decode() for note in notes] == [what for what, _, _ in wanted]
    handles = [int(stream.handle) for stream in on_gpu(trainer).streams]
    assert [note.stream for note in notes] == [handles[stream] for _, stream, _ in wanted]
    values = [(note.host, note.bytes) for note in notes if note.what == b"wait value"]
    assert values == [(value, 0) for _, _, value in wanted if value is not None] != []  # 0: at least, cyclic
    assert len({note.device for note in notes if note.what == b"wait value"}) == 1
    assert driver.emulated_event_waits() > event_waits
    host = host_stream(trainer.program)
    assert len(handles) == host  # the host's stream is none of the driver's


def test_order_through_the_threads_without_any_work(trainer: Trainer) -> None:
    """A stream waits for the host's, which has waited for another and done nothing since: the thread passes it on."""

    def values(trainer: Trainer) -> list[int]:
        notes = noted(lambda: trainer.step(*draw_batch(trainer.network)))
        found = [note.host for note in notes if note.what == b"wait value"]
        assert found == [value for _, _, value in calls(trainer) if value is not None]
        return found

    relayed = through_the_host(trainer.program)
    relayed.verify()
    before = values(trainer)
    with opened(relayed) as other:
        assert len(values(other)) == len(before) + 1


def test_an_iteration_allocates_nothing(trainer: Trainer) -> None:
    before = made()
    for i in range(3):
        trainer.step(*draw_batch(trainer.network, i))
    assert made() == before


def test_what_is_compressed_comes_back(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every map as it left, in whichever buffer, with kernels or without; and it is written down."""
    left: dict[Any, bytes] = {}
    came_back: list[Any] = []
    real = HostWork.run

    def run(self: HostWork, work: ToStore | FromStore) -> None:
        given = self._pinned[work.pinned_address : work.pinned_address + work.nbytes]
        if isinstance(work, ToStore):
            left[work.tensor] = given.tobytes()
            real(self, work)
            given[:] = 255  # another map's buffer now
        else:
            real(self, work)
            assert given.tobytes() == left[work.tensor]
            came_back.append(work.tensor)

    with monkeypatch.context() as patched, opened(program) as trainer:
        patched.setattr(HostWork, "run", run)
        some = np.random.default_rng(0).random(program.arena_bytes // 4, np.float32)
        some[some < 0.7] = 0
        trainer.device.write(0, some)
        losses = program.network.losses
        trainer.device.write(program.resident[losses], np.zeros(losses.shape, np.float32))
        trainer.step(*draw_batch(program.network))
        compressed = trainer.compressed
    decompressed = [i.tensor for i in program.instructions if isinstance(i, FromStore)]
    assert came_back == decompressed != []
    planned = [i.tensor.name for i in program.instructions if isinstance(i, ToStore)]
    assert [one.tensor for one in compressed] == planned
    assert any(0.2 < one.density < 0.4 and one.stored < 0.6 * one.nbytes for one in compressed)
    assert all(one.compress_seconds > 0 for one in compressed)
    assert {one.tensor for one in compressed if one.decompress_seconds > 0} == {tensor.name for tensor in decompressed}


def test_a_timeline_has_the_host_work(trainer: Trainer) -> None:
    timeline = trainer.timeline()
    work = (Launch, CopyIn, CopyOut, ToStore, FromStore)
    wanted = [i for i in trainer.program.instructions if isinstance(i, work)]
    assert sorted(map(id, wanted)) == sorted(id(span.instruction) for span in timeline.spans)
    compressing = [span for span in timeline.spans if span.engine == "host"]
    assert all(0 < span.start <= span.end <= timeline.seconds for span in compressing)
    assert all(a.end <= b.start for a, b in pairwise(compressing))  # in order


@pytest.mark.parametrize("guard", [False, True])
def test_a_piece_that_fails_is_one_line_and_no_hang(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, guard: bool
) -> None:
    """The streams wait until the counter has its value, whatever has become of the piece."""
    done: list[Any] = []
    trainer.guard = guard

    def run(self: HostWork, work: Any) -> None:
        done.append(work)
        raise ValueError("a map that\ncannot be compressed")

    monkeypatch.setattr(HostWork, "run", run)
    with raises_naming(DeviceFailed, "host's", "map"):
        trainer.step(*draw_batch(trainer.network))
    assert len(done) == 1  # what follows it has no input
    with raises_naming(RunError, "checkpoint"):
        trainer.step(*draw_batch(trainer.network))
    monkeypatch.undo()
    trainer.load_state(trainer.state())
    trainer.step(*draw_batch(trainer.network))


@pytest.mark.parametrize("guard", [False, True])
def test_a_piece_that_never_ends_is_an_error(program: Program, monkeypatch: pytest.MonkeyPatch, guard: bool) -> None:
    """The iteration is issued to its end; then the wait says for what."""
    stuck = threading.Event()
    trainer = opened(program)
    worker = trainer.replay._host._thread._thread  # type: ignore[attr-defined]
    trainer.guard = guard
    monkeypatch.setattr(host_thread, "PATIENCE", 0.3)
    monkeypatch.setattr(HostWork, "run", lambda self, work: stuck.wait(20))
    try:
        issued: list[Any] = []

        def step() -> None:
            with raises_naming(DeviceFailed, "0.3"):
                trainer.step(*draw_batch(trainer.network))

        issued = noted(step)
        wanted = list(calls(trainer))
        assert guard or len(issued) == len(wanted)  # no thread waited while the work was issued
        counter = trainer.device._counter  # type: ignore[attr-defined]
        assert counter[0] > len(wanted)  # no stream is held any more
        with raises_naming(RunError, "checkpoint"):
            trainer.step(*draw_batch(trainer.network))
        with pytest.raises(DeviceFailed, match="still compressing"):
            trainer.load_state(trainer.state())
            trainer.step(*draw_batch(trainer.network))
    finally:
        stuck.set()
        trainer.close()
        worker.join(1)  # what it had in its queue is done by then


def test_everything_is_given_back(program: Program) -> None:
    before, threads = held(), threading.active_count()
    trainer = opened(program)
    trainer.step(*draw_batch(program.network))
    assert held() == before + 2  # one arena on either side
    frees = driver.emulated_frees()
    trainer.close()
    assert driver.emulated_frees() == frees + 2  # at once
    assert held() == before
    deadline = time.monotonic() + 60
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= threads  # its thread ends with it


def test_a_stream_that_cannot_wait_is_one_line(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = (driver_api.CUresult.CUDA_ERROR_NOT_SUPPORTED,)
    monkeypatch.setattr(driver_api, "cuStreamWaitValue32", lambda *_: refused)
    with raises_naming(DeviceFailed, "CUDA_ERROR_NOT_SUPPORTED"):
        trainer.step(*draw_batch(trainer.network))


@pytest.mark.parametrize("what", ["launch", "synchronise a stream", "synchronise an event"])
def test_calls_that_may_last_let_other_threads_run(trainer: Trainer, what: str) -> None:
    """Where the driver's queue is full a launch waits for the GPU, which may wait for the compressing thread."""
    stream = on_gpu(trainer).streams[0]
    x = gpu.to_device(np.ones(64, np.float32))
    event = on_gpu(trainer).event(0).handle
    from kernels.targets.launch import bind

    (bound,) = bind(relu.forward, x=x, y=x)
    acts: dict[str, Any] = {
        "launch": lambda: bound.run(stream),
        "synchronise a stream": stream.sync,
        "synchronise an event": lambda: driver_api.cuEventSynchronize(event),
    }
    acts[what]()
    moments: list[float] = []
    over = threading.Event()

    def tick() -> None:
        while not over.is_set():
            moments.append(time.monotonic())
            time.sleep(0.005)

    ticking = threading.Thread(target=tick)
    ticking.start()
    driver.emulated_slow(400_000)
    try:
        began = time.monotonic()
        acts[what]()
        ended = time.monotonic()
    finally:
        driver.emulated_slow(0)
        over.set()
        ticking.join()
    assert sum(began < moment < ended for moment in moments) > 1  # else one at most, before the call

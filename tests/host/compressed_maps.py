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
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as driver_api

from kernels.fast import relu
from kernels.targets import gpu
from refimpl.backend import Trainer
from refimpl.backend.host_thread import host_stream
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.planner import CopyIn, CopyOut, Launch, Program, Record, ToStore, Wait
from tests.host.backend_calls import driver, noted, on_gpu
from tests.refimpl.backend.running import MACHINE
from tests.refimpl.modules import least_plan
from tests.refimpl.plainly import draw_batch

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

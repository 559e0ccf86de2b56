"""A program whose allocator is `driver-calls`, on the cuda backend.  Run by `test_host_code.py`.

Every allocation and every free is a call, of the right size and at its place among the launches; the bits come from the
arena as ever, so nothing else may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as driver_api

from refimpl.backend import DeviceFailed, RunError, Trainer
from refimpl.backend.cuda import CudaReplay
from refimpl.memory import DriverCalls
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.planner import Allocate, CopyIn, CopyOut, Free, Launch, Program, Record, Wait
from refimpl.studies.reproduce import measured
from refimpl.studies.reproduce.superneurons import measured as superneurons_measured
from refimpl.superneurons import presets as stages
from tests.host.backend_calls import held, made, noted
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, small_network
from tests.refimpl.modules import least_plan
from tests.refimpl.plainly import draw_batch


@pytest.fixture(scope="module")
def program() -> Program:
    return least_plan(small_network(), stages.everything().replace(allocator=DriverCalls()), MACHINE)


def begun(program: Program) -> Trainer:
    """A trainer that has learnt from one batch."""
    opened = Trainer(program, backend="cuda", guard=False)
    losses = program.network.losses  # no launch will write them
    opened.device.write(program.resident[losses], np.zeros(losses.shape, np.float32))
    opened.step(*draw_batch(program.network))
    return opened


@pytest.fixture
def trainer(program: Program) -> Iterator[Trainer]:
    with begun(program) as opened:
        yield opened


def test_every_allocation_and_free_is_a_call_at_its_place(trainer: Trainer) -> None:
    replay = trainer.replay
    assert isinstance(replay, CudaReplay)
    wanted: list[tuple[str, int]] = []
    for position, instruction in enumerate(trainer.program.instructions):
        if isinstance(instruction, Launch):
            wanted += [("launch", 0)] * len(replay._bound.launches[position])
        elif isinstance(instruction, (CopyIn, CopyOut, Allocate)):
            wanted.append((instruction.op, instruction.nbytes))
        elif isinstance(instruction, (Free, Record, Wait)):
            wanted.append((instruction.op, 0))
    notes = noted(trainer.repeat)
    assert [(note.what.decode(), note.bytes) for note in notes] == wanted
    blocks: dict[int, int] = {}  #: what the driver gave and has not got back
    for note in notes:
        if note.what == b"allocate":
            blocks[note.device] = note.bytes
        elif note.what == b"free":
            del blocks[note.device]
    assert blocks == {}


def test_the_calls_are_counted_and_timed(trainer: Trainer) -> None:
    times = trainer.driver_calls
    allocations = sum(isinstance(i, Allocate) for i in trainer.program.instructions)
    assert times is not None and times.allocations == times.frees == allocations > 0
    assert 0 < times.allocating and 0 < times.freeing and times.seconds == times.allocating + times.freeing
    trainer.repeat()
    assert trainer.driver_calls is not times and trainer.driver_calls is not None
    assert trainer.driver_calls.allocations == allocations  # of one iteration, not of two


def test_the_heap_makes_no_call(program: Program) -> None:
    with begun(least_plan(program.network, stages.everything(), MACHINE)) as trainer:
        before = made()
        trainer.repeat()
        assert trainer.driver_calls is None
        assert made() == before


def test_an_iteration_that_is_cut_off_keeps_nothing(program: Program, monkeypatch: Any) -> None:
    """Refused in the middle: one clear line; all that it had allocated is given back."""
    before = held()
    calls = 0

    def refuse(nbytes: int) -> tuple[Any, ...]:
        nonlocal calls
        calls += 1
        return allocate(nbytes) if calls < 5 else (driver_api.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)

    allocate = driver_api.cuMemAlloc
    trainer = Trainer(program, backend="cuda")
    monkeypatch.setattr(driver_api, "cuMemAlloc", refuse)
    with raises_naming(DeviceFailed, "GPU", "cuMemAlloc"):
        trainer.step(*draw_batch(program.network))
    with raises_naming(RunError, "checkpoint"):
        trainer.repeat()
    trainer.close()
    assert held() == before


def test_the_heap_and_the_driver_are_measured_side_by_side() -> None:
    network = build("tiny-vgg", 2)
    ask = measured.Request(None, None, "superneurons", machine("here"), "12GiB", "cuda", 2)
    found = superneurons_measured.against_driver_calls(network, ask)
    times = found.calls.driver_calls
    assert found.heap.driver_calls is None and times is not None and times.allocations == times.frees > 0
    assert 0 < found.share_inside < 1 and found.share < 1
    table = superneurons_measured.pools_table(found)
    assert table.title.startswith("tiny-vgg(2)") and table.head == ["", "block-heap", "driver-calls"]
    published = next(row for row in table.rows if row[0].startswith("published"))
    assert published[2] == "36 %"


def test_a_comparison_is_measured(program: Program) -> None:
    """All that `--run` does with the cuda backend, but for the numbers."""
    ask = measured.Request(None, None, "superneurons", machine("here"), "3MiB", "cuda", 2)
    found = ask.compare(build("tiny-resnet:superneurons", 8), 3 << 20)
    assert found.within.peak_bytes <= 3 << 20 < found.without.peak_bytes
    assert found.within.moved_bytes > 0 == found.without.moved_bytes and found.within.host_seconds is not None

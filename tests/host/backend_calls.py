"""What the cuda backend tells the driver.  Run by `test_host_code.py`.

A launch computes nothing there, so these tests are about calls: which, in which order, on which stream, at what cost.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from kernels.targets import gpu
from kernels.targets.shim import cuda
from refimpl.backend import DeviceFailed, Trainer
from refimpl.backend.cuda import CudaDevice, CudaReplay
from refimpl.planner import COMPUTE, CopyIn, CopyOut, Launch, Program, Record, Wait
from tests.refimpl.backend.running import small_program
from tests.refimpl.modules import OffloadSome, PrefetchAhead
from tests.refimpl.plainly import draw_batch


class Note(ctypes.Structure):
    """As in journal.h: one piece of work given to a stream."""

    what: bytes
    stream: int | None
    device: int
    host: int
    bytes: int
    event: int | None
    _fields_ = (
        ("what", ctypes.c_char * 16),
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_uint64),
        ("host", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("event", ctypes.c_void_p),
    )


driver = ctypes.CDLL("libcuda.so.1")
driver.emulated_keep_books(1)
driver.emulated_noted.restype = driver.emulated_created.restype = ctypes.c_long
driver.emulated_allocations.restype = driver.emulated_frees.restype = ctypes.c_long
driver.emulated_note.restype = ctypes.POINTER(Note)


def noted(act: Any) -> list[Note]:
    """What reaches the driver while `act` runs."""
    before = driver.emulated_noted()
    act()
    return [driver.emulated_note(ctypes.c_long(i)).contents for i in range(before, driver.emulated_noted())]


def made() -> tuple[int, int]:
    """Allocations, and streams and events, so far."""
    return driver.emulated_allocations(), driver.emulated_created()


def held() -> int:
    """Allocations that have not been given back, once Numba has done what it puts off."""
    gc.collect()
    cuda.current_context().memory_manager.deallocations.clear()
    return int(driver.emulated_allocations() - driver.emulated_frees())


@pytest.fixture(scope="module")
def program() -> Program:
    """Maps that leave and return."""
    return small_program(offload=OffloadSome(), prefetch=PrefetchAhead(2))


@pytest.fixture
def trainer(program: Program) -> Iterator[Trainer]:
    with Trainer(program, backend="cuda") as opened:
        losses = program.network.losses  # no launch will write them
        opened.device.write(program.resident[losses], np.zeros(losses.shape, np.float32))
        opened.step(*draw_batch(program.network))
        yield opened


def on_gpu(trainer: Trainer) -> CudaDevice:
    assert isinstance(trainer.device, CudaDevice)
    return trainer.device


def launches_of(trainer: Trainer, position: int) -> Sequence[Any]:
    """The bound launches of an instruction."""
    assert isinstance(trainer.replay, CudaReplay)
    return trainer.replay._bound.launches[position]


def expected(trainer: Trainer) -> Iterator[tuple[str, int, tuple[int, int, int] | int | None]]:
    """The calls of one iteration, read off the program: what, which stream, and either a copy's places or an event."""
    program, device = trainer.program, on_gpu(trainer)
    base, pinned = device._base, device.pinned.ctypes.data
    for address, host, nbytes in trainer._statistics:
        yield "copy out", COMPUTE, (base + address, pinned + host, nbytes)
    losses_seen = False
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Launch):
            for _ in launches_of(trainer, position):
                yield "launch", instruction.stream, None
            if program.network.losses in instruction.call.writes and not losses_seen:
                losses_seen = True
                yield "copy out", COMPUTE, None  # before backward, the host looks at them
        elif isinstance(instruction, (CopyIn, CopyOut)):
            places = base + instruction.address, pinned + instruction.pinned_address, instruction.nbytes
            yield instruction.op, instruction.stream, places
        elif isinstance(instruction, (Record, Wait)):
            yield instruction.op, instruction.stream, instruction.event


def test_the_driver_is_told_what_the_program_says(trainer: Trainer) -> None:
    notes = noted(lambda: trainer.step(*draw_batch(trainer.network)))
    wanted = list(expected(trainer))
    assert [note.what.decode() for note in notes] == [what for what, _, _ in wanted]
    handles = [int(stream.handle) for stream in on_gpu(trainer).streams]
    assert [note.stream for note in notes] == [handles[stream] for _, stream, _ in wanted]
    events: dict[int, int | None] = {}  #: the program's number → the driver's event
    for note, (what, _, detail) in zip(notes, wanted, strict=True):
        if what in ("record", "wait"):
            assert isinstance(detail, int)
            assert events.setdefault(detail, note.event) == note.event
        elif isinstance(detail, tuple):
            assert (note.device, note.host, note.bytes) == detail
    assert len(set(events.values())) == len(events) > 0
    kinds = {what for what, _, _ in wanted}
    assert kinds == {"launch", "copy in", "copy out", "record", "wait"}
    assert {stream for _, stream, _ in wanted} == {0, 1, 2}


def test_an_iteration_allocates_nothing_and_leaves_the_default_stream_alone(trainer: Trainer) -> None:
    before = made()
    notes = noted(lambda: [trainer.step(*draw_batch(trainer.network, i)) for i in range(3)])
    assert made() == before
    handles = {int(stream.handle) for stream in on_gpu(trainer).streams}
    assert {note.stream for note in notes} == handles
    assert all(ctypes.c_uint.from_address(handle).value == 1 for handle in handles)  # CU_STREAM_NON_BLOCKING


def test_evaluating_allocates_nothing_once_it_is_ready(trainer: Trainer) -> None:
    predictions = trainer.network.predictions
    trainer.device.write(trainer.program.resident[predictions], np.ones(predictions.shape, np.float32))
    batch = draw_batch(trainer.network)
    trainer.evaluate(*batch)
    before = made()
    notes = noted(lambda: trainer.evaluate(*batch))
    assert made() == before
    assert {note.stream for note in notes} <= {int(stream.handle) for stream in on_gpu(trainer).streams}


def test_everything_is_given_back(program: Program) -> None:
    before = held()
    trainer = Trainer(program, backend="cuda")
    assert held() == before + 2  # one arena on either side
    frees = driver.emulated_frees()
    trainer.close()
    assert driver.emulated_frees() == frees + 2  # at once
    trainer.close()
    assert held() == before


@pytest.mark.parametrize(
    ("module", "refused", "says"),
    [
        (cuda, "device_array", "taking .* for the device arena .a smaller budget or batch takes less.: "),
        (cuda, "pinned_array", "pinning .* of host memory .a set-up that offloads less takes less.: "),
        (gpu, "stream", "making streams: "),
    ],
    ids=["the device's", "the host's", "a stream's"],
)
def test_memory_that_is_refused(program: Program, monkeypatch: Any, module: Any, refused: str, says: str) -> None:
    """One clear line, and nothing is kept."""

    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError("[2] Call to cuMemAlloc\nresults in OUT_OF_MEMORY")

    before = held()
    with monkeypatch.context() as patched:
        patched.setattr(module, refused, refuse)
        with pytest.raises(DeviceFailed, match=f"the GPU failed while {says}.*OUT_OF_MEMORY") as caught:
            Trainer(program, backend="cuda")
    assert "\n" not in str(caught.value)
    assert held() == before

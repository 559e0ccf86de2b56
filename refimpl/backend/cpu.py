"""The CPU as a device: the same programs on NumPy bytes, with the same kernels compiled for the CPU.

The arenas are as large as the programs' addresses reach, which is at most the budget: a budget of 12 GiB costs a small
network nothing.  Launches and copies are executed one after another, in any order that streams and events allow
(`orders`), and bytes that must not be read are made unreadable on request (`poison`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import partial
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from kernels.targets.cpu.threads import thread_count
from refimpl.backend.bound_program import BoundProgram, Settings
from refimpl.backend.device import Device, Pauses, Replay, Sizes, lazy_zeros
from refimpl.backend.host_thread import (
    HostThread,
    HostWork,
    Piece,
    StoredMap,
    host_stream,
    network_stream,
    work_text,
    work_to_await,
)
from refimpl.backend.orders import Arranger, LegalOrder, ProgramOrder
from refimpl.backend.poison import ONES, Place, Poison
from refimpl.backend.run_errors import DeviceFailed
from refimpl.machine import HOST, Span, Timeline, engine_of
from refimpl.planner import Copy, CopyOut, HostCopy, Launch, Program
from refimpl.planner.instructions import DEVICE, STORE
from refimpl.text import counted, size

ALIGNMENT = 512  #: bytes; as coarse as the device memory of a GPU


def arena(nbytes: int, what: str, poison: bool) -> np.ndarray:
    """Aligned bytes: zeros, or poisoned.  Those that are never touched take no memory, however many they are."""
    try:
        raw = lazy_zeros(nbytes + ALIGNMENT)
        if poison:
            raw[:] = ONES
    except MemoryError:
        raise DeviceFailed(f"no {size(nbytes)} of memory for {what}; plan for a smaller budget or batch") from None
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


class CpuDevice(Device):
    """`order` decides who comes next; with `poison` a missing wait becomes a wrong number."""

    def __init__(self, sizes: Sizes, order: LegalOrder | None = None, poison: bool = False) -> None:
        super().__init__(sizes)
        self.order: LegalOrder = order or ProgramOrder()
        self.poison = poison
        self.arena = arena(sizes.arena, "the device arena", poison)
        self.pinned = arena(sizes.pinned, "the pinned arena", poison)
        self.tiers = {name: arena(nbytes, f"the {name} tier", poison) for name, nbytes in sizes.tiers.items()}

    def _array(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        return self.arena[address : address + dtype.itemsize * prod(shape)].view(dtype).reshape(shape)

    def read(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.array(self.view(address, shape, dtype))

    def write(self, address: int, values: np.ndarray) -> None:
        np.copyto(self.view(address, values.shape, values.dtype), values)

    def copy(self, out: bool, address: int, pinned_address: int, nbytes: int, tier: str = HOST) -> None:
        here = self.arena[address : address + nbytes]
        there = (self.pinned if tier == HOST else self.tiers[tier])[pinned_address : pinned_address + nbytes]
        np.copyto(there, here) if out else np.copyto(here, there)

    def replay(self, program: Program, settings: Settings) -> CpuReplay:
        return CpuReplay(self, program, settings)

    def close(self) -> None:
        self._views.clear()
        self.tiers.clear()
        self.arena = self.pinned = self.store = np.empty(0, np.uint8)


class CpuReplay(Replay):
    """A program made ready.  `issue` executes everything before it returns, so `finish` has nothing to do."""

    def __init__(self, device: CpuDevice, program: Program, settings: Settings) -> None:
        self._program, self._order = program, device.order
        self._bound = BoundProgram(program, device.view, settings, device.rung)
        self._host_work = HostWork(program, device.pinned, device.store)
        self._work: dict[int, list[Callable[[], None]]] = {}
        for position, instruction in enumerate(program.instructions):
            if isinstance(instruction, Copy):
                place = instruction.address, instruction.pinned_address, instruction.nbytes, instruction.tier
                self._work[position] = [partial(device.copy, isinstance(instruction, CopyOut), *place)]
            elif isinstance(instruction, HostCopy):
                self._work[position] = [partial(self._host_work.run, instruction)]
            elif isinstance(instruction, Launch) and instruction.call.collective:
                operands = zip(instruction.call.operands, instruction.addresses, strict=True)
                gradients = [device.view(address, tensor.shape, tensor.dtype) for tensor, address in operands]
                self._work[position] = [device.communicator.mean(gradients)]
            elif isinstance(instruction, Launch):
                self._take(position)
        self._arranger = Arranger(program)
        self._arranged = self._arranger.arrange(self._order) if self._order.repeats else None
        arenas: dict[Place, np.ndarray] = {
            DEVICE: device.arena,
            STORE: device.store,
            HOST: device.pinned,
            **device.tiers,
        }
        self._poison = Poison(program, arenas) if device.poison else None
        # In the program's order the host's work and collective calls run beside the kernels, as they do on a GPU.
        beside = type(device.order) is ProgramOrder and not device.poison
        streams = (host_stream(program) if program.store_bytes else None, network_stream(program)) if beside else ()
        self._threads = {stream: HostThread() for stream in streams if stream is not None}
        self._needs = {stream: work_to_await(program, stream) for stream in self._threads}
        self._pieces: dict[int, Piece] = {}  #: of the last iteration, by position
        self._began = 0.0  #: the work that is being done

    def _take(self, position: int) -> None:
        self._work[position] = [partial(launch.run, None) for launch in self._bound.launches[position]]

    @property
    def stored(self) -> list[StoredMap]:
        return self._host_work.stored

    def set(self, settings: Settings) -> None:
        for position in self._bound.set(settings):
            self._take(position)

    def issue(self, pauses: Pauses) -> None:
        self._run(lambda position: pauses[position]() if position in pauses else None)

    def finish(self) -> None:
        pass

    def timed(self) -> Timeline:
        spans: list[Span] = []
        start = perf_counter()

        def add(position: int, began: float, ended: float) -> None:
            instruction: Any = self._program.instructions[position]
            spans.append(Span(instruction, instruction.stream, engine_of(instruction), began - start, ended - start))

        def note(position: int) -> None:
            add(position, self._began, perf_counter())

        self._run(note)
        seconds = perf_counter() - start
        for position, piece in self._pieces.items():  # beside the others
            add(position, piece.began, piece.until)
        spans.sort(key=lambda span: span.start)
        cpu = f"{platform.processor() or platform.machine()}, {counted(thread_count(), 'thread')}"
        return Timeline(spans, self._program.streams, seconds, cpu, simulated=False)

    def _run(self, executed: Callable[[int], None]) -> None:
        """Execute everything, calling `executed` with the position of each launch and copy that is done."""
        poison = self._poison
        if poison is not None:
            poison.begin()
        try:
            for position in self._arranged or self._arranger.arrange(self._order):
                for stream, needed in self._needs.items():
                    if position in needed:
                        self._threads[stream].wait_for(self._pieces[needed[position]])
                work: Any = self._program.instructions[position]
                if work.stream in self._threads:
                    self._pieces[position] = Piece(work_text(work), *self._work[position])
                    self._threads[work.stream].start(self._pieces[position])
                    continue
                self._began = perf_counter()  # after what it waited for
                for run in self._work[position]:
                    run()
                executed(position)
                if poison is not None:
                    poison.executed(position)
        finally:
            for thread in self._threads.values():
                thread.finish()

"""The CUDA back end on an emulated GPU (`kernels.targets.emulated`): the same calls, streams, events and kernels.

What is added is what a real driver is never told: which instruction a piece of work belongs to, so that a finding can
name it; what the host's threads do to pinned memory; and how long the work would take, by the machine's model, so that
an iteration's timeline is that machine's.  A finding ends the run: it is a fault of the program or of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.targets import emulated, gpu
from refimpl.backend.bound_program import Settings
from refimpl.backend.cuda import CudaDevice, CudaReplay
from refimpl.backend.cuda_host import Action, HostSide, ThreadSide
from refimpl.backend.cuda_network import NetworkSide
from refimpl.backend.device import Pauses, Sizes
from refimpl.backend.host_thread import Piece
from refimpl.backend.run_errors import DeviceFailed
from refimpl.machine import Machine, Timeline
from refimpl.planner import Allocate, Copy, CopyOut, Free, HostCopy, Launch, Program


@contextmanager
def findings_raised() -> Iterator[None]:
    """Whatever the checks find inside is raised, instead of the driver's error that may follow from it."""
    try:
        yield
    except DeviceFailed as error:
        if found := emulated.findings():
            raise DeviceFailed(finding_line(found)) from error
        raise
    if found := emulated.findings():
        raise DeviceFailed(finding_line(found))


def finding_line(found: list[str]) -> str:
    more = f" (and {len(found) - 1} more findings)" if len(found) > 1 else ""
    again = f"to repeat it, begin the command with {emulated.environment()}"
    return f"the emulated GPU found an error: {found[0]}{more}; {again}"


def seconds_of(instruction: Any, machine: Machine) -> float:
    """An instruction's seconds, by the machine's model."""
    if isinstance(instruction, Launch):
        return machine.seconds(instruction.call, instruction.choice)
    if isinstance(instruction, Copy):
        return machine.copy_seconds(instruction.nbytes, "out" if isinstance(instruction, CopyOut) else "in")
    if isinstance(instruction, HostCopy):
        return machine.host_seconds(instruction.nbytes)
    if isinstance(instruction, (Allocate, Free)):
        return machine.allocate_seconds if isinstance(instruction, Allocate) else machine.free_seconds
    return 0.0


class WatchedThread(ThreadSide):
    """A thread of the host, with what the happens-before check has to know of it."""

    def _start(self, position: int, piece: Piece) -> None:
        emulated.pass_on(self._key(position))  # what the issuing thread knows, the other one knows from here on
        super()._start(position, piece)

    def finish(self) -> None:
        super().finish()
        emulated.take_up(self._key(-1))

    def _await(self, position: int, events: list[Any]) -> None:
        emulated.take_up(self._key(position))
        super()._await(position, events)

    def _count(self, number: int) -> None:
        emulated.pass_on(self._address + (number << 48))  # to the streams that wait for this number
        emulated.pass_on(self._key(-1))
        super()._count(number)

    def _key(self, position: int) -> int:
        """Under which knowledge is passed on: to the thread with a piece, or back from it (-1)."""
        return (id(self) << 20) + position + 1


class EmulatedHostSide(WatchedThread, HostSide):
    """The host's threads, and a stream that keeps their time."""

    def __init__(self, program: Program, *given: Any) -> None:
        super().__init__(program, *given)
        self._machine = program.machine
        self._clock = gpu.stream()
        self._reached = {position: gpu.CudaEvent(timing=True) for position in self._number}
        self._moments = {
            position: (gpu.CudaEvent(timing=True), gpu.CudaEvent(timing=True))
            for position, instruction in enumerate(program.instructions)
            if isinstance(instruction, HostCopy)
        }

    def _hand_over(self, position: int) -> None:
        clock = int(self._clock.handle)
        for event in self._first[position]:
            emulated.wait_in_time(clock, int(event.handle))
        if position in self._moments:
            instruction = self._program.instructions[position]
            start, end = self._moments[position]
            start.record(self._clock)
            emulated.next_work(f"instruction {position}: {instruction}", seconds_of(instruction, self._machine))
            emulated.host_work(clock)
            end.record(self._clock)
        else:
            self._reached[position].record(self._clock)
        super()._hand_over(position)

    def _hold(self, number: int, handle: Any) -> None:
        super()._hold(number, handle)
        (record,) = (position for position, n in self._number.items() if n == number)
        emulated.wait_in_time(int(handle), int(self._reached[record]._event.handle))

    def _run(self, work: HostCopy) -> None:
        writes = work.inwards
        emulated.touched(self._pinned_base + work.pinned_address, work.nbytes, writes, f"the host's thread, {work}")
        super()._run(work)
        emulated.pass_on(self._key(-1))

    def wait_before(self, position: int) -> None:
        super().wait_before(position)
        emulated.take_up(self._key(-1))

    def finish(self) -> None:
        super().finish()
        self._clock.sync()

    def spans(self, origin: gpu.CudaEvent, began: float) -> list[tuple[HostCopy, float, float]]:
        found = []
        for position, work in self.given:
            start, end = self._moments[position]
            found.append((work, origin.seconds_until(start), origin.seconds_until(end)))
        return found


class EmulatedNetworkSide(WatchedThread, NetworkSide):
    """The thread that makes collective calls."""

    def _run(self, position: int) -> None:
        launch = self._program.instructions[position]
        assert isinstance(launch, Launch)
        emulated.touched(self._staging.ctypes.data, self._nbytes(launch), True, f"the network's thread, {launch.call}")
        super()._run(position)


class EmulatedDevice(CudaDevice):
    """A GPU that is emulated: `CudaDevice` on another driver."""

    host_side_of = EmulatedHostSide
    network_side_of = EmulatedNetworkSide

    def __init__(self, sizes: Sizes) -> None:
        try:
            emulated.start()
        except (emulated.EmulationError, emulated.NoCompiler) as error:
            raise DeviceFailed(str(error)) from None
        emulated.forgive()  # an earlier device's findings are not this one's
        emulated.next_work("")
        super().__init__(sizes)

    def why_not(self) -> str | None:
        return gpu.why_not_at_all()

    def read(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        emulated.next_work("to read a tensor")
        with findings_raised():
            return super().read(address, shape, dtype)

    def write(self, address: int, values: np.ndarray) -> None:
        emulated.next_work("to write a tensor")
        super().write(address, values)

    def host_access(self, start: int, nbytes: int, writes: bool, what: str) -> None:
        emulated.touched(self._pinned_base + start, nbytes, writes, f"the host, {what}")

    def replay(self, program: Program, settings: Settings) -> CudaReplay:
        try:
            return EmulatedReplay(self, program, settings)
        except emulated.UnsupportedPtx as error:
            raise DeviceFailed(f"the emulated GPU does not know this PTX: {error}") from None


class EmulatedReplay(CudaReplay):
    """A program whose every action is announced: its name, and its seconds by the model."""

    def _make(self, position: int, instruction: Any) -> list[Action]:
        actions = super()._make(position, instruction)
        if not actions:
            return actions
        announce = emulated.announcement(f"instruction {position}: {instruction}")
        given = len(actions)
        if isinstance(instruction, Launch) and instruction.call.collective:
            given = 2 * len(instruction.call.operands)  # copies; its other actions take no time of the stream's
        seconds = seconds_of(instruction, self._program.machine) / given
        return [(announce, seconds), *actions]

    def issue(self, pauses: Pauses) -> None:
        with findings_raised():
            super().issue(pauses)

    def finish(self) -> None:
        with findings_raised():
            super().finish()

    def timed(self) -> Timeline:
        """An iteration is run, and the model says when each of its launches and copies would have been done."""
        self._device.synchronize()  # the clock begins when everything before is done
        with findings_raised():
            return replace(super().timed(), machine=f"{self._program.machine.name}, emulated", simulated=True)

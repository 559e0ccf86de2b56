"""A GPU as a device: one arena, one piece of pinned memory, streams that do not block each other, launches bound once.

Both memories are taken once, as large as the programs' addresses reach (at most the budget), and nothing is allocated
afterwards.  An iteration is one flat list of ready calls, (function, argument), that the host runs through: launches
with their arguments bound, asynchronous copies between fixed addresses, events without timing that are recorded and
waited for.  Nothing goes to the default stream, and nothing is copied but what the program says (and, so that
nothing is learnt from a NaN, a few bytes: the running statistics before an iteration, and the losses before backward).

The exception is a program planned with the allocator `driver-calls`: it calls the driver for every allocation and every
free, so that this can be measured (`driver_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import Device as CoreDevice
from cuda.core import EventOptions

from kernels.targets import gpu
from kernels.targets.shim import cuda
from refimpl.backend.bound_program import BoundProgram, Settings
from refimpl.backend.cuda_host import Action, HostSide, ThreadSide, checked
from refimpl.backend.cuda_network import NetworkSide
from refimpl.backend.device import CallTimes, Device, Pauses, Replay, Sizes
from refimpl.backend.driver_calls import DriverMemory
from refimpl.backend.host_thread import StoredMap, host_stream, network_stream
from refimpl.backend.orders import awaited
from refimpl.backend.peer import PeerMemory
from refimpl.backend.run_errors import DeviceFailed, RunError
from refimpl.machine import HOST, PEER, Span, Timeline, engine_of
from refimpl.planner import COMPUTE, Allocate, Copy, CopyOut, Free, Launch, Program, Record, Wait
from refimpl.text import size

BLOCKING = "blocking_sync" if hasattr(EventOptions, "blocking_sync") else "busy_waited_sync"  #: its older name
COUNTER = 4  #: bytes


class DeviceArray:
    """An array in the arena, as the kernels' functions want it: shape, type, address.  It keeps the arena alive."""

    __slots__ = ("__cuda_array_interface__", "_owner", "dtype", "shape")

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any) -> None:
        self.shape, self.dtype, self._owner = shape, dtype, owner
        self.__cuda_array_interface__ = {
            "version": 3, "shape": shape, "strides": None, "typestr": dtype.str, "data": (pointer, False)
        }  # fmt: skip

    @property
    def ndim(self) -> int:
        return len(self.shape)


@contextmanager
def device_errors(doing: str) -> Iterator[None]:
    """Turns an error of the libraries below into one line that says what was being done."""
    try:
        yield
    except Exception as error:
        ours = type(error).__module__.startswith(("refimpl", "kernels", "builtins"))
        if ours and not isinstance(error, MemoryError):
            raise
        raise DeviceFailed(f"the GPU failed while {doing}: {' '.join(str(error).split())}") from error


def copying(copy: Callable[..., Any], to: int, given: int, nbytes: int) -> Callable[[Any], None]:
    """A function of a stream's handle that copies by this call of the driver, as often as it is called."""
    return lambda handle: checked(copy(to, given, nbytes, handle), "a copy")


class CudaDevice(Device):
    """`streams` as a program has them: 0 computes, the others copy; the host's own, the last, is none of them."""

    host_side_of: type[HostSide] = HostSide
    network_side_of: type[NetworkSide] = NetworkSide

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        why_not = self.why_not()
        if why_not is not None:
            raise DeviceFailed(f"no program can run on a GPU here: {why_not}; the CPU runs the same one")
        with device_errors(f"taking {size(sizes.arena)} for the device arena (a smaller budget or batch takes less)"):
            self._arena = cuda.device_array(sizes.arena, np.uint8)
        self._base = gpu.flat(self._arena).pointer
        self.streams: list[Any] = []
        self._events: dict[int, Any] = {}
        self._memories: list[DriverMemory] = []
        self._peer: PeerMemory | None = None
        self._hosts: list[ThreadSide] = []  #: those whose thread may still work
        try:
            with device_errors(f"pinning {size(sizes.pinned)} of host memory (a set-up that offloads less takes less)"):
                rounded = -(-sizes.pinned // COUNTER) * COUNTER
                whole = cuda.pinned_array(rounded + COUNTER, np.uint8)
            self.pinned, self._counter = whole[: sizes.pinned], whole[rounded:].view(np.uint32)
            del whole
            self._pinned_base = self.pinned.ctypes.data
            if absent := [name for name in sizes.tiers if name != PEER]:
                raise RunError(f"on a GPU there is no {absent[0]} tier; leave it out of --tiers, or run on the CPU")
            if PEER in sizes.tiers:
                with device_errors(f"taking {size(sizes.tiers[PEER])} of a second GPU's memory for the peer tier"):
                    self._peer = PeerMemory(sizes.tiers[PEER])
            with device_errors("making streams"):
                self.streams += [gpu.stream() for _ in range(sizes.streams)]
        except BaseException:
            self.close()
            raise
        self.handles = [driver.CUstream(int(stream.handle)) for stream in self.streams]

    def why_not(self) -> str | None:
        """The reason why programs cannot run on this device, in one line."""
        return gpu.why_not()

    def _array(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        return DeviceArray(self._base + address, shape, dtype, self._arena)

    def read(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        values = np.empty(shape, dtype)
        with device_errors("reading from it"):
            self.copying_to_host(True, address, values.ctypes.data, values.nbytes)(self.handles[COMPUTE])
            self.streams[COMPUTE].sync()
        return values

    def write(self, address: int, values: np.ndarray) -> None:
        given = np.ascontiguousarray(values)
        with device_errors("writing to it"):
            self.copying_to_host(False, address, given.ctypes.data, given.nbytes)(self.handles[COMPUTE])
            self.streams[COMPUTE].sync()

    def copy(self, out: bool, address: int, pinned_address: int, nbytes: int, tier: str = HOST) -> None:
        self.copying(out, address, pinned_address, nbytes, tier)(self.handles[COMPUTE])

    def copying(
        self, out: bool, address: int, pinned_address: int, nbytes: int, tier: str = HOST
    ) -> Callable[[Any], None]:
        """The same as a function of a stream's handle."""
        if tier == PEER and self._peer is not None:
            return self._peer.copying(pinned_address, self._base + address, nbytes, out)
        return self.copying_to_host(out, address, self._pinned_base + pinned_address, nbytes)

    def copying_to_host(self, out: bool, address: int, host: int, nbytes: int) -> Callable[[Any], None]:
        """Between the arena and any memory of the host: to it, or back."""
        if out:
            return copying(driver.cuMemcpyDtoHAsync, host, self._base + address, nbytes)
        return copying(driver.cuMemcpyHtoDAsync, self._base + address, host, nbytes)

    def event(self, record: int) -> Any:
        """The event, without timing, of the record at a position; shared by all programs: iterations never overlap.

        Every record has its own, so none is recorded twice in an iteration.  A thread that waits for one sleeps: the
        cores are for those that work.
        """
        if record not in self._events:
            self._events[record] = CoreDevice().create_event(EventOptions(**{BLOCKING: True}))
        return self._events[record]

    def driver_memory(self) -> DriverMemory:
        """For a program that calls the driver for every allocation; given back when the device is closed."""
        self._memories.append(DriverMemory())
        return self._memories[-1]

    def host_side(self, program: Program) -> HostSide:
        """For a program with a stream of the host; its thread ends when the device is closed."""
        made = self.host_side_of(program, self.pinned, self.store, self._counter, self.event, self.handles)
        self._hosts.append(made)
        return made

    def network_side(self, program: Program, stream: int) -> NetworkSide:
        """For a program with collective calls on this stream; its thread ends when the device is closed."""
        nbytes = max(program.network.reduced)
        with device_errors(f"pinning {size(nbytes)} of host memory (smaller buckets take less)"):
            whole = cuda.pinned_array(nbytes + COUNTER, np.uint8)
        made = self.network_side_of(
            program, self.communicator, whole[:nbytes], whole[nbytes:].view(np.uint32), self.copying_to_host,
            lambda position: self.event(position).handle, self.handles[stream],
        )  # fmt: skip
        self._hosts.append(made)
        return made

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.sync()

    def replay(self, program: Program, settings: Settings) -> CudaReplay:
        with device_errors("compiling and loading kernels"):
            return CudaReplay(self, program, settings)

    def close(self) -> None:
        """Wait for what still runs, then give everything back at once: Numba would do it some time later.

        A replay that is still referenced keeps the arena alive.
        """
        while self._hosts:
            with suppress(RunError):  # the caller that gave the work has had its error
                self._hosts.pop().finish()
        with device_errors("finishing"):
            self.synchronize()
        for memory in self._memories:
            memory.give_back()
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        self._views.clear()
        self._events.clear()
        self.pinned = self.store = self._counter = np.empty(0, np.uint8)
        self._arena = None
        cuda.current_context().memory_manager.deallocations.clear()


class CudaReplay(Replay):
    """A program as a flat list of actions."""

    def __init__(self, device: CudaDevice, program: Program, settings: Settings) -> None:
        self._device, self._program = device, program
        self._bound = BoundProgram(program, device.view, settings, device.rung)
        self._awaited = awaited(program)
        self._memory = device.driver_memory() if program.setup.allocator.driver_calls else None
        self._host = device.host_side(program) if host_stream(program) is not None else None
        stream = network_stream(program)
        self._network = device.network_side(program, stream) if stream is not None else None
        self._actions: list[Action] = []
        self._first: list[int] = []  #: position → its first action
        for position, instruction in enumerate(program.instructions):
            self._first.append(len(self._actions))
            self._actions += self._make(position, instruction)
        self._first.append(len(self._actions))
        self._host_seconds = float("inf")

    def _make(self, position: int, instruction: Any) -> list[Action]:
        """The actions of one instruction; none for what happens in the books alone."""
        device, memory = self._device, self._memory
        if self._host is not None and (actions := self._host.actions(position)) is not None:
            return actions
        if self._network is not None and isinstance(instruction, Launch) and instruction.call.collective:
            return self._network.actions(position)
        if isinstance(instruction, Launch):
            stream = device.streams[instruction.stream]
            return [(launch.run, stream) for launch in self._bound.launches[position]]
        if isinstance(instruction, Copy):
            place = instruction.address, instruction.pinned_address, instruction.nbytes, instruction.tier
            copy = device.copying(isinstance(instruction, CopyOut), *place)
            return [(copy, device.handles[instruction.stream])]
        if isinstance(instruction, Record):
            return [(device.streams[instruction.stream].record, device.event(position))]
        if isinstance(instruction, Wait):
            return [(device.streams[instruction.stream].wait, device.event(self._awaited[position]))]
        if memory is not None and isinstance(instruction, (Allocate, Free)):
            return [(memory.allocate if isinstance(instruction, Allocate) else memory.free, instruction)]
        return []

    @property
    def host_seconds_per_instruction(self) -> float | None:
        """The least of all iterations: where the driver's queue is full, the host waits for the GPU as well."""
        return self._host_seconds / len(self._program.instructions) if self._host_seconds < float("inf") else None

    @property
    def stored(self) -> list[StoredMap]:
        return self._host.stored if self._host is not None else []

    @property
    def driver_calls(self) -> CallTimes | None:
        return self._memory.times if self._memory is not None else None

    def set(self, settings: Settings) -> None:
        for position in self._bound.set(settings):
            actions = self._make(position, self._program.instructions[position])
            self._actions[self._first[position] : self._first[position + 1]] = actions

    def issue(self, pauses: Pauses) -> None:
        seconds, start = 0.0, 0
        with device_errors("running the program"):
            self._begin()
            for position in [*sorted(pauses), len(self._program.instructions) - 1]:
                end = self._first[position + 1]
                began = perf_counter()
                for act, argument in self._actions[start:end]:
                    act(argument)
                seconds += perf_counter() - began
                start = end
                if position in pauses:
                    if self._host is not None:
                        self._host.wait_before(position)
                    pauses[position]()
        self._host_seconds = min(self._host_seconds, seconds)

    def _begin(self) -> None:
        if self._memory is not None:
            self._memory.begin()
        for side in self._sides():
            side.begin()

    def _sides(self) -> list[ThreadSide]:
        """The work of the host's threads beside the GPU."""
        return [side for side in (self._host, self._network) if side is not None]

    def finish(self) -> None:
        with device_errors("running the program"):
            try:
                for side in self._sides():
                    side.finish()
            finally:
                self._device.synchronize()

    def timed(self) -> Timeline:
        streams, program = self._device.streams, self._program
        work = {
            position: instruction
            for position, instruction in enumerate(program.instructions)
            if isinstance(instruction, Launch | Copy)
        }
        with device_errors("measuring an iteration"):
            self._begin()
            origin = gpu.CudaEvent(timing=True)
            events = {position: (gpu.CudaEvent(timing=True), gpu.CudaEvent(timing=True)) for position in work}
            origin.record(streams[COMPUTE])
            for stream in streams[1:]:
                origin.wait(stream)
            origin.synchronize()
            began = perf_counter()  # the host's clock at the origin, within some microseconds
            for position in range(len(program.instructions)):
                if position in events:
                    events[position][0].record(streams[work[position].stream])
                for act, argument in self._actions[self._first[position] : self._first[position + 1]]:
                    act(argument)
                if position in events:
                    events[position][1].record(streams[work[position].stream])
            self.finish()
        spans = []
        for position, (start, end) in events.items():
            instruction = work[position]
            moments = origin.seconds_until(start), origin.seconds_until(end)
            spans.append(Span(instruction, instruction.stream, engine_of(instruction), *moments))
        if self._host is not None:
            for piece, begun, done in self._host.spans(origin, began):
                spans.append(Span(piece, piece.stream, "host", begun, done))
            spans.sort(key=lambda span: span.start)
        seconds = max((span.end for span in spans), default=0.0)
        return Timeline(spans, program.streams, seconds, gpu.device_name(), simulated=False)

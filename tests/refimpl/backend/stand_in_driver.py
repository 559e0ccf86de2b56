"""A driver of GPUs whose memory is bytes of this process: every call is done at once, and noted."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
from cuda.bindings import driver

DONE = driver.CUresult.CUDA_SUCCESS
NO_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY


class StandInDriver:
    """In place of `cuda.bindings.driver`, with this many GPUs, of which one is in use.

    `calls` has each call's name and arguments; the calls that `refused` names fail.
    """

    CUresult = driver.CUresult
    CUstreamWaitValue_flags = driver.CUstreamWaitValue_flags

    def __init__(self, gpus: int = 2, own: int = 0) -> None:
        self.gpus, self.own = gpus, own
        self.calls: list[tuple[Any, ...]] = []
        self.refused: dict[str, Any] = {}
        self.reachable = 1
        self.memory: dict[int, np.ndarray] = {}
        self.current = [f"context {own}"]

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        """The calls of these names."""
        return [call for call in self.calls if call[0] in names]

    def _called(self, name: str, *given: Any) -> tuple[Any, ...]:
        """What a call that gives nothing gives."""
        self.calls.append((name, *given))
        return (self.refused.get(name, DONE),)

    def cuDeviceGetCount(self) -> Any:
        return DONE, self.gpus

    def cuCtxGetDevice(self) -> Any:
        return DONE, self.own

    def cuCtxGetCurrent(self) -> Any:
        return DONE, self.current[-1]

    def cuCtxSetCurrent(self, context: Any) -> Any:
        return self._called("cuCtxSetCurrent", context)

    def cuDeviceGet(self, number: int) -> Any:
        return DONE, number

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return *self._called("cuDevicePrimaryCtxRetain", device), f"context {device}"

    def cuDevicePrimaryCtxRelease(self, device: int) -> Any:
        return self._called("cuDevicePrimaryCtxRelease", device)

    def cuDeviceCanAccessPeer(self, own: int, other: int) -> Any:
        assert (own, other) == (self.own, other) and own != other
        return DONE, self.reachable

    def cuCtxEnablePeerAccess(self, context: Any, flags: int) -> Any:
        return self._called("cuCtxEnablePeerAccess", context, flags)

    def cuCtxPushCurrent(self, context: Any) -> Any:
        self.current.append(context)
        return (DONE,)

    def cuCtxPopCurrent(self) -> Any:
        return DONE, self.current.pop()

    def cuMemAlloc(self, nbytes: int) -> Any:
        (status,) = self._called("cuMemAlloc", nbytes, self.current[-1])
        if status != DONE:
            return status, None
        made = np.zeros(nbytes, np.uint8)
        self.memory[made.ctypes.data] = made
        return status, made.ctypes.data

    def cuMemFree(self, pointer: int) -> Any:
        del self.memory[pointer]
        return self._called("cuMemFree", pointer, self.current[-1])

    def cuMemcpyPeerAsync(self, to: int, there: Any, given: int, here: Any, nbytes: int, handle: Any) -> Any:
        ctypes.memmove(to, given, nbytes)
        return self._called("cuMemcpyPeerAsync", there, here, nbytes, handle)

    def cuMemcpyDtoHAsync(self, to: int, given: int, nbytes: int, handle: Any) -> Any:
        ctypes.memmove(to, given, nbytes)
        return self._called("cuMemcpyDtoHAsync", nbytes, handle)

    def cuMemcpyHtoDAsync(self, to: int, given: int, nbytes: int, handle: Any) -> Any:
        ctypes.memmove(to, given, nbytes)
        return self._called("cuMemcpyHtoDAsync", nbytes, handle)

    def cuEventRecord(self, event: Any, handle: Any) -> Any:
        return self._called("cuEventRecord", event, handle)

    def cuEventSynchronize(self, event: Any) -> Any:
        return self._called("cuEventSynchronize", event)

    def cuStreamWaitValue32(self, handle: Any, address: int, number: int, flags: int) -> Any:
        return self._called("cuStreamWaitValue32", handle, address, number, flags)

    @staticmethod
    def CUstream(handle: int) -> int:
        return handle


class StandInStream:
    """One whose work is done as soon as it is given."""

    def __init__(self, handle: int, notes: list[tuple[Any, ...]]) -> None:
        self.handle, self.notes = handle, notes

    def sync(self) -> None:
        self.notes.append(("sync", self.handle))

    def record(self, event: Any) -> None:
        self.notes.append(("record", self.handle, event))

    def wait(self, event: Any) -> None:
        self.notes.append(("wait", self.handle, event))


def pinned(nbytes: int, dtype: Any) -> np.ndarray:
    return np.zeros(nbytes, dtype)


def numba_cuda() -> Any:
    """What the device takes from Numba: arrays, and the books of what is to be freed."""
    cleared: list[bool] = []
    manager = SimpleNamespace(deallocations=SimpleNamespace(clear=lambda: cleared.append(True)))
    return SimpleNamespace(
        device_array=pinned,
        pinned_array=pinned,
        current_context=lambda: SimpleNamespace(memory_manager=manager),
        cleared=cleared,
    )

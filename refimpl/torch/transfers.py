"""Copies between the device and the host, beside the computation where the device can.

A copy has an event; `wait` makes what is launched later run after it.  On CUDA the copies have a stream of their own
and pinned memory.  No GPU was at hand when this was written: that class is checked by reading and by its twin,
`DeferredTransfers`, which finds a wait that is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from refimpl.torch.private import users_of


def storage_bytes(storage: Any, device: Any) -> Any:
    """A storage as a tensor of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


class Transfers:
    """Copies that are over when they return: on the CPU."""

    def __init__(self) -> None:
        self.out_bytes = self.in_bytes = 0
        self.note_host: Callable[[Any], None] = lambda storage: None  #: a meter is told of the host's storages

    def host_buffer(self, nbytes: int) -> Any:
        made = torch.UntypedStorage(nbytes)
        self.note_host(made)
        return made

    def out(self, storage: Any, device: Any) -> tuple[Any, Any]:
        """Start a copy to the host: its storage there, and the event (None: it is over)."""
        host = self.host_buffer(storage.nbytes())
        self.out_bytes += storage.nbytes()
        return host, self._copy(storage_bytes(host, "cpu"), storage_bytes(storage, device))

    def back(self, host: Any, device: Any) -> tuple[Any, Any]:
        """Start a copy to the device: a tensor of its bytes there, and the event."""
        self.in_bytes += host.nbytes()
        there = torch.empty(host.nbytes(), dtype=torch.uint8, device=device)
        return there, self._copy(there.data, storage_bytes(host, "cpu"))  # which counts no change of it

    def _copy(self, to: Any, of: Any) -> Any:
        to.copy_(of)

    def wait(self, event: Any) -> None:
        """What is launched from now on runs after the copy."""

    def is_over(self, event: Any) -> bool:
        return True

    def freed(self, storage: Any) -> None:
        """A block of the device goes back to its allocator."""


class CudaTransfers(Transfers):
    """On a stream of their own, after what was launched so far."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self._device, self._stream = device, torch.cuda.Stream(device)

    def host_buffer(self, nbytes: int) -> Any:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).untyped_storage()

    def _copy(self, to: Any, of: Any) -> Any:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            to.copy_(of, non_blocking=True)
        return self._stream.record_event()

    def wait(self, event: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)

    def is_over(self, event: Any) -> bool:
        return bool(event.query())


POISON = 0xFF  #: four of them are a NaN


class DeferredTransfers(Transfers):
    """An emulated device: a copy runs only when something waits for it, and what is freed is overwritten.

    The copies of a stream run in their order, so a wait runs all that were started before.  A wait that is missing
    leaves NaNs in a gradient.  It cannot show a copy that starts before its bytes are computed.  What the module or
    autograd still holds when the plan gives it back is overwritten when they have given it back, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.leave_out: int | None = None  #: the wait of this number is not made
        self.was_needed = False  #: that wait: its copy was not over when its bytes were read, or overwritten
        self.late_writes = 0  #: copies into blocks that were freed before
        self._queue: deque[tuple[int, Any, Any]] = deque()
        self._given_back: list[Any] = []  #: storages that others may hold
        self._started = self._done = self._left_out = 0  #: copies; the last: whose wait was left out
        self._backwards: set[int] = set()  #: copies to the device

    def _copy(self, to: Any, of: Any) -> int:
        self._overwrite()
        self._started += 1
        self._queue.append((self._started, to, of))
        return self._started

    def back(self, host: Any, device: Any) -> tuple[Any, Any]:
        there, event = super().back(host, device)
        there.fill_(POISON)
        self._backwards.add(event)
        return there, event

    def wait(self, event: int) -> None:
        self.waits += 1
        self._overwrite()
        if self.waits == self.leave_out:
            self.was_needed, self._left_out = event in self._backwards and not self.is_over(event), event
            return
        while event > self._done:
            self._done, to, of = self._queue.popleft()
            to.copy_(of)

    def is_over(self, event: int) -> bool:
        return event <= self._done

    def freed(self, storage: Any) -> None:
        self._given_back.append(storage)
        del storage
        self._overwrite()

    def _overwrite(self) -> None:
        """What was given back and is held by no tensor, copies that are under way left out."""
        given_back, self._given_back = self._given_back, []
        while given_back:
            storage = given_back.pop()
            copies = [one.untyped_storage()._cdata for _, *both in self._queue for one in both]
            if users_of(storage) > copies.count(storage._cdata):
                self._given_back.append(storage)
                continue
            key = storage._cdata
            self.late_writes += sum(to.untyped_storage()._cdata == key for _, to, _ in self._queue)
            its = [of.untyped_storage()._cdata for number, _, of in self._queue if number == self._left_out]
            self.was_needed |= key in its
            storage_bytes(storage, "cpu").fill_(POISON)


def transfers_for(device: Any) -> Transfers:
    return CudaTransfers(device) if device.type == "cuda" else Transfers()

"""MPI for ranks that are threads of one process: the calls that `Mpi` makes, as short as they can be."""

from __future__ import annotations

import threading
from collections import defaultdict
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np

PATIENCE = 120.0  #: seconds


class Hub:
    """What the ranks share: a meeting of all, and a queue for each sender, receiver and number of a message."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.queues: dict[Any, SimpleQueue[Any]] = defaultdict(SimpleQueue)
        self.given: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=PATIENCE)
        self.entered: dict[int, set[int]] = defaultdict(set)  #: communicator → the ranks at its barrier
        self.aborted: list[int] = []


class Comm:
    """A rank's communicator; its copies are numbered in the order in which they are made."""

    def __init__(self, hub: Hub, rank: int, number: int = 0) -> None:
        self.hub, self.rank, self.size, self.number, self._copies = hub, rank, hub.size, number, 0

    def Dup(self) -> Comm:
        self._copies += 1
        return Comm(self.hub, self.rank, self._copies)

    def Split_type(self, kind: str) -> Any:
        return SimpleNamespace(rank=self.rank, size=self.size)

    def allgather(self, word: Any) -> list[Any]:
        self.hub.given[self.rank] = word
        self.hub.barrier.wait()
        found = list(self.hub.given)
        self.hub.barrier.wait()
        return found

    def bcast(self, word: Any) -> Any:
        return self.allgather(word)[0]

    def Barrier(self) -> None:
        self.hub.barrier.wait()

    def Ibarrier(self) -> Any:
        entered = self.hub.entered[self.number]
        entered.add(self.rank)
        return SimpleNamespace(Test=lambda: len(entered) == self.size)

    def Allreduce(self, numbers: np.ndarray, total: np.ndarray) -> None:
        total[:] = sum(self.allgather(numbers.copy()))

    def Isend(self, word: bytes, other: int) -> None:
        self._queue(self.rank, other).put(word)

    def Iprobe(self) -> bool:
        return any(not self._queue(other, self.rank).empty() for other in range(self.size))

    def Send_init(self, array: np.ndarray, other: int, tag: int) -> Request:
        queue = self._queue(self.rank, other, tag)
        return Request(lambda: queue.put(array.copy()), lambda: None)

    def Recv_init(self, array: np.ndarray, other: int, tag: int) -> Request:
        queue = self._queue(other, self.rank, tag)

        def receive() -> None:
            message = queue.get(timeout=PATIENCE)
            assert message.shape == array.shape, "a message has another length than its receiver expects"
            array[:] = message

        return Request(lambda: None, receive)

    def Abort(self, status: int) -> None:
        self.hub.aborted.append(status)

    def _queue(self, *between: int) -> SimpleQueue[Any]:
        key = (self.number, *between)
        return self.hub.queues[key]


class Request:
    """A persistent request: what its start does, and what a wait for it does."""

    def __init__(self, start: Any, wait: Any) -> None:
        self.start, self.wait, self.active = start, wait, False

    @staticmethod
    def Startall(requests: list[Request]) -> None:
        for one in requests:
            assert not one.active
            one.active = True
            one.start()

    @staticmethod
    def Waitall(requests: list[Request]) -> None:
        for one in requests:
            assert one.active
            one.wait()
            one.active = False


def module(world: Comm) -> Any:
    """What `mpi4py.MPI` is to one rank."""
    return SimpleNamespace(COMM_WORLD=world, COMM_TYPE_SHARED="shared", Prequest=Request, Request=Request)


def modules(size: int) -> list[Any]:
    """Of all ranks of a new world."""
    hub = Hub(size)
    return [module(Comm(hub, rank)) for rank in range(size)]

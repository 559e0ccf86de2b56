"""Device memory alone, without a network: blocks, what drains, what is revived, and the error where nothing fits.

The clock and the copies are the test's; a copy takes a second.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES, Clock
from refimpl.memory import BestFit, DriverCalls
from refimpl.network import Tensor
from refimpl.planner import Allocate, CopyOut, DoesNotFit, Free
from refimpl.planner.device_memory import DeviceMemory
from refimpl.planner.order import Block, Order
from refimpl.slots.baseline import NoCache

KIB = 1024
COMPUTE, OUT = 0, 1
MACHINE = dataclasses.replace(MACHINES["titan-x"], allocate_seconds=0.25, free_seconds=0.5)


def tensor(name: str, kibibytes: int = 1, kind: str = "map") -> Tensor:
    return Tensor(name, (kibibytes * KIB // 4,), kind, managed=True)  # type: ignore[arg-type]


class Bench:
    """A memory of four KiB, two streams, and a source of copies out."""

    def __init__(self, allocator: BestFit | DriverCalls | None = None) -> None:
        self.order = Order(2, Clock(2))
        self.memory = DeviceMemory(allocator or BestFit(), 4 * KIB, self.order, MACHINE, NoCache())

    def copy_out(self, t: Tensor) -> None:
        pinned = Block(t, 0, t.nbytes, 2)
        work = CopyOut(0, t, self.memory[t].address, 0, t.nbytes, OUT)
        self.order.work(work, 1.0, [self.memory[t]], [pinned])

    def noted(self) -> list[str]:
        return [f"{i.op} {i.tensor}" for i in self.order.draft if isinstance(i, (Allocate, Free))]


def test_a_failed_allocation_changes_nothing_and_the_error_says_what_is_there() -> None:
    bench, a, w = Bench(), tensor("a", 2), tensor("workspace of conv1", 1, "workspace")
    for t in (a, w):
        assert bench.memory.try_allocate(t)
    before = bench.noted()
    assert not bench.memory.try_allocate(tensor("b", 2)) and bench.noted() == before
    assert bench.memory.live_bytes == 2 * KIB, "a workspace is not live"
    error = bench.memory.does_not_fit(tensor("b", 2))
    assert isinstance(error, DoesNotFit) and (error.asked, error.free, error.largest_hole) == (2 * KIB, KIB, KIB)
    assert error.alive == {"map": 2 * KIB, "workspace": KIB}


def test_resident_tensors_are_in_no_instruction() -> None:
    bench = Bench()
    weight = Tensor("w", (KIB // 4,), "weight", managed=False)
    bench.memory.reside(weight)
    assert weight in bench.memory and bench.memory.managed() == [] and bench.order.draft == []
    assert [block.tensor for block in bench.memory.residents()] == [weight]
    with pytest.raises(DoesNotFit):
        bench.memory.reside(Tensor("large", (KIB,), "weight", managed=False))


def test_driver_calls_hold_all_streams() -> None:
    bench, a = Bench(DriverCalls()), tensor("a")
    bench.memory.try_allocate(a)
    bench.memory.release(a)
    assert bench.order.clock.now == [0.75, 0.75]


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(("allocate", "copy", "release", "oldest")))))
def test_the_books_agree_with_the_pool(drawn: list[tuple[str, str]]) -> None:
    """Whatever happens: live bytes are those of the tensors there, and the pool holds these and the draining ones."""
    bench, tensors = Bench(), {name: tensor(name) for name in "abcdefgh"}
    memory = bench.memory
    for name, what in drawn:
        t = tensors[name]
        if what == "allocate" and t not in memory:
            if memory.is_draining(t):
                memory.revive(t)
            else:
                memory.try_allocate(t)
        elif what == "copy" and t in memory:
            bench.copy_out(t)
        elif what == "release" and t in memory:
            memory.release(t)
        elif what == "oldest":
            memory.give_back_oldest()
        draining = [t for t in tensors.values() if memory.is_draining(t)]
        assert memory.live_bytes == KIB * len(memory.managed()) <= memory.transient_bytes
        assert memory.pool.held == KIB * (len(memory.managed()) + len(draining))
        assert not {*draining} & {*memory.managed()}

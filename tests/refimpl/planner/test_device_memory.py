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


def test_released_bytes_are_free_at_once_where_nothing_copies() -> None:
    bench, a = Bench(), tensor("a")
    assert bench.memory.try_allocate(a) and a in bench.memory and bench.memory.live_bytes == KIB
    bench.memory.release(a)
    assert a not in bench.memory and not bench.memory.is_draining(a)
    assert bench.memory.live_bytes == 0 and bench.memory.pool.held == 0
    assert bench.noted() == ["allocate a", "free a"]


def test_a_block_drains_until_a_wait_orders_the_kernels_after_its_copy_and_is_no_longer_live() -> None:
    bench, a = Bench(), tensor("a")
    bench.memory.try_allocate(a)
    bench.copy_out(a)
    bench.memory.release(a)
    assert bench.memory.is_draining(a) and bench.memory.live_bytes == 0 and bench.memory.pool.held == KIB
    bench.order.clock.now[COMPUTE] = 1000.0
    bench.memory.give_back_drained()
    assert bench.memory.is_draining(a), "the simulated clock does not matter: no wait orders a kernel after the copy"
    bench.order.join()
    bench.memory.give_back_drained()
    assert not bench.memory.is_draining(a) and bench.memory.pool.held == 0


def test_bytes_are_free_at_once_where_a_wait_has_ordered_the_kernels_after_the_copy() -> None:
    bench, a = Bench(), tensor("a")
    bench.memory.try_allocate(a)
    bench.copy_out(a)
    bench.order.join()
    bench.memory.release(a)
    assert not bench.memory.is_draining(a) and bench.memory.pool.held == 0


def test_bytes_drain_where_their_last_owner_was_never_used_and_the_one_before_is_still_copied() -> None:
    """A block that nothing touched passes on what happened to its bytes before."""
    bench, a, b = Bench(), tensor("a"), tensor("b", 4)
    bench.memory.try_allocate(a)
    bench.copy_out(a)
    bench.memory.release(a)
    bench.memory.give_back_oldest()
    bench.memory.try_allocate(b)
    bench.memory.release(b)
    assert bench.memory.is_draining(b)


def test_a_draining_tensor_is_revived_where_it_was() -> None:
    bench, a = Bench(), tensor("a")
    bench.memory.try_allocate(a)
    bench.copy_out(a)
    block = bench.memory[a]
    bench.memory.release(a)
    bench.memory.revive(a)
    assert bench.memory[a] is block and bench.memory.live_bytes == KIB and not bench.memory.is_draining(a)


def test_the_oldest_drained_bytes_are_given_back_first() -> None:
    bench, drained = Bench(), [tensor(name) for name in "abc"]
    for t in drained:
        bench.memory.try_allocate(t)
        bench.copy_out(t)
    for t in (drained[1], drained[0], drained[2]):
        bench.memory.release(t)
    for expected in (drained[1], drained[0], drained[2]):
        assert bench.memory.is_draining(expected)
        assert bench.memory.give_back_oldest() and not bench.memory.is_draining(expected)
    assert not bench.memory.give_back_oldest()


def test_a_new_block_comes_after_the_copy_that_read_its_bytes() -> None:
    bench, a, b = Bench(), tensor("a", 4), tensor("b", 4)
    bench.memory.try_allocate(a)
    bench.copy_out(a)
    bench.memory.release(a)
    assert not bench.memory.try_allocate(b)
    bench.memory.give_back_oldest()
    assert bench.memory.try_allocate(b)
    prior = bench.memory[b].prior
    copy = next(k for k, i in enumerate(bench.order.draft) if isinstance(i, CopyOut))
    assert prior is not None and prior[OUT] == copy


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

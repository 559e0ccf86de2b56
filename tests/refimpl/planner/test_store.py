"""The planner's books of the host: whose buffer is given to which tensor, and the least pinned memory that will do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from refimpl.machine import HOST, Clock, Machine
from refimpl.machine.gpus import MACHINES
from refimpl.memory.tiers import pinned_size
from refimpl.names.networks import build
from refimpl.network import Step, Tensor
from refimpl.planner import CopyIn, CopyOut, Program, plan
from refimpl.planner.instructions import FromStore, ToStore
from refimpl.planner.order import Block, Order
from refimpl.planner.store import pinned_memory
from refimpl.slots.baseline import NoPrefetch
from refimpl.slots.context import Context
from refimpl.slots.errors import PinnedDoesNotFit
from refimpl.vdnnpp import Compressed, OnDemand
from tests.refimpl.modules import OffloadSome, machine, setup

pytestmark = pytest.mark.vdnnpp

#: Every map's buffer serves the next.
AT_ONCE = Compressed(lag=0)

OUT, IN = 1, 2  # and the threads' stream is 3
NETWORK = build("tiny-vgg:vdnnpp", 2)
CONVS = [layer for layer in NETWORK.layers if layer.kind == "conv"]


class Desk:
    """A host, and a source of copies."""

    def __init__(self, module: Any = AT_ONCE) -> None:
        self.machine: Machine = dataclasses.replace(MACHINES["titan-x"], host_rate=1e3)
        self.clock = Clock(4)
        self.order = Order(4, self.clock)
        self.device: set[Tensor] = set()
        self.host = pinned_memory(module, Context(NETWORK, self.machine), self.order, self.device)
        for tensor in (NETWORK.input, NETWORK.labels):
            self.host.fix(tensor, valid=True)
        self.blocks: dict[Tensor, Block] = {}

    @property
    def maps_bytes(self) -> int:
        """Bytes of the host that maps took."""
        return self.host.taken[HOST] - self.host.fixed_bytes

    def at(self, step: Step) -> None:
        self.host.advance(step)

    def copy_out(self, tensor: Tensor, seconds: float = 0.0) -> Block:
        """Its buffer."""
        on_device = self.blocks.setdefault(tensor, Block(tensor, 0, tensor.nbytes, 4))
        target = self.host.target(tensor)
        work = CopyOut(0, tensor, 0, target.address, tensor.nbytes, OUT)
        self.order.work(work, seconds, [on_device], [target])
        self.host.left(tensor)
        return target

    def copy_in(self, tensor: Tensor, seconds: float = 0.0) -> Block:
        source = self.host.source(tensor)
        work = CopyIn(0, tensor, 0, source.address, tensor.nbytes, IN)
        self.order.work(work, seconds, [source], [Block(tensor, 0, tensor.nbytes, 4)])
        self.host.fetched(tensor)
        return source

    def done(self) -> list[str]:
        """What the threads were given, in order."""
        return [f"{it.op} {it.tensor}" for it in self.order.draft if isinstance(it, (ToStore, FromStore))]


def maps() -> tuple[Tensor, Tensor]:
    """Outputs of two convolutions with a ReLU, equally large."""
    one, two = (layer.y for layer in CONVS[:2])
    assert one.nbytes == two.nbytes
    return one, two


FORWARD = [step for step in NETWORK.steps if step.forward]


def test_what_is_written_again_is_neither_compressed_nor_there() -> None:
    desk, (one, two) = Desk(), maps()
    desk.at(FORWARD[3])
    desk.copy_out(one)
    desk.host.outdate(one)
    assert not desk.host.has(one)
    again = desk.copy_out(one)
    assert desk.host.has(one) and again.address == desk.host.fixed_bytes
    desk.copy_out(two)
    assert desk.done() == [f"compress {one}"]
    desk.host.outdate(one)
    assert not desk.host.has(one)
    desk.host.outdate(two)
    desk.copy_out(one)
    assert desk.done() == [f"compress {one}"]  # there was nothing to compress in the other's buffer
    assert desk.host.has(one) and desk.maps_bytes == pinned_size(one.nbytes)


# -- a limit -----------------------------------------------------------------------------------------------------------


def test_least_pinned_memory() -> None:
    """The largest map is enough where all that leaves is compressed, one buffer a map where nothing is."""
    chosen = setup(offload=OffloadSome(), prefetch=NoPrefetch(), join=True)
    network = build("tiny-vgg:vdnnpp", 4)

    def planned(module: Any) -> Program:
        return plan(network, chosen.replace(pinned=module), machine(), 1 << 26)

    least = {}
    for module in (OnDemand, Compressed):
        low, high = 0, planned(module()).pinned_bytes
        while high - low > 512:
            middle = (low + high) // 2 // 512 * 512
            try:
                program = planned(module(limit=middle))
            except PinnedDoesNotFit:
                low = middle
            else:
                program.verify()
                assert program.pinned_bytes <= fixed(program) + middle
                high = middle
        least[module] = high
    moved = [it.tensor for it in planned(OnDemand()).instructions if it.op == "copy out" and it.why == "offload"]
    assert least[OnDemand] == sum(pinned_size(tensor.nbytes) for tensor in moved)
    assert least[Compressed] == max(pinned_size(tensor.nbytes) for tensor in moved)


def fixed(program: Program) -> int:
    return sum(pinned_size(tensor.nbytes) for tensor in program.pinned)

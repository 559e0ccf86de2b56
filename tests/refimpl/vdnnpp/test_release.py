"""vDNN++'s release: no join, bytes back when the kernel and the copy are done, and memory as the only brake.

A steady machine, whose calls and copies take what a test says, makes a chain of layers the formulas' c and t.  What
goes wrong when this is built is made on purpose here, and noticed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesEarly, CopiesLate
from refimpl.machine import MACHINES, Choice, Machine
from refimpl.names.networks import build
from refimpl.network import Builder, Call, Network, Tensor
from refimpl.network.conventions import VDNNPP
from refimpl.planner import (
    COMPUTE,
    Allocate,
    CopyOut,
    Free,
    Program,
    Record,
    Setup,
    Wait,
    plan,
)
from refimpl.planner.device_memory import DeviceMemory
from refimpl.studies.reproduce.vdnnpp.figures import Times, as_vdnn
from refimpl.vdnnpp import ALL, ALTERNATE_CONV, CONV, OffloadInputsOf, static
from refimpl.vdnnpp.pinned import OnDemand
from refimpl.vdnnpp.presets import with_join, without_join
from tests.messages import lacks
from tests.refimpl.backend.running import MACHINE
from tests.refimpl.modules import least_plan, machine, planner
from tests.refimpl.planner.mutations import refused
from tests.refimpl.vdnn.test_pitfalls import same_bits

pytestmark = pytest.mark.vdnnpp

PLENTY = 1 << 40
TITAN_X, GTX_970 = MACHINES["titan-x"], MACHINES["gtx-970"]
CALLS, COPIES = [1, 1, 3, 1, 3], [0, 3, 1, 3, 1]  #: the specification's example


@dataclass(frozen=True, eq=False)
class TimedMachine(Machine):
    """Calls and copies take what the tables say, by call and by bytes; the others take nothing."""

    calls: Mapping[Call, float] = field(default_factory=dict)
    copies: Mapping[int, float] = field(default_factory=dict)

    def choices(self, call: Call) -> tuple[Choice, ...]:
        return (Choice("direct", 0, self.calls.get(call, 0.0)),)

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        return self.calls.get(call, 0.0)

    def copy_seconds(self, nbytes: int, direction: Literal["out", "in"], tier: str = "host") -> float:
        return self.copies.get(nbytes, 0.0)


def chain(length: int, least: int = 2) -> Network:
    """Convolutions whose maps all differ in size, the last of `least` channels, and a classifier."""
    b = Builder("chain", (1, 1, 64, 64))
    for number in range(length):
        b.conv(least + length - 1 - number, 1)
    b.pool(64)
    b.fc(2)
    b.softmax()
    return b.build()


def timed_machine(network: Network, compute: Sequence[float], copies: Sequence[float]) -> TimedMachine:
    """Convolution i computes for compute[i], forward and in what of backward reads X; a copy of X takes copies[i]."""
    titan = machine()
    plain = {f.name: getattr(titan, f.name) for f in dataclasses.fields(titan) if f.init}
    calls = {}
    for layer, seconds in zip(network.layers, compute, strict=False):
        for step in (layer.forward, layer.backward):
            calls[next(call for call in step.calls if layer.x in call.reads)] = seconds
    by_bytes = {layer.x.nbytes: seconds for layer, seconds in zip(network.layers, copies, strict=False)}
    return TimedMachine(**plain, calls=calls, copies=by_bytes)


def no_join(offload: OffloadInputsOf = CONV, **others: Any) -> Setup:
    return static("test", offload, pinned=OnDemand()).replace(**others)


def joined(offload: OffloadInputsOf = CONV) -> Setup:
    return as_vdnn("test", offload)


# -- the formulas ------------------------------------------------------------------------------------------------------

loads = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8)


def test_thirteen_against_nine() -> None:
    assert (with_join(CALLS, COPIES), without_join(CALLS, COPIES)) == (13, 9)
    network = chain(5)
    on = timed_machine(network, CALLS, COPIES)
    assert Times.of(plan(network, joined(), on, PLENTY)).forward == 13
    assert Times.of(plan(network, no_join(), on, PLENTY)).forward == 9
    assert Times.of(plan(network, no_join(join=True), on, PLENTY)).forward == 13, "it is the join and nothing else"


@given(loads)
@settings(max_examples=30)
def test_the_planner_takes_as_long_as_the_formulas(load: list[tuple[int, int]]) -> None:
    compute, copies = [c for c, _ in load], [0, *(t for _, t in load[1:])]
    network = chain(len(load))
    on = timed_machine(network, compute, copies)
    assert Times.of(plan(network, joined(), on, PLENTY)).forward == with_join(compute, copies)
    assert Times.of(plan(network, no_join(), on, PLENTY)).forward == without_join(compute, copies)


# -- waits -------------------------------------------------------------------------------------------------------------


def awaited(program: Program) -> list[tuple[Wait, Any]]:
    """Every wait with the launch or copy that it waits for."""
    recorded: dict[int, Any] = {}
    last: dict[int, Any] = {}
    found = []
    for i in program.instructions:
        if isinstance(i, Record):
            recorded[i.event] = last[i.stream]
        elif isinstance(i, Wait):
            found.append((i, recorded[i.event]))
        elif not isinstance(i, (Allocate, Free)):
            last[i.stream] = i
    return found


def waits_for_offloads(program: Program) -> int:
    """The number of waits of the forward pass's kernels for copies out."""
    waits = [wait for wait, work in awaited(program) if wait.stream == COMPUTE and isinstance(work, CopyOut)]
    return sum(wait.step <= program.network.depth for wait in waits)


def forward_stall(program: Program) -> float:
    """Seconds in which no kernel ran between the first and the last of the forward pass."""
    spans = [s for s in program.simulate().on("compute") if s.instruction.step <= program.network.depth]
    return spans[-1].end - spans[0].start - sum(s.end - s.start for s in spans)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet:vdnnpp", "vgg16:vdnnpp", "vdnnpp-demo", "resnet50"])
def test_no_kernel_waits_for_an_offload_where_there_is_room(name: str) -> None:
    """One that does is vDNN.  A wait that costs nothing by the simulated clock counts: on a slower link it costs."""
    network = build(name, 16)
    for offload in (CONV, ALTERNATE_CONV, ALL):
        free, bound = (plan(network, no_join(offload, join=join), TITAN_X, PLENTY) for join in (False, True))
        assert waits_for_offloads(free) == 0 < waits_for_offloads(bound)
        assert forward_stall(free) == pytest.approx(0, abs=1e-9)
    assert forward_stall(bound) > 0.05 * Times.of(free).forward


# -- when bytes go back ------------------------------------------------------------------------------------------------


def small() -> Network:
    """Maps that differ in size, so that blocks are used again at once."""
    b = Builder("small", (3, 2, 8, 8), VDNNPP)
    for channels in (4, 6, 3, 5):
        b.conv(channels, 3, pad=1)
    b.pool(2)
    b.conv(5, 3, pad=1)
    b.fc(3)
    b.softmax()
    return b.build()


class KernelAlone(DeviceMemory):
    """Wrong: bytes go back with the kernel, and the copy is forgotten."""

    def release(self, tensor: Tensor) -> None:
        reads = self[tensor].reads
        reads[1:] = [-1] * (len(reads) - 1)
        super().release(tensor)


def test_freeing_on_the_kernel_alone_is_noticed() -> None:
    network = small()
    right = least_plan(network, no_join(ALL), MACHINE)
    right.verify()
    assert same_bits(right, CopiesLate()) and same_bits(right, CopiesEarly())
    wrong = planner(network, no_join(ALL), MACHINE, right.budget, memory=KernelAlone).plan()
    unsafe = refused(wrong)
    assert unsafe.rule == 1 and lacks(str(unsafe), "conv3", "copy out", "conv1", "memory") == []
    assert not same_bits(wrong, CopiesLate())

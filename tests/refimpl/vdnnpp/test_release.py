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
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesEarly, CopiesLate, LegalOrder, NotFinite
from refimpl.machine import MACHINES, Choice, Machine
from refimpl.memory import FirstFit
from refimpl.names.networks import build
from refimpl.network import Builder, Call, Network, Tensor
from refimpl.network.conventions import VDNNPP
from refimpl.planner import (
    COMPUTE,
    Allocate,
    CopyIn,
    CopyOut,
    DoesNotFit,
    Free,
    Launch,
    Program,
    Record,
    Setup,
    Wait,
    plan,
)
from refimpl.planner.device_memory import DeviceMemory
from refimpl.slots.algorithms import MemoryOptimal, PerformanceOptimal
from refimpl.studies.reproduce.vdnnpp.figures import as_vdnn, times
from refimpl.vdnnpp import ALL, ALTERNATE_CONV, CONV, WINDOW, OffloadInputsOf, static
from refimpl.vdnnpp.pinned import OnDemand
from refimpl.vdnnpp.presets import with_join, without_join
from tests.messages import lacks
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trained
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine, planner
from tests.refimpl.planner.mutations import find, moved, refused

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
    assert times(plan(network, joined(), on, PLENTY)).forward == 13
    assert times(plan(network, no_join(), on, PLENTY)).forward == 9
    assert times(plan(network, no_join(join=True), on, PLENTY)).forward == 13, "it is the join and nothing else"


@given(loads)
@settings(max_examples=30)
def test_the_planner_takes_as_long_as_the_formulas(load: list[tuple[int, int]]) -> None:
    compute, copies = [c for c, _ in load], [0, *(t for _, t in load[1:])]
    network = chain(len(load))
    on = timed_machine(network, compute, copies)
    assert times(plan(network, joined(), on, PLENTY)).forward == with_join(compute, copies)
    assert times(plan(network, no_join(), on, PLENTY)).forward == without_join(compute, copies)


@given(loads)
def test_the_join_at_most_doubles(load: list[tuple[int, int]]) -> None:
    """So the published 60 % cannot be a cut of time."""
    compute, copies = zip(*load, strict=True)
    least = max(sum(compute), sum(copies))
    assert least <= without_join(compute, copies) <= with_join(compute, copies) <= 2 * least


def test_a_chain_of_convolutions_gains_nothing_backward() -> None:
    """Each waits for its own X as vDNN's does."""
    network = chain(6)
    on = timed_machine(network, [2] * 6, [0, 1, 1, 1, 1, 1])
    found = [times(plan(network, made, on, PLENTY)) for made in (joined(), no_join())]
    assert len({each.whole - each.forward for each in found}) == 1


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
    assert forward_stall(bound) > 0.05 * times(free).forward


def waits_for_others(program: Program) -> list[str]:
    """Kernels of the backward pass, after its first step, that wait for anything but a copy of what they read."""
    steps, found = program.network.steps, []
    for wait, work in awaited(program):
        if wait.stream == COMPUTE and wait.step > program.network.depth + 1:
            own = isinstance(work, CopyIn) and work.tensor in steps[wait.step - 1].reads
            if not own and work.op != "copy out":  # of the losses, when all streams join at the very end
                found.append(f"{steps[wait.step - 1]}: {work.op} of {work.tensor}")
    return found


def test_backward_waits_only_for_its_own_x() -> None:
    network = build("vgg16:vdnnpp", 16)
    assert waits_for_others(plan(network, no_join(ALL), GTX_970, GTX_970.memory_bytes)) == []
    assert waits_for_others(plan(network, no_join(ALL, join=True), GTX_970, GTX_970.memory_bytes)) != []


def late_offloads(program: Program) -> list[str]:
    """Maps still on their way out when the first kernel of the backward pass starts."""
    timeline, depth = program.simulate(), program.network.depth
    begins = min(s.start for s in timeline.spans if s.engine == "compute" and s.instruction.step > depth)
    copies = [s for s in timeline.spans if s.engine == "out" and s.instruction.step <= depth]
    assert copies
    return [s.instruction.tensor.name for s in copies if s.end > begins + 1e-12]


@pytest.mark.parametrize("name", ["alexnet:vdnnpp", "vgg16:vdnnpp", "tiny-inception", "tiny-resnet:superneurons"])
def test_a_barrier_stands_between_forward_and_backward(name: str) -> None:
    """By a link so slow that copies lag far behind; without the barrier they are still running."""
    network, slow = build(name, 16), machine(link=1e8)
    assert late_offloads(plan(network, no_join(ALL), slow, PLENTY)) == []
    assert late_offloads(plan(network, no_join(ALL, barrier=False), slow, PLENTY)) != []


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


def same_bits(program: Program, order: LegalOrder) -> bool:
    """Whether an iteration in this order gives the values of plain training."""
    try:
        _, state = trained(program, 1, order=order, poison=True)
    except NotFinite:  # poison, read
        return False
    return differing(state, plain_training(program, 1)) == []


def test_freeing_on_the_kernel_alone_is_noticed() -> None:
    network = small()
    right = least_plan(network, no_join(ALL), MACHINE)
    right.verify()
    assert same_bits(right, CopiesLate()) and same_bits(right, CopiesEarly())
    wrong = planner(network, no_join(ALL), MACHINE, right.budget, memory=KernelAlone).plan()
    unsafe = refused(wrong)
    assert unsafe.rule == 1 and lacks(str(unsafe), "conv3", "copy out", "conv1", "memory") == []
    assert not same_bits(wrong, CopiesLate())


def test_freeing_on_the_copy_alone_is_noticed() -> None:
    program = least_plan(small(), no_join(ALL, join=True), MACHINE)  # a joined copy's bytes go back in its own step
    x = next(tensor for tensor in program.network.managed if tensor.name == "conv1")
    instructions = list(enumerate(program.instructions))
    forward = [(k, i) for k, i in instructions if i.step <= program.network.depth]
    reader = max(k for k, i in forward if isinstance(i, Launch) and x in i.call.reads)
    freed = next(k for k, i in instructions if isinstance(i, Free) and i.tensor is x)
    assert reader < find(program, "copy out", "conv1") < freed
    wrong = moved(program, reader, freed)  # the copy, the free, and then the reader
    assert refused(wrong, "conv1").rule == 2


# -- back-pressure -----------------------------------------------------------------------------------------------------


class Watching(DeviceMemory):
    """Notes down what an allocation had to wait for, and what was still pending when one failed."""

    handed_back: list[Tensor]
    pending_at_failure: int | None = None

    def give_back_oldest(self) -> bool:
        before = list(self._draining)
        given = super().give_back_oldest()
        gone = [other for other in before if other not in self._draining]
        assert gone == before[: len(gone)], "the oldest goes first"
        self.handed_back += gone
        return given

    def does_not_fit(self, tensor: Tensor, stays: bool = False) -> DoesNotFit:
        self.pending_at_failure = len(self._draining)
        return super().does_not_fit(tensor, stays)


@pytest.mark.slow
def test_an_allocation_that_does_not_fit_waits_for_the_oldest_copy() -> None:
    """From plenty down to the least budget: as without the join first, then slower, never as slow as with it.

    First fit, so that a smaller pool is never a better one.
    """
    network, compute, copies = chain(12, 20), [1] * 8 + [5] * 4, [0] + [3] * 8 + [1] * 3
    on, setup = timed_machine(network, compute, copies), no_join(allocator=FirstFit())
    enough = plan(network, setup, on, PLENTY).arena_bytes
    took: dict[int, float] = {}
    failed = 0
    for budget in range(enough, enough // 3, -256 * 1024):
        planning = planner(network, setup, on, budget, memory=Watching)
        memory = planning.memory
        assert isinstance(memory, Watching)
        memory.handed_back = []
        try:
            program = planning.plan()
        except DoesNotFit:
            failed += 1
            assert memory.pending_at_failure == 0, "there is nothing left to wait for"
            continue
        program.verify()
        assert program.planned_seconds == program.simulate().seconds
        took[budget] = times(program).forward
        assert (forward_stall(program) > 0) <= bool(memory.handed_back), "nothing but memory is a brake"
    assert failed and [*took.values()] == sorted(took.values())
    assert took[enough] == without_join(compute, copies) == 28
    assert max(took.values()) == 33 < with_join(compute, copies)


class HandsBackTheLast(DeviceMemory):
    """Wrong: an allocation that finds no room takes the bytes of the copy that will be done last."""

    def give_back_oldest(self) -> bool:
        if self._draining:
            self._give_back(next(reversed(self._draining)))
            return True
        return False


def test_waiting_for_another_copy_than_the_oldest_is_noticed() -> None:
    network = chain(12, 20)
    on, setup = timed_machine(network, [1] * 8 + [5] * 4, [0] + [3] * 8 + [1] * 3), no_join(allocator=FirstFit())
    budget = plan(network, setup, on, PLENTY).arena_bytes * 6 // 10
    right, wrong = plan(network, setup, on, budget), planner(network, setup, on, budget, memory=HandsBackTheLast).plan()
    wrong.verify()  # safe, and slow
    assert times(wrong).forward > times(right).forward


# -- as a whole --------------------------------------------------------------------------------------------------------

PAPERS_NETWORKS = (
    ("alexnet", 128), ("overfeat", 128), ("googlenet", 128), ("vgg16", 64), ("resnet50", 16),
    ("alexnet:vdnnpp", 128), ("vgg16:vdnnpp", 16), ("vgg16:vdnnpp", 128), ("vdnnpp-demo", 32),
)  # fmt: skip
SETS = (ALL, CONV, ALTERNATE_CONV)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch"), PAPERS_NETWORKS)
def test_never_slower_than_vdnn_on_the_papers_networks(name: str, batch: int) -> None:
    network = build(name, batch)
    for on, algorithms in ((TITAN_X, PerformanceOptimal()), (GTX_970, MemoryOptimal())):
        for offload in SETS:
            seconds = [
                plan(network, made, on, PLENTY).planned_seconds
                for made in (as_vdnn("", offload, algorithms), static("", offload, algorithms, OnDemand()))
            ]
            assert seconds[1] <= seconds[0] * (1 + 1e-9), (on.name, offload.name, algorithms.name, seconds)


def seconds_of(network: Network, offload: OffloadInputsOf, link: float, **others: Any) -> tuple[float, float]:
    """Of vDNN, with some of its rules exchanged, and of vDNN++."""
    on = machine(link)
    theirs = as_vdnn("", offload).replace(**others)
    return plan(network, theirs, on, PLENTY).planned_seconds, plan(
        network, no_join(offload), on, PLENTY
    ).planned_seconds


drawn = networks(layers=10) | networks(layers=10, conventions=VDNNPP)
links = st.sampled_from((1e7, 1e8, 1e9, 1e10))


@pytest.mark.slow
@given(drawn, st.sampled_from(SETS), links)
@settings(max_examples=20)
def test_leaving_out_the_join_is_never_slower(network: Network, offload: OffloadInputsOf, link: float) -> None:
    """Whatever the network, all else being equal: the search, the barrier, the allocator."""
    joined, free = (plan(network, no_join(offload, join=join), machine(link), PLENTY) for join in (True, False))
    assert free.planned_seconds <= joined.planned_seconds * (1 + 1e-9)


@pytest.mark.slow
def test_slower_than_vdnn_is_rare_on_drawn_networks() -> None:
    """Against vDNN by its own rules, which has no barrier and searches elsewhere: now and then, and by little."""
    slower: list[float] = []

    @given(drawn, st.sampled_from(SETS), links)
    @settings(max_examples=40, derandomize=True, phases=[Phase.generate], database=None)
    def compare(network: Network, offload: OffloadInputsOf, link: float) -> None:
        joined, free = seconds_of(network, offload, link)
        slower.append(free / joined - 1)

    compare()
    assert sum(share > 1e-9 for share in slower) < 0.1 * len(slower) and max(slower) < 0.25
    assert sum(share < -1e-9 for share in slower) > 0.2 * len(slower) and min(slower) < -0.1


def test_the_barrier_can_cost_more_than_the_join() -> None:
    """One convolution, whose X is the batch: vDNN fetches it again while forward runs, vDNN++ only after it."""
    b = Builder("one", (3, 1, 6, 6), VDNNPP)
    b.conv(1, 1)
    b.pool(6)
    b.fc(2)
    b.softmax()
    network = b.build()
    joined, free = seconds_of(network, CONV, 1e7, prefetch=WINDOW)
    assert joined < free < 1.15 * joined
    joined, free = seconds_of(network, CONV, 1e7, prefetch=WINDOW, barrier=True)
    assert free <= joined


pinned = st.sampled_from(("buffer-a-map", "vdnnpp-on-demand", "vdnnpp-compressed"))

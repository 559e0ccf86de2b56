"""What goes wrong when vDNN is built: pitfalls, each made on purpose here, and each noticed.

A test holds ours to a rule and then breaks the rule: by a module that is wrong in this one point, by a program with a
wait or an address spoilt, by a machine that cheats.  A rule that the wrong one keeps as well says nothing.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from refimpl.backend import CopiesEarly, CopiesLate, LegalOrder, NotFinite
from refimpl.machine import MACHINES
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.network import Builder, Layer, Network, Tensor
from refimpl.planner import (
    COMPUTE,
    Context,
    CopyIn,
    CopyOut,
    DoesNotFit,
    Free,
    Instruction,
    Launch,
    Program,
    Record,
    Setup,
    Wait,
    plan,
)
from refimpl.slots.baseline import LayerWise, Releases
from refimpl.slots.last_consumer import LastConsumerSends
from refimpl.slots.window import BoundWindow, Window
from refimpl.studies.reproduce.vdnn.figures import ORACLE
from refimpl.vdnn import ALL, OffloadInputs
from refimpl.vdnn.offload import WINDOW
from tests.messages import lacks, raises_naming
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trained
from tests.refimpl.modules import least_plan
from tests.refimpl.planner.mutations import changed, find, moved, refused, with_instructions

pytestmark = pytest.mark.vdnn

GIB = 2**30
TITAN_X = MACHINES["titan-x"]
PLENTY = 60 * GIB


def vdnn_all(algorithms: str = "memory") -> Setup:
    made = presets.setup("vdnn-all", {"algorithms": algorithms})
    assert isinstance(made, Setup)
    return made


def chain() -> Network:
    """Maps that differ in size, so that blocks are used again at once."""
    b = Builder("chain", (3, 2, 8, 8))
    for channels in (4, 6, 3):
        b.conv(channels, 3, pad=1)
        b.relu()
    b.pool(2)
    b.conv(5, 3, pad=1)
    b.relu()
    b.fc(3)
    b.softmax()
    return b.build()


def forked() -> Network:
    """conv1's map, which a ReLU overwrites, is read by a pooling and then by a convolution."""
    b = Builder("forked", (3, 2, 8, 8))
    b.conv(4, 3, pad=1)
    trunk = b.relu()
    left = b.pool(2, 1, name="left")
    b.conv(4, 1, name="right", after=trunk)
    b.concat(left, b.pool(2, 1))
    b.fc(3)
    b.softmax()
    return b.build()


def without_waits(program: Program, stream: int, after: type, backward: bool) -> Program:
    """The program without the waits of one stream for instructions of a type, in one direction."""
    waited_for: dict[int, Any] = {}
    last: dict[int, Any] = {}  # stream → its latest launch or copy
    kept = []
    for i in program.instructions:
        if isinstance(i, Record):
            waited_for[i.event] = last[i.stream]
        elif isinstance(i, (Launch, CopyIn, CopyOut)):
            last[i.stream] = i
        drop = isinstance(i, Wait) and i.stream == stream and isinstance(waited_for[i.event], after)
        if not (drop and (i.step > program.network.depth) == backward):
            kept.append(i)
    assert len(kept) < len(program.instructions), "there was nothing to leave out"
    return with_instructions(program, kept)


def same_bits(program: Program, order: LegalOrder) -> bool:
    """Whether an iteration in this order gives the values of plain training."""
    try:
        _, state = trained(program, 1, order=order, poison=True)
    except NotFinite:  # poison, read
        return False
    return differing(state, plain_training(program, 1)) == []


# -- 1. offload is the consumer's act, on its X; once; by the last consumer; never a ReLU's ----------------------------


@dataclass(frozen=True)
class SentByUse(OffloadInputs):
    """Wrong: what leaves is sent by another use of the map, 0 being the layer that makes it."""

    use: int = 0

    def bind(self, context: Context) -> LastConsumerSends:
        bound = super().bind(context)
        wrong: defaultdict[int, list[Tensor]] = defaultdict(list)
        for x in bound.offloads():
            wrong[context.uses[x][self.use if x is not context.network.input else 0].number].append(x)
        bound._at = wrong
        return bound


def wrong_senders(program: Program) -> list[str]:
    """Maps that were not sent once, by the last layer that reads them as its X."""
    layers, wrong = program.network.layers, []
    sent: defaultdict[Tensor, list[Layer]] = defaultdict(list)
    for i in program.instructions:
        if isinstance(i, CopyOut) and i.why == "offload":
            sent[i.tensor].append(layers[i.step - 1])
    for tensor, senders in sent.items():
        readers = [layer for layer in layers if tensor in layer.inputs and tensor not in layer.outputs]
        if senders != readers[-1:] or senders[0].kind == "relu":
            wrong.append(tensor.name)
    return wrong


@pytest.mark.parametrize("network", [chain(), forked(), build("vgg16", 64)], ids=lambda n: n.name)
def test_1_the_last_consumer_sends_its_x_once(network: Network) -> None:
    right = plan(network, vdnn_all(), TITAN_X, PLENTY)
    assert right.counts.offloaded_bytes > 0 and wrong_senders(right) == []
    for use in (0, 1):
        module = SentByUse(ALL.kinds, "wrong", "", use)
        wrong = plan(network, vdnn_all().replace(offload=module), TITAN_X, PLENTY)
        assert wrong_senders(wrong) != []
        if use == 0 and network.name != "forked":  # the ReLU outdates what its convolution sent: all goes twice
            assert wrong.counts.offloaded_bytes > 1.5 * right.counts.offloaded_bytes
        if network.name == "vgg16":  # beside a ReLU no copy can hide
            assert wrong.simulate().seconds > 1.04 * right.simulate().seconds


# -- 2. X is free after the copy and the kernel ------------------------------------------------------------------------


def test_2_x_is_free_after_its_copy_and_its_last_reader() -> None:
    program = least_plan(chain(), vdnn_all(), MACHINE)
    program.verify()
    assert same_bits(program, CopiesLate())

    kernel_only = without_waits(program, COMPUTE, after=CopyOut, backward=False)
    assert refused(kernel_only, "conv3", "copy out", "conv1", "compute", "memory").rule == 1
    assert not same_bits(kernel_only, CopiesLate())

    x = next(t for t in program.network.managed if t.name == "conv1")
    instructions = list(enumerate(program.instructions))
    reader = max(
        k for k, i in instructions if isinstance(i, Launch) and i.step <= program.network.depth and x in i.call.reads
    )
    freed = next(k for k, i in instructions if isinstance(i, Free) and i.tensor is x)
    assert reader < find(program, "copy out", "conv1") < freed
    copy_only = moved(program, reader, freed)  # the copy, the free, and then the reader
    assert refused(copy_only, "conv.forward", "free", "conv1").rule == 2


# -- 3. a prefetch waits for the last reader of its block --------------------------------------------------------------


def test_3_a_prefetch_waits_for_whoever_had_its_block_before() -> None:
    program = least_plan(chain(), vdnn_all(), MACHINE)
    assert program.counts.prefetched_bytes > 0
    assert same_bits(program, CopiesEarly())

    racing = without_waits(program, stream=1, after=Launch, backward=True)
    unsafe = refused(racing)
    assert unsafe.rule == 1 and lacks(str(unsafe), "copy in", "input", "memory", "compute") == []
    assert not same_bits(racing, CopiesEarly())


# -- 4. a CONV's backward does not hold Y ------------------------------------------------------------------------------


class HoldsY(LayerWise):
    """Wrong: what a CONV made stays until the CONV's own backward is done, as if that read it."""

    def bind(self, context: Context) -> Releases:
        releases = super().bind(context)
        backward = {step.layer: step.number for step in context.network.steps if not step.forward}
        for tensor in context.maps_across():
            producer = context.producer(tensor)
            if producer is not None and producer.layer.kind == "conv":
                releases._at[context.last_use(tensor)].remove(tensor)
                releases.add(backward[producer.layer], tensor)
        return releases


def test_4_a_conv_holds_three_large_maps_and_not_four() -> None:
    """VGG-16(256), all (m): 9.33 GiB of maps and gradients are alive at once, with Y held 12.4 (calculated)."""
    network = build("vgg16", 256)
    program = plan(network, vdnn_all(), TITAN_X, 12 * GIB)
    assert program.peak.live_bytes / GIB == pytest.approx(9.33, abs=0.005)
    wrong = vdnn_all().replace(liveness=HoldsY())
    assert plan(network, wrong, TITAN_X, PLENTY).peak.live_bytes / GIB == pytest.approx(12.4, abs=0.05)
    with raises_naming(DoesNotFit, "conv1_2"):
        plan(network, wrong, TITAN_X, 12 * GIB)


# -- 5. copies are asynchronous: pinned memory -------------------------------------------------------------------------


def synchronous(program: Program) -> Program:
    """Wrong: every copy as from pageable memory, where the host, and so everything after it, waits for its end."""
    made: list[Instruction] = []
    event = 1 + max(i.event for i in program.instructions if isinstance(i, Record))
    for i in program.instructions:
        if not isinstance(i, (CopyIn, CopyOut)):
            made.append(i)
            continue
        before, after = event, event + 1
        made += [Record(i.step, COMPUTE, before), Wait(i.step, i.stream, before), i]
        made += [Record(i.step, i.stream, after), Wait(i.step, COMPUTE, after)]
        event += 2
    return with_instructions(program, made)


def test_5_copies_run_beside_kernels_and_synchronous_ones_would_not() -> None:
    program = plan(build("vgg16", 64), vdnn_all(), TITAN_X, 12 * GIB)
    timeline, wrong = program.simulate(), synchronous(program).simulate()
    assert timeline.overlap() > 0.5 * timeline.copying()
    assert wrong.overlap() == 0
    assert wrong.seconds > timeline.seconds + 0.99 * timeline.overlap()


# -- 7. sizes and addresses have more than 32 bits ---------------------------------------------------------------------


def test_7_sizes_and_addresses_have_more_than_32_bits() -> None:
    """VGG-16(256): maps of 3.3 GB, a pool of 12 GiB, 15.6 GB of pinned memory."""
    program = plan(build("vgg16", 256), vdnn_all(), TITAN_X, 12 * GIB)
    program.verify()
    copies = [k for k, i in enumerate(program.instructions) if isinstance(i, CopyOut)]
    largest = max(copies, key=lambda k: program.instructions[k].nbytes)  # type: ignore[union-attr]
    out = program.instructions[largest]
    assert isinstance(out, CopyOut) and out.nbytes == 256 * 64 * 224 * 224 * 4 > 2**31
    assert program.pinned_bytes > 2**32
    for what in ("address", "pinned_address"):
        high = next(k for k in copies if getattr(program.instructions[k], what) >= 2**32)
        refused(changed(program, high, **{what: getattr(program.instructions[high], what) % 2**32}))
    signed = int(np.array(out.nbytes).astype(np.int32))
    assert signed < 0
    refused(changed(program, largest, nbytes=signed % 2**31))
    refused(changed(program, largest, nbytes=signed))


# -- 8. marks do not survive -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remembers(Window):
    """Wrong: the marks belong to the module, and so outlive the iteration they were made in."""

    marks: set[Layer] = field(default_factory=set)

    def bind(self, context: Context) -> BoundWindow:
        bound = super().bind(context)
        bound._prefetched = self.marks
        return bound


def test_8_marks_do_not_survive() -> None:
    network = build("vgg16", 64)

    def prefetched(window: Window) -> list[int]:
        setup = vdnn_all().replace(prefetch=window)
        return [plan(network, setup, TITAN_X, PLENTY).counts.prefetched_bytes for _ in range(2)]

    first, second = prefetched(WINDOW)
    assert first == second > 0
    assert prefetched(Remembers(WINDOW.name, WINDOW.summary, WINDOW.silent)) == [first, 0]


# -- 9. best fit is not monotone ---------------------------------------------------------------------------------------


def test_9_a_larger_pool_may_fail_and_the_failure_reports_the_largest_hole() -> None:
    b = Builder("uneven", (2, 3, 16, 16))
    for channels in (1, 0, 1, 3):
        if channels:
            b.conv(channels, 3, pad=1)
            b.relu()
        else:
            b.pool(2)
    b.fc(3)
    b.softmax()
    network, fits = b.build(), []
    enough = plan(network, vdnn_all(), TITAN_X, PLENTY).peak_bytes
    for budget in range(enough * 9 // 10 // 512 * 512, enough * 5 // 4, 512):
        try:
            fits.append(plan(network, vdnn_all(), TITAN_X, budget).budget)
        except DoesNotFit as error:
            if fits and error.free >= error.asked:  # by the free bytes alone it would fit
                assert error.largest_hole < error.asked
                return
    pytest.fail("every larger pool fits")


# -- 10. slow kernels make every policy look free ----------------------------------------------------------------------


def test_10_slow_kernels_make_a_policy_look_free_and_their_rate_gives_them_away() -> None:
    """Kernels of a twentieth of the speed hide every copy.  A Titan X's maker says 7 TFLOP/s."""
    network = build("vgg16", 64)
    flops = sum(call.flops for step in network.steps for call in step.calls)
    slow = dataclasses.replace(TITAN_X, flops=TITAN_X.flops / 20, bandwidth=TITAN_X.bandwidth / 20)
    lost, rates = [], []
    for machine in (TITAN_X, slow):
        timeline = plan(network, vdnn_all("performance"), machine, PLENTY).simulate()
        lost.append(timeline.seconds / plan(network, ORACLE, machine, PLENTY).simulate().seconds - 1)
        rates.append(flops / timeline.busy("compute") / 7e12)
    assert lost[0] > 0.1 and lost[1] < 0.02  # free, by this figure alone
    assert 0.25 < rates[0] < 1 and rates[1] < 0.1  # and no such GPU would be so slow

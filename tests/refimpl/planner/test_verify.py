"""`verify` on right programs: its proof, its warnings, and that its work grows with the program's length."""

from __future__ import annotations

import dataclasses

import pytest

from refimpl.network import Builder
from refimpl.planner import COMPUTE, Launch, Program, Record, plan
from refimpl.planner.instructions import Wait
from refimpl.planner.verify import Proof
from refimpl.planner.verify.check import Check
from tests.refimpl.modules import (
    AnyAlgorithm,
    DropSome,
    LastUsed,
    OffloadSome,
    least_plan,
    machine,
    setup,
)
from tests.refimpl.planner.mutations import MOVING, at, find, inserted, refused, small_network, small_program

# -- right programs ----------------------------------------------------------------------------------------------------


def test_the_proof_says_what_was_checked() -> None:
    planned = small_program(**MOVING)
    proof = planned.verify()
    ops = [instruction.op for instruction in planned.instructions]
    assert isinstance(proof, Proof)
    assert proof.instructions == len(ops)
    assert proof.launches == ops.count("launch") == sum(len(step.calls) for step in planned.network.steps)
    assert proof.copies == ops.count("copy out") + ops.count("copy in") > 4
    assert proof.waits == ops.count("wait") == planned.counts.waits > 4
    assert proof.events == ops.count("record")
    touched = [len(call.operands) + len(call.updates) for step in planned.network.steps for call in step.calls]
    assert proof.accesses == 2 * (sum(touched) + 2 * proof.copies)  # no workspace here; each copy reads and writes
    assert proof.peak_bytes == planned.peak_bytes
    assert proof.warnings == ()
    assert str(proof).startswith(f"right: {len(ops)} instructions")


@pytest.mark.parametrize(
    "modules",
    [
        {},
        {"offload": OffloadSome(0.6, 1, early=True), "cache": LastUsed()},
        {"recompute": DropSome(), "offload": OffloadSome(), "join": True},
        {"recompute": DropSome(frugal=True), "cache": LastUsed(), "algorithms": AnyAlgorithm(3)},
        {**MOVING, "copy_streams": "shared"},
    ],
)
def test_what_is_planned_is_right(modules: dict[str, object]) -> None:
    least_plan(small_network(), setup(**modules), machine(1e8), 0.1).verify()


def test_inference_is_right_too() -> None:
    plan(small_network().inference(), setup(), machine(), 1 << 26).verify()


def test_batch_normalisation_and_dropout_may_be_rebuilt_without_their_lasting_changes() -> None:
    b = Builder("normalised", (2, 3, 6, 6))
    b.conv(4, 3, pad=1)
    b.batchnorm()
    b.relu()
    b.dropout(0.3)
    b.fc(3)
    b.softmax()
    planned = plan(b.build(), setup(recompute=DropSome()), machine(), 1 << 26)
    planned.verify()
    again = [it for it in planned.instructions if isinstance(it, Launch) and it.rebuild]
    assert {"batchnorm.forward", "dropout.forward"} <= {it.call.function for it in again}
    once = find(planned, "launch", "batchnorm.update_running")
    twice = dataclasses.replace(at(planned, once, Launch), rebuild=True)
    assert refused(inserted(planned, once + 1, twice), "rebuild", "batchnorm.update_running").second is twice


# -- safe, and of no use -----------------------------------------------------------------------------------------------


def test_a_wait_that_is_implied_and_events_nobody_waits_for() -> None:
    planned = small_program(**MOVING)
    index = find(planned, "wait")
    wait = at(planned, index, Wait)
    assert planned.verify().warnings == ()
    (warning,) = inserted(planned, index + 1, wait).verify().warnings
    assert warning.startswith(f"instruction {index + 1} (wait of event {wait.event} on ")
    assert warning.endswith("its stream is ordered after that event already")
    alone = inserted(planned, index, Record(1, COMPUTE, 500), Record(1, COMPUTE, 500))
    first, second = alone.verify().warnings
    assert first.endswith("no stream waits for it before it is recorded again")
    assert second.endswith("no stream waits for it")


def test_a_copy_that_is_never_read() -> None:
    planned = small_program(**MOVING)
    index = find(planned, "copy in", "conv1")
    twice = inserted(planned, index, planned.instructions[index])
    (warning,) = twice.verify().warnings
    assert warning.startswith(f"instruction {index} (copy in of conv1 on in; ")
    assert warning.endswith("its copy is never read")


# -- linear ------------------------------------------------------------------------------------------------------------


def deep(blocks: int) -> Program:
    b = Builder("deep", (1, 3, 8, 8))
    b.conv(8, 3, pad=1)
    for _ in range(blocks):
        x = b.relu()
        b.conv(4, 1)
        b.batchnorm()
        b.relu()
        b.conv(8, 3, pad=1)
        b.join(x, b.batchnorm())
    b.fc(3)
    b.softmax()
    wanted = setup(recompute=DropSome(0.4, 1, ("relu", "batchnorm")), **MOVING)
    return plan(b.build(), wanted, machine(), 1 << 30)


def work(program: Program) -> int:
    check = Check(program)
    check.run()
    return check.device.free_bytes.moved + check.pinned.free_bytes.moved + check.order.accesses


def test_the_work_grows_with_the_length_of_the_program() -> None:
    short, long = deep(10), deep(80)
    longer = len(long.instructions) / len(short.instructions)
    assert longer > 6
    assert work(long) < 1.2 * longer * work(short)

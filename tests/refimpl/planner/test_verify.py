"""`verify`: its proof and its warnings of right programs, and faults planted by hand, each found and named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from refimpl.machine import Tier
from refimpl.network import Builder, Network, Tensor
from refimpl.planner import COMPUTE, Allocate, CopyIn, CopyOut, Free, Instruction, Launch, Program, Record, Wait, plan
from refimpl.planner.instructions import ToStore
from refimpl.planner.verify import Proof
from refimpl.superneurons import UnifiedTensorPool
from tests.refimpl.modules import (
    AnyAlgorithm,
    DropSome,
    machine,
    setup,
)
from tests.refimpl.planner.mutations import (
    COMPRESSING,
    MOVING,
    at,
    changed,
    find,
    inserted,
    more_pinned,
    moved,
    refused,
    small_network,
    small_program,
    tensor,
    with_instructions,
    without,
)

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


# -- faults planted by hand, rule by rule: `verify` finds each, and names what it concerns -----------------------------


PLENTY = 1 << 26
OUT, IN = 1, 2  #: streams

# -- right programs to spoil -------------------------------------------------------------------------------------------


def with_workspace() -> Program:
    programs = (small_program(algorithms=AnyAlgorithm(seed)) for seed in range(20))
    return next(one for one in programs if any(isinstance(it, Launch) and it.workspace for it in one.instructions))


def normalised() -> Network:
    """A batch normalisation and a dropout that run again, without what lasts of the first."""
    b = Builder("normalised", (2, 3, 6, 6))
    b.conv(4, 3, pad=1)
    b.batchnorm()
    b.relu()
    b.dropout(0.3)
    b.fc(3)
    b.softmax()
    return b.build()


def in_tiers(*tiers: Tier) -> Program:
    return plan(small_network(), setup(**MOVING | {"pinned": UnifiedTensorPool()}), machine().with_tiers(tiers), PLENTY)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "plain": small_program,
    "moving": lambda: small_program(**MOVING),
    "compressing": lambda: small_program(**COMPRESSING),  # conv1 and conv2 take turns in one pinned buffer
    "rebuilding": lambda: small_program(recompute=DropSome()),
    "normalised": lambda: plan(normalised(), setup(recompute=DropSome()), machine(), PLENTY),
    "workspace": with_workspace,
    "ranks": lambda: plan(small_network().data_parallel(2), setup(**MOVING), machine(), PLENTY),
    "tiers": lambda: in_tiers(Tier("peer"), Tier("host")),
}


@cache
def right(name: str) -> Program:
    program = PROGRAMS[name]()
    program.verify()
    return program


# -- ways to spoil one -------------------------------------------------------------------------------------------------

Spoil = Callable[[Program], Program]


def edit(op: str, name: str = "", **fields: Any) -> Spoil:
    """The first such instruction with other fields; a field may be a function of the instruction."""

    def spoil(program: Program) -> Program:
        index = find(program, op, name)
        it = program.instructions[index]
        found = {field: value(it) if callable(value) else value for field, value in fields.items()}
        return changed(program, index, **found)

    return spoil


def leave_out(op: str, name: str = "", **which: Any) -> Spoil:
    return lambda program: without(program, find(program, op, name, **which))


def twice(op: str, name: str, **fields: Any) -> Spoil:
    """The instruction a second time, directly after itself, perhaps with other fields."""

    def spoil(program: Program) -> Program:
        index = find(program, op, name)
        return inserted(program, index + 1, dataclasses.replace(program.instructions[index], **fields))

    return spoil


def to(op: str, name: str, other: str, other_name: str) -> Spoil:
    """The instruction moved in front of another one, or after it if that comes later."""
    return lambda program: moved(program, find(program, op, name), find(program, other, other_name))


def of_program(**fields: Callable[[Program], Any]) -> Spoil:
    return lambda program: dataclasses.replace(program, **{name: make(program) for name, make in fields.items()})


def no_wait_before(op: str, name: str, on: str | None = None) -> Spoil:
    """Without the last wait in front of an instruction, or the last one there for the stream `on`."""

    def spoil(program: Program) -> Program:
        recorded = {it.event: program.streams[it.stream] for it in program.instructions if isinstance(it, Record)}
        index = find(program, op, name)
        while not (isinstance(it := program.instructions[index], Wait) and on in (None, recorded[it.event])):
            index -= 1
        return without(program, index)

    return spoil


def no_wait_at_the_end(program: Program) -> Program:
    end = find(program, "copy out", "losses")
    return with_instructions(program, [it for i, it in enumerate(program.instructions) if i < end or it.op != "wait"])


def first_launch(make: Callable[[Program], Instruction]) -> Spoil:
    """One more instruction in front of the first launch."""
    return lambda program: inserted(program, find(program, "launch"), make(program))


def weight(program: Program) -> tuple[Tensor, int]:
    found = tensor(program, "conv1.w")
    return found, program.resident[found]


def block_of(program: Program, name: str) -> Allocate:
    return at(program, find(program, "allocate", name), Allocate)


def one_buffer_for_two_maps(program: Program) -> Program:
    host = at(program, find(program, "copy out", "conv1"), CopyOut).pinned_address
    for op in ("copy out", "copy in"):
        program = changed(program, find(program, op, "conv2"), pinned_address=host)
    return program


def with_choice(**fields: Any) -> Spoil:
    """Another choice where there is a workspace; the workspace has its size."""

    def spoil(program: Program) -> Program:
        index, it = first_with_workspace(program)
        choice = dataclasses.replace(it.choice, **fields)
        space = (it.workspace[0], choice.workspace_bytes) if choice.workspace_bytes else None
        return changed(program, index, choice=choice, workspace=space)

    return spoil


def with_space(space: Callable[[Any], Any]) -> Spoil:
    def spoil(program: Program) -> Program:
        index, it = first_with_workspace(program)
        return changed(program, index, workspace=space(it))

    return spoil


def first_with_workspace(program: Program) -> tuple[int, Any]:
    return next((i, it) for i, it in enumerate(program.instructions) if isinstance(it, Launch) and it.workspace)


def rebuilt_by_another_algorithm(program: Program) -> Program:
    index = find(program, "launch", "conv.forward", rebuild=True)
    it = at(program, index, Launch)
    offered = program.machine.choices(it.call)
    other = next(one for one in offered if one.algorithm != it.choice.algorithm and not one.workspace_bytes)  # type: ignore[union-attr]
    return changed(program, index, choice=other)


def weight_from_before_its_update(program: Program) -> Program:
    program, host = more_pinned(program, 1 << 12)
    found, address = weight(program)
    place = (found, address, host, found.nbytes, COMPUTE)
    program = inserted(program, len(program.instructions), CopyIn(14, *place))
    return inserted(program, find(program, "launch"), CopyOut(1, *place))


def another_maps_store(program: Program) -> Program:
    mine = find(program, "compress", "conv1")
    other = next(it for it in program.instructions if isinstance(it, ToStore) and it.tensor.name != "conv1")
    return changed(program, mine, store_address=other.store_address)


#: What is wrong: the program, what spoils it, the rule that finds it, and what the message names.
FAULTS: dict[str, tuple[str, Spoil, int, tuple[object, ...]]] = {
    # 1: order
    "an event that was never recorded": ("moving", edit("wait", event=999), 1, (999,)),
    "the second iteration does not wait for the first": ("moving", no_wait_at_the_end, 1, ("second",)),
    "a kernel on a stream for copies": ("moving", edit("launch", stream=1), 1, ("conv.forward", "out", "compute")),
    "a stream that is not there": ("moving", edit("copy out", stream=3), 1, ("stream", 3)),
    "a buffer overwritten before its map is compressed": (
        "compressing", no_wait_before("copy out", "conv2", "host"), 1, ("compress", "conv1", "out", "host"),
    ),
    # 2: lifetime
    "freed twice": ("plain", twice("free", "conv1"), 2, ("free", "conv1")),
    "used after it was freed": ("plain", to("free", "conv1", "launch", "relu.backward"), 2, ("free", "conv1")),
    "used before it is allocated": ("plain", to("allocate", "conv2", "launch", "pool.forward"), 2, ("conv2",)),
    "two blocks overlap": (
        "plain", lambda p: edit("allocate", "conv2", address=block_of(p, "conv1").address + 512)(p), 2,
        ("conv2", "conv1"),
    ),
    "a block after the arena": ("plain", edit("allocate", "conv2", address=PLENTY), 2, ("conv2",)),
    "a block freed in part": ("plain", edit("free", "conv1", nbytes=1536), 2, ("free", "conv1", 1536, 2048)),
    "a block smaller than its tensor": ("plain", edit("allocate", "conv2", nbytes=1536), 2, ("conv2", 1536, 2048)),
    "a weight freed": ("plain", first_launch(lambda p: Free(1, *weight(p), 512, 1)), 2, ("free", "conv1.w")),
    "two weights at one address": (
        "plain", of_program(resident=lambda p: dict.fromkeys(p.resident, next(iter(p.resident.values())))), 2, (),
    ),
    "a weight without an address": ("plain", of_program(resident=lambda p: dict([*p.resident.items()][1:])), 2, ()),
    "a result outside of pinned memory": (
        "plain", of_program(pinned=lambda p: dict(p.pinned) | {p.network.losses: p.pinned_bytes}), 2, ("losses",),
    ),
    "a copy over the batch": (
        "moving", lambda p: edit("copy out", "conv1", pinned_address=p.pinned[p.network.labels])(p), 2, ("conv1",),
    ),
    "a copy from elsewhere": ("moving", edit("copy in", "conv1", pinned_address=lambda it: it.pinned_address + 512), 2,
                              ("conv1",)),
    "one buffer for two maps": ("moving", one_buffer_for_two_maps, 2, ("conv1", "conv2")),
    "a copy of a part": ("moving", edit("copy out", "conv1", nbytes=100), 2, ("conv1", 100, 2048)),
    "no workspace": ("workspace", with_space(lambda it: None), 2, ()),
    "a tier that is not there": ("tiers", edit("copy out", "conv1", tier="remote"), 2, ("conv1", "no remote tier")),
    "compressed before it has left": ("compressing", to("compress", "conv1", "copy out", "conv1"), 2, ("conv1",)),
    "decompressed without being compressed": ("compressing", leave_out("compress", "conv1"), 2, ("conv1", "store")),
    "another map's store": ("compressing", another_maps_store, 2, ()),
    "a store that is too small": ("compressing", of_program(store_bytes=lambda p: p.store_bytes - 512), 2, ("store",)),
    "other bytes than the map has": ("compressing", edit("compress", "conv1", nbytes=512), 2, ("conv1", 2048)),
    # 3: values
    "a workspace of no offered size": ("workspace", with_choice(workspace_bytes=4), 3, (4,)),
    "an algorithm that is not offered": ("workspace", with_choice(algorithm="another"), 3, ("another",)),
    "a weight from before its update": ("plain", weight_from_before_its_update, 3, ("conv1.w", "sgd.update")),
    "a rebuild from what it has overwritten": ("plain", twice("launch", "relu.forward", rebuild=True), 3, ("conv1",)),
    "statistics updated by a rebuild": (
        "normalised", twice("launch", "batchnorm.update_running", rebuild=True), 3,
        ("rebuild", "batchnorm.update_running"),
    ),
    "a rebuild that begins too late": ("rebuilding", leave_out("launch", "conv.forward", rebuild=True), 3, ()),
    "a rebuild with another algorithm": ("rebuilding", rebuilt_by_another_algorithm, 3, ("conv.forward",)),
    "no algorithm": ("plain", edit("launch", "conv.forward", choice=None), 3, ("conv.forward", "algorithm")),
    "a call run twice": ("plain", twice("launch", "conv.forward"), 3, ("conv.forward",)),
    "an update made twice": ("plain", twice("launch", "sgd.update"), 3, ("sgd.update",)),
    "a missing call": ("plain", leave_out("launch", "conv.backward_filter", last=True), 3, ("conv1",)),
    "a batch that never came": ("plain", leave_out("copy in", "input"), 3, ("input",)),
    "a result that never comes out": ("plain", leave_out("copy out", "losses"), 3, ("losses",)),
    # 4 and 5: release, and the budget
    "a leak": ("plain", leave_out("free", last=True), 4, ()),
    "a byte over the budget": ("plain", of_program(budget=lambda p: p.peak_bytes - 1), 5, ()),
    "an arena larger than the budget": (
        "plain", of_program(budget=lambda p: p.arena_bytes, arena_bytes=lambda p: p.arena_bytes + 512), 5, (),
    ),
    "a peak that is another": ("plain", of_program(peak_bytes=lambda p: p.peak_bytes + 512), 5, ()),
    "a tier larger than the machine's": (
        "tiers", of_program(machine=lambda p: machine().with_tiers([Tier("peer", 512), Tier("host")])), 5,
        ("the peer tier", 512),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_found_and_named(fault: str) -> None:
    name, spoil, rule, says = FAULTS[fault]
    assert refused(spoil(right(name)), *says).rule == rule


# -- what a refusal has for a program that reads it --------------------------------------------------------------------


def test_a_block_freed_untouched_and_used_again_by_another_stream() -> None:
    """A map's bytes go to a block that nothing touches, and then to a third: it must still wait for the map's copy."""
    planned = small_program()
    planned, host = more_pinned(planned, 1 << 12)
    index, free, reuse = next(
        (index, free, reuse)
        for index, free in enumerate(planned.instructions)
        for reuse in planned.instructions[index:]
        if isinstance(free, Free) and isinstance(reuse, Allocate) and free.address == reuse.address
    )
    step, gone = free.step, free.tensor
    untouched = Tensor("untouched", (1,), "map", managed=True)
    space = (step, untouched, free.address, free.nbytes)
    new = (
        Record(step, COMPUTE, 100), Wait(step, OUT, 100), CopyOut(step, gone, free.address, host, gone.nbytes, OUT),
        Record(step, OUT, 101), free, Allocate(*space), Free(*space, step),
    )  # fmt: skip
    spoilt = inserted(without(planned, index), index, *new)
    found = refused(spoilt)
    assert (found.rule, found.missing, found.tensor) == (1, ("compute", "out"), reuse.tensor)
    assert found.first is new[2]
    inserted(spoilt, index + len(new), Wait(step, COMPUTE, 101)).verify()

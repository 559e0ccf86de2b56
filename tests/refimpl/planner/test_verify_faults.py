"""Faults planted by hand, rule by rule: `verify` finds each, and names what it has to do with."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from refimpl.machine import Tier
from refimpl.network import Tensor
from refimpl.planner import COMPUTE, Allocate, CopyIn, CopyOut, Free, Instruction, Launch, Program, Record, Wait, plan
from refimpl.planner.instructions import Copy
from refimpl.superneurons import UnifiedTensorPool
from tests.messages import lacks
from tests.refimpl.modules import AnyAlgorithm, DropSome, machine, setup
from tests.refimpl.planner.mutations import (
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

PLENTY = 1 << 26
OUT, IN = 1, 2  #: streams

# -- rule 1: order -----------------------------------------------------------------------------------------------------


def bounced(program: Program) -> tuple[Program, int]:
    """conv1 goes out and back in, and conv2 goes out through the same pinned buffer.  And the index of what is new."""
    one, two = tensor(program, "conv1"), tensor(program, "conv2")
    index = find(program, "launch", "pool.forward") + 1
    step = program.instructions[index - 1].step
    program, host = more_pinned(program, one.nbytes)
    first, second = (at(program, find(program, "allocate", name), Allocate).address for name in ("conv1", "conv2"))
    new: list[Instruction] = [
        Record(step, COMPUTE, 100), Wait(step, OUT, 100), CopyOut(step, one, first, host, one.nbytes, OUT),
        Record(step, OUT, 101), Wait(step, IN, 101), CopyIn(step, one, first, host, one.nbytes, IN),
        Record(step, IN, 102), Wait(step, OUT, 102), CopyOut(step, two, second, host, two.nbytes, OUT),
        Record(step, OUT, 103), Wait(step, COMPUTE, 103),
    ]  # fmt: skip
    return inserted(program, index, *new), index


def test_a_pinned_buffer_overwritten_too_early() -> None:
    planned, start = bounced(small_program())
    unread = f"instruction {start + 8} (copy out of conv2 on out; step 5, pool1): its copy is never read"
    assert unread in planned.verify().warnings
    found = refused(without(planned, start + 7))
    assert (found.rule, found.missing, found.layer) == (1, ("out", "in"), "pool1")
    assert (found.first, found.second) == (planned.instructions[start + 5], planned.instructions[start + 8])
    assert found.tensor is tensor(planned, "conv2")
    assert lacks(str(found), "conv2", "out", "copy in", "conv1") == []


@pytest.mark.parametrize(("wait", "missing"), [(1, ("out", "compute")), (4, ("in", "out")), (10, ("compute", "in"))])
def test_every_other_wait_of_that_is_needed(wait: int, missing: tuple[str, str]) -> None:
    planned, start = bounced(small_program())
    found = refused(without(planned, start + wait))
    assert (found.rule, found.missing) == (1, missing)


def test_a_wait_comes_too_late_behind_the_work_that_needs_it() -> None:
    planned, start = bounced(small_program())
    assert refused(moved(planned, start + 4, start + 5)).missing == ("in", "out")


def test_a_record_too_early_orders_too_little() -> None:
    planned, start = bounced(small_program())
    assert refused(moved(planned, start + 3, start + 2)).missing == ("in", "out")


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


def test_a_wait_for_an_event_not_recorded() -> None:
    planned = small_program(**MOVING)
    index = find(planned, "wait")
    assert refused(changed(planned, index, event=999), 999).rule == 1


def test_an_event_of_the_iteration_before_does_not_count() -> None:
    planned = small_program(**MOVING)
    last = find(planned, "record", last=True)
    early = Wait(1, COMPUTE, at(planned, last, Record).event)
    found = refused(inserted(planned, find(planned, "launch"), early))
    assert (found.rule, found.second) == (1, early) and lacks(str(found), early.event) == []


def test_the_second_iteration_must_wait_for_the_first() -> None:
    """Without the join at the end a batch may be uploaded over the one still in use."""
    planned = small_program(**MOVING)
    end = find(planned, "copy out", "losses")
    spoilt = with_instructions(planned, [it for i, it in enumerate(planned.instructions) if i < end or it.op != "wait"])
    found = refused(spoilt)
    assert found.rule == 1 and isinstance(found.second, CopyIn) and lacks(str(found), "second") == []


def test_kernels_run_on_one_stream() -> None:
    """The trainer reads the losses there."""
    planned = small_program(**MOVING)
    found = refused(changed(planned, find(planned, "launch"), stream=1))
    assert found.rule == 1 and lacks(str(found), "conv.forward", "out", "compute") == []


def test_only_collective_calls_run_on_the_networks_stream() -> None:
    planned = plan(small_network().data_parallel(2), setup(**MOVING), machine(), 1 << 26)
    network = planned.streams.index("network")
    assert any(isinstance(it, Launch) and it.stream == network for it in planned.instructions)
    index = find(planned, "copy out", "conv1")
    assert refused(changed(planned, index, stream=network), "network", "collective calls alone").rule == 1


def test_a_stream_that_is_not_there() -> None:
    planned = small_program(**MOVING)
    assert refused(changed(planned, find(planned, "copy out"), stream=3), "stream", 3).rule == 1


# -- rule 2: lifetime --------------------------------------------------------------------------------------------------


def test_freed_twice() -> None:
    planned = small_program()
    index = find(planned, "free", "conv1")
    found = refused(inserted(planned, index + 1, planned.instructions[index]))
    assert (found.rule, found.first) == (2, planned.instructions[index])
    assert lacks(str(found), index, "free", "conv1") == []


def test_used_after_it_was_freed() -> None:
    planned = small_program()
    index = find(planned, "free", "conv1")
    user = max(
        i for i, it in enumerate(planned.instructions[:index])
        if isinstance(it, Launch) and found_in(planned, "conv1", it)
    )  # fmt: skip
    found = refused(moved(planned, index, user))
    assert (found.rule, found.second, found.first) == (2, planned.instructions[user], planned.instructions[index])
    assert lacks(str(found), "relu.backward", "conv1") == []


def found_in(program: Program, name: str, launch: Launch) -> bool:
    return tensor(program, name) in launch.call.operands


def test_used_before_it_is_allocated() -> None:
    planned = small_program()
    allocation, user = find(planned, "allocate", "conv2"), find(planned, "launch", "pool.forward")
    found = refused(moved(planned, allocation, user))
    assert (found.rule, found.tensor, found.layer) == (2, tensor(planned, "conv2"), "conv2")


@pytest.mark.parametrize("shift", [-512, 512])
def test_two_live_blocks_overlap(shift: int) -> None:
    """The last tensor's block moves onto another; everything else about it is consistent."""
    planned = small_program()
    allocation = at(planned, find(planned, "allocate", "conv2"), Allocate)
    other = at(planned, find(planned, "allocate", "conv1"), Allocate)
    there = other.address + other.nbytes + shift if shift < 0 else other.address - allocation.nbytes + shift
    place = {allocation.address: there}
    moved_there: list[Instruction] = []
    for it in planned.instructions:
        if isinstance(it, (Allocate, Free)) and it.tensor is allocation.tensor:
            it = dataclasses.replace(it, address=there)
        elif isinstance(it, Launch) and allocation.tensor in it.call.operands:
            pairs = zip(it.call.operands, it.addresses, strict=True)
            addresses = [place.get(a, a) if t is allocation.tensor else a for t, a in pairs]
            it = dataclasses.replace(it, addresses=tuple(addresses))
        moved_there.append(it)
    found = refused(with_instructions(planned, moved_there))
    assert found.rule == 2 and lacks(str(found), "conv2", there) == []


@pytest.mark.parametrize("address", [-8192, PLENTY])
def test_a_block_outside_of_the_arena(address: int) -> None:
    planned = small_program()
    found = refused(changed(planned, find(planned, "allocate", "conv2"), address=address))
    assert found.rule == 2 and lacks(str(found), "conv2", planned.arena_bytes) == []


def test_a_block_freed_in_part() -> None:
    planned = small_program()
    assert refused(changed(planned, find(planned, "free", "conv1"), nbytes=1536), "free", "conv1", 1536, 2048).rule == 2


def test_a_launch_without_an_address_for_each_operand() -> None:
    planned = small_program()
    index = find(planned, "launch", "pool.forward")
    short = at(planned, index, Launch).addresses[:1]
    assert refused(changed(planned, index, addresses=short), "1 address for 2 operands", "pool.forward").rule == 2


def test_a_block_smaller_than_its_tensor() -> None:
    planned = small_program()
    refused(changed(planned, find(planned, "allocate", "conv2"), nbytes=1536), "conv2", 1536, 2048)


def test_resident_tensors_are_neither_allocated_nor_freed() -> None:
    planned = small_program()
    weight = tensor(planned, "conv1.w")
    space = (1, weight, planned.resident[weight], 512)
    start = find(planned, "launch")
    assert refused(inserted(planned, start, Free(*space, 1)), "free", "conv1.w", "resident").rule == 2
    assert refused(inserted(planned, start, Allocate(*space)), "allocate", "conv1.w", "resident").rule == 2


def test_resident_tensors_lie_apart() -> None:
    planned = small_program()
    one, two = list(planned.resident)[:2]
    overlapping = dict(planned.resident) | {two: planned.resident[one]}
    assert refused(dataclasses.replace(planned, resident=overlapping)).tensor is two


@pytest.mark.parametrize("table", ["resident", "pinned"])
def test_tables_of_addresses_are_whole(table: str) -> None:
    planned = small_program()
    addresses = dict(getattr(planned, table))
    one = next(iter(addresses))
    missing = {tensor: address for tensor, address in addresses.items() if tensor is not one}
    needless = addresses | {planned.network.managed[-1]: planned.arena_bytes}
    crooked = addresses | {one: addresses[one] + 2}
    nowhere = planned.network.managed[-1]
    for given, named in ((missing, (table, one.name)), (needless, (table, nowhere.name)), (crooked, (one.name, 4))):
        tables: dict[str, Any] = {table: given}
        assert refused(dataclasses.replace(planned, **tables), *named).rule == 2


def test_a_result_that_lies_outside_of_pinned_memory() -> None:
    planned = small_program()
    host = dict(planned.pinned) | {planned.network.losses: planned.pinned_bytes}
    assert refused(dataclasses.replace(planned, pinned=host)).tensor is planned.network.losses


def test_a_copy_over_the_users_batch() -> None:
    planned = small_program(**MOVING)
    host = planned.pinned[planned.network.labels]
    found = refused(changed(planned, find(planned, "copy out", "conv1"), pinned_address=host))
    assert found.rule == 2 and lacks(str(found), "conv1", host) == []
    labels = planned.network.labels
    copy = CopyOut(14, labels, planned.resident[labels], host, labels.nbytes, OUT)
    assert refused(inserted(planned, len(planned.instructions), copy), "labels").rule == 2


def test_a_copy_from_where_nothing_was_copied_to() -> None:
    planned = small_program(**MOVING)
    index = find(planned, "copy in", "conv1")
    elsewhere = at(planned, index, Copy).pinned_address + 512
    assert refused(changed(planned, index, pinned_address=elsewhere), "conv1", elsewhere).rule == 2
    assert refused(without(planned, find(planned, "copy out", "conv1")), "conv1", "pinned").rule == 2


def test_a_buffer_given_to_two_maps_at_once() -> None:
    planned = small_program(**MOVING)
    host = at(planned, find(planned, "copy out", "conv1"), CopyOut).pinned_address
    overwriting = find(planned, "copy out", "conv2")
    planned = changed(planned, overwriting, pinned_address=host)
    planned = changed(planned, find(planned, "copy in", "conv2"), pinned_address=host)
    found = refused(planned)
    assert (found.rule, found.tensor) == (2, tensor(planned, "conv1"))
    assert found.first is planned.instructions[overwriting] and lacks(str(found), "conv1", "conv2") == []


def test_a_copy_of_a_part() -> None:
    planned = small_program(**MOVING)
    refused(changed(planned, find(planned, "copy out", "conv1"), nbytes=100), "conv1", 100, 2048)


def with_workspace() -> tuple[Program, int]:
    for seed in range(20):
        planned = small_program(algorithms=AnyAlgorithm(seed))
        for index, it in enumerate(planned.instructions):
            if isinstance(it, Launch) and it.workspace is not None:
                planned.verify()
                return planned, index
    raise AssertionError("no algorithm with a workspace was drawn")


def test_a_workspace_too_small_or_not_there() -> None:
    planned, index = with_workspace()
    launched = at(planned, index, Launch)
    assert launched.workspace is not None
    address, nbytes = launched.workspace
    for workspace in (None, (address, nbytes - 4), (launched.addresses[0], nbytes)):
        assert refused(changed(planned, index, workspace=workspace)).rule == 2


def test_a_choice_that_the_machine_does_not_offer() -> None:
    """A kernel refuses a workspace that is too small, and an unknown algorithm, but only when it is run."""
    planned, index = with_workspace()
    it = at(planned, index, Launch)
    assert it.choice is not None and it.workspace is not None
    changes: list[dict[str, Any]] = [{"workspace_bytes": 4}, {"workspace_bytes": 0}, {"algorithm": "another"}]
    for given in changes:
        choice = dataclasses.replace(it.choice, **given)
        space = choice.workspace_bytes and (it.workspace[0], choice.workspace_bytes)
        found = refused(changed(planned, index, choice=choice, workspace=space or None))
        assert found.rule == 3
        assert lacks(str(found), planned.machine.name, choice.algorithm, choice.workspace_bytes) == []


# -- rule 3: values ----------------------------------------------------------------------------------------------------


def test_a_stale_copy_is_found_where_it_is_read() -> None:
    """conv1 is offloaded before relu1 changes it in place, and fetched afterwards."""
    planned, host = more_pinned(small_program(), 1 << 12)
    map_, address = tensor(planned, "conv1"), at(planned, find(planned, "allocate", "conv1"), Allocate).address
    relu = find(planned, "launch", "relu.forward")
    step = planned.instructions[relu].step
    out = CopyOut(step, map_, address, host, map_.nbytes, COMPUTE)
    back = CopyIn(step, map_, address, host, map_.nbytes, COMPUTE)
    inserted(planned, relu, out, back).verify()
    stale = inserted(inserted(planned, relu + 1, back), relu, out)
    found = refused(stale)
    assert (found.rule, found.tensor, found.layer, found.first) == (3, map_, "conv2", back)
    assert lacks(str(found), "conv.forward", "relu.forward") == []


def test_a_weight_brought_back_from_before_its_update() -> None:
    planned, host = more_pinned(small_program(), 1 << 12)
    weight = tensor(planned, "conv1.w")
    place = (weight, planned.resident[weight], host, weight.nbytes, COMPUTE)
    planned = inserted(planned, len(planned.instructions), CopyIn(14, *place))
    found = refused(inserted(planned, find(planned, "launch"), CopyOut(1, *place)))
    assert (found.rule, found.tensor) == (3, weight)
    assert lacks(str(found), "conv1.w", "sgd.update") == []


def test_a_rebuild_from_the_wrong_checkpoint() -> None:
    """relu1 runs again on what it has overwritten already."""
    planned = small_program()
    relu = find(planned, "launch", "relu.forward")
    again = dataclasses.replace(at(planned, relu, Launch), rebuild=True)
    found = refused(inserted(planned, relu + 1, again))
    assert (found.rule, found.second, found.tensor) == (3, again, tensor(planned, "conv1"))


def test_a_rebuild_that_begins_a_step_too_late() -> None:
    planned = small_program(recompute=DropSome())
    planned.verify()
    first = find(planned, "launch", "conv.forward", rebuild=True)
    assert refused(without(planned, first)).rule == 3


def test_a_rebuild_with_another_algorithm() -> None:
    planned = small_program(recompute=DropSome())
    index = find(planned, "launch", "conv.forward", rebuild=True)
    launched = at(planned, index, Launch)
    mine, offered = launched.choice, planned.machine.choices(launched.call)
    assert mine is not None
    choice = next(one for one in offered if one.algorithm != mine.algorithm and not one.workspace_bytes)
    refused(changed(planned, index, choice=choice), "conv.forward", mine.algorithm, choice.algorithm)


def test_an_algorithm_where_none_is_chosen_and_none_where_one_is() -> None:
    planned = small_program()
    conv, pool = find(planned, "launch", "conv.forward"), find(planned, "launch", "pool.forward")
    choice = at(planned, conv, Launch).choice
    assert refused(changed(planned, conv, choice=None), "conv.forward", "algorithm").rule == 3
    assert refused(changed(planned, pool, choice=choice), "pool.forward", "algorithm").rule == 3


@pytest.mark.parametrize("function", ["conv.backward_filter", "relu.backward", "sgd.update", "conv.forward"])
def test_a_call_run_twice(function: str) -> None:
    planned = small_program()
    index = find(planned, "launch", function)
    found = refused(inserted(planned, index + 1, planned.instructions[index]))
    assert found.rule == 3 and lacks(str(found), function) == []


@pytest.mark.parametrize("function", ["conv.backward_filter", "relu.backward", "sgd.update"])
def test_no_rebuild_runs_a_backward_call(function: str) -> None:
    planned = small_program()
    index = find(planned, "launch", function)
    again = dataclasses.replace(at(planned, index, Launch), rebuild=True)
    found = refused(inserted(planned, index + 1, again))
    assert (found.rule, found.second) == (3, again) and lacks(str(found), "rebuild", function) == []


def test_a_missing_step() -> None:
    planned = small_program()
    left = [it for it in planned.instructions if not (isinstance(it, Launch) and it.step == 14)]
    found = refused(with_instructions(planned, left))
    assert (found.rule, found.layer) == (3, "conv1") and lacks(str(found), "conv.backward_filter") == []


def test_a_call_of_another_network() -> None:
    planned = small_program()
    index = find(planned, "launch", "pool.forward")
    stranger = next(call for step in small_network().steps for call in step.calls if call.function == "pool.forward")
    assert refused(changed(planned, index, call=stranger), "pool.forward").rule == 3


def test_something_is_read_that_was_never_written() -> None:
    planned = small_program()
    index = find(planned, "copy in", "input")
    found = refused(without(planned, index))
    assert found.rule == 3 and found.tensor is planned.network.input


def test_every_iteration_needs_its_own_labels() -> None:
    """Their place is resident, and holds something at any time."""
    planned = small_program()
    assert refused(without(planned, find(planned, "copy in", "labels"))).tensor is planned.network.labels


def test_a_result_that_never_comes_out() -> None:
    planned = small_program()
    assert refused(without(planned, find(planned, "copy out", "losses")), "losses").rule == 3


# -- rules 4 and 5: release, budget ------------------------------------------------------------------------------------


def test_a_leak() -> None:
    planned = small_program()
    last = find(planned, "free", last=True)
    found = refused(without(planned, last))
    assert (found.rule, found.tensor) == (4, at(planned, last, Free).tensor)


def test_one_byte_over_the_budget() -> None:
    planned = small_program()
    dataclasses.replace(planned, budget=planned.arena_bytes).verify()
    found = refused(dataclasses.replace(planned, budget=planned.peak_bytes - 1))
    assert found.rule == 5 and isinstance(found.second, Allocate)


def test_an_arena_larger_than_the_budget() -> None:
    planned = small_program()
    larger = dataclasses.replace(planned, budget=planned.arena_bytes, arena_bytes=planned.arena_bytes + 512)
    assert refused(larger).rule == 5


def test_a_peak_that_is_not_so() -> None:
    planned = small_program()
    assert refused(dataclasses.replace(planned, peak_bytes=planned.peak_bytes + 512)).rule == 5


# -- tiers -------------------------------------------------------------------------------------------------------------


def in_tiers(*tiers: Tier) -> Program:
    return plan(small_network(), setup(**MOVING | {"pinned": UnifiedTensorPool()}), machine().with_tiers(tiers), PLENTY)


def test_a_copy_to_a_tier_that_is_not_there() -> None:
    planned = in_tiers(Tier("peer"), Tier("host"))
    index = find(planned, "copy out", "conv1")
    assert at(planned, index, CopyOut).tier == "peer"
    found = refused(changed(planned, index, tier="remote"), "copy out", "conv1", "no remote tier")
    assert (found.rule, found.tensor) == (2, tensor(planned, "conv1"))


def test_a_tier_is_no_larger_than_the_machines() -> None:
    planned = in_tiers(Tier("peer"), Tier("host"))
    taken = planned.tier_bytes["peer"]
    for capacity in (None, taken, taken - 1):
        other = machine().with_tiers([Tier("peer", capacity), Tier("host")])
        moved_there = dataclasses.replace(planned, machine=other)
        if capacity == taken - 1:
            assert refused(moved_there, "the peer tier", taken, capacity).rule == 5
        else:
            moved_there.verify()
    alone = dataclasses.replace(planned, machine=machine())
    assert refused(alone, "the peer tier", f"{machine().name} has none").rule == 5

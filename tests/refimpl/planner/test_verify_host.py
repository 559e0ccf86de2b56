"""Faults planted by hand where maps are compressed on the host: `verify` finds each, and names what it concerns."""

from __future__ import annotations

import dataclasses

import pytest

from refimpl.planner import CopyOut, Program
from refimpl.planner.instructions import HOST_STREAM, FromStore, Record, ToStore, Wait
from tests.messages import lacks
from tests.refimpl.planner.mutations import (
    COMPRESSING,
    changed,
    find,
    inserted,
    moved,
    refused,
    small_program,
    tensor,
    through_the_host,
    without,
)

pytestmark = pytest.mark.vdnnpp


@pytest.fixture(scope="module")
def planned() -> Program:
    """conv1 and conv2 take turns in one buffer of pinned memory, and are decompressed again."""
    program = small_program(**COMPRESSING)
    program.verify()
    first, second = (program.instructions[find(program, "copy out", name)] for name in ("conv1", "conv2"))
    assert isinstance(first, CopyOut) and isinstance(second, CopyOut) and first.pinned_address == second.pinned_address
    return program


def wait_before(program: Program, index: int, on: str | None = None) -> int:
    """The last wait in front of an instruction, or the last one for the stream `on`."""
    recorded = {it.event: program.streams[it.stream] for it in program.instructions if isinstance(it, Record)}
    while not (isinstance(it := program.instructions[index], Wait) and on in (None, recorded[it.event])):
        index -= 1
    return index


def test_a_buffer_overwritten_before_its_map_is_compressed(planned: Program) -> None:
    index = find(planned, "copy out", "conv2")
    found = refused(without(planned, wait_before(planned, index, "host")))
    assert (found.rule, found.missing) == (1, ("out", "host"))
    assert found.first is planned.instructions[find(planned, "compress", "conv1")]
    assert found.second is planned.instructions[index]
    assert lacks(str(found), "compress", "conv1", "out", "host") == []


def test_a_map_compressed_before_it_has_left(planned: Program) -> None:
    index = find(planned, "compress", "conv1")
    found = refused(without(planned, wait_before(planned, index)))
    assert (found.rule, found.missing) == (1, ("host", "out"))
    found = refused(moved(planned, index, find(planned, "copy out", "conv1")))
    assert found.rule == 2 and lacks(str(found), "conv1", "pinned") == []


def test_a_copy_in_before_the_map_is_decompressed(planned: Program) -> None:
    index = find(planned, "copy in", "conv1")
    found = refused(without(planned, wait_before(planned, index)))
    assert (found.rule, found.missing) == (1, ("in", "host"))
    late = moved(planned, find(planned, "decompress", "conv1"), index)
    found = refused(late)
    assert found.rule == 2 and lacks(str(found), "conv1", "pinned") == []
    assert found.tensor is tensor(planned, "conv1")


def test_the_store_read_before_it_is_written(planned: Program) -> None:
    for name in ("conv1", "conv2"):
        found = refused(without(planned, find(planned, "compress", name)))
        assert found.rule == 2 and lacks(str(found), name, "store") == []
        assert found.second is planned.instructions[find(planned, "decompress", name)]


def test_the_store_of_the_iteration_before_does_not_count(planned: Program) -> None:
    early = dataclasses.replace(planned.instructions[find(planned, "decompress", "conv1")], step=1)
    found = refused(inserted(planned, find(planned, "launch"), early))
    assert found.rule == 2 and lacks(str(found), "conv1", "store") == []


def test_a_buffer_overwritten_before_its_map_is_back(planned: Program) -> None:
    """What is decompressed into a buffer goes over what the copy in has still to read there."""
    index = find(planned, "decompress", "conv1")
    found = refused(without(planned, wait_before(planned, index)))
    assert (found.rule, found.missing) == (1, ("host", "in"))


@pytest.mark.parametrize("op", ["compress", "decompress"])
def test_wrong_addresses(planned: Program, op: str) -> None:
    index = find(planned, op, "conv1")
    it = planned.instructions[index]
    assert isinstance(it, (ToStore, FromStore))
    other = next(i for i in planned.instructions if isinstance(i, ToStore) and i.tensor is not it.tensor)
    assert refused(changed(planned, index, pinned_address=it.pinned_address + 512)).rule == 2
    assert refused(changed(planned, index, store_address=other.store_address)).rule == 2
    assert refused(changed(planned, index, store_address=it.store_address + 512)).rule == 2
    for what in ("pinned_address", "store_address"):
        found = refused(changed(planned, index, **{what: 1 << 30}))
        assert found.rule == 2 and found.second is not None


def test_nothing_goes_over_the_batch_or_a_result(planned: Program) -> None:
    """The batch is at the beginning of pinned memory, the results follow it."""
    index = find(planned, "decompress", "conv1")
    for name in (planned.network.input, planned.network.labels, planned.network.losses):
        found = refused(changed(planned, index, pinned_address=planned.pinned[name]))
        assert found.rule == 2 and lacks(str(found), "conv1", "pinned") == []


def test_a_store_that_is_too_small(planned: Program) -> None:
    found = refused(dataclasses.replace(planned, store_bytes=planned.store_bytes - 512))
    assert found.rule == 2 and lacks(str(found), "conv2", "store") == []


def test_other_bytes_than_the_map_has(planned: Program) -> None:
    for op in ("compress", "decompress"):
        found = refused(changed(planned, find(planned, op, "conv1"), nbytes=512))
        assert found.rule == 2 and lacks(str(found), "conv1", 2048) == []


def test_compressed_in_vain_is_worth_a_warning(planned: Program) -> None:
    """The planner compresses nothing in vain: pool1 keeps its buffer.  Here conv1 is compressed twice."""
    assert not [warning for warning in planned.verify().warnings if "its copy is never read" in warning]
    assert not any(isinstance(it, ToStore) and it.tensor.name == "pool1" for it in planned.instructions)
    index = find(planned, "compress", "conv1")
    twice = inserted(planned, index, planned.instructions[index])
    assert [warning for warning in twice.verify().warnings if "its copy is never read" in warning] == [
        f"instruction {index} (compress of conv1 on host; step 5, pool1): its copy is never read"
    ]


@pytest.mark.parametrize("op", ["compress", "decompress"])
def test_the_threads_work_on_their_own_stream(planned: Program, op: str) -> None:
    for stream in range(len(planned.streams) - 1):
        found = refused(changed(planned, find(planned, op), stream=stream))
        assert found.rule == 1 and lacks(str(found), "host", "store") == []


@pytest.mark.parametrize("op", ["launch", "copy in", "copy out"])
def test_nothing_else_runs_there(planned: Program, op: str) -> None:
    found = refused(changed(planned, find(planned, op), stream=planned.streams.index(HOST_STREAM)))
    assert found.rule == 1 and found.second is not None


@pytest.mark.parametrize("streams", [("compute", "host", "out", "in"), ("compute", "out", "out", "host"), ()])
def test_streams_have_different_names_and_the_threads_is_the_last(planned: Program, streams: tuple[str, ...]) -> None:
    assert refused(dataclasses.replace(planned, streams=streams)).rule == 1


@pytest.mark.parametrize("what", ["pinned_address", "store_address"])
def test_addresses_are_multiples_of_a_number(planned: Program, what: str) -> None:
    larger = dataclasses.replace(planned, pinned_bytes=1 << 20, store_bytes=1 << 20)
    found = refused(changed(larger, find(planned, "compress"), **{what: (1 << 19) + 2}))
    assert found.rule == 2


def test_order_through_the_threads_without_any_work(planned: Program) -> None:
    through_the_host(planned).verify()

"""The CUDA back end on the emulated GPU: a missing wait is found in one run, and the timeline is the model's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kernels.targets import emulated
from refimpl.backend import DeviceFailed
from refimpl.machine import Timeline
from refimpl.planner import Program, Wait
from refimpl.planner.verify import Unsafe, verify
from tests.messages import raises_naming
from tests.refimpl.backend.running import (
    dense_network,
    differing,
    small_program,
    storing_program,
    trained,
    trainer,
)
from tests.refimpl.modules import DropSome, OffloadSome, PrefetchAhead
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.emulated


def left_out(program: Program, position: int) -> Program:
    instructions = [instruction for at, instruction in enumerate(program.instructions) if at != position]
    return dataclasses.replace(program, instructions=instructions)


def refused(program: Program) -> Unsafe | None:
    """Why verify refuses the program."""
    try:
        verify(program)
    except Unsafe as error:
        return error
    return None


def found(program: Program) -> str:
    """What the checks say of two iterations, if nothing but the program orders them: where threads compress, the host
    waits in between, but learns nothing by it."""
    with trainer(program, backend="emulated") as made:
        made._upload(program, draw_batch(program.network))  # numbers: a kernel reads less where all is NaN
        replay: Any = made.replay
        try:
            replay.issue({})
            if replay._host is not None:
                with emulated.learning_nothing():
                    replay.finish()
            replay.issue({})
            replay.finish()
        except DeviceFailed as error:
            return str(error)
        finally:
            emulated.forgive()
    return ""


def waits(program: Program) -> list[int]:
    return [position for position, instruction in enumerate(program.instructions) if isinstance(instruction, Wait)]


@pytest.mark.slow
def test_a_wait_left_out_is_found_and_both_pieces_of_work_are_named() -> None:
    program = small_program(dense_network())
    assert found(program) == ""
    shorter = next(one for position in waits(program) if refused(one := left_out(program, position)))
    with pytest.raises(Unsafe):
        verify(shorter)
    says = found(shorter)
    assert says.startswith("the emulated GPU found an error: nothing orders two accesses to the same ")
    assert says.count("instruction ") == 2 and says.count(" on stream ") == 2


@pytest.mark.slow
def test_a_wait_for_the_host_s_thread_left_out_is_found() -> None:
    """The thread's own accesses to pinned memory are in the check: either side of it may have been left to luck."""
    program = storing_program()
    host = len(program.streams) - 1
    assert found(program) == ""
    by_the_thread = [p for p in waits(program) if program.instructions[p].stream == host]  # type: ignore[union-attr]
    for position in by_the_thread:
        if refused(shorter := left_out(program, position)):
            assert "the host's thread" in found(shorter)
            return
    raise AssertionError("this program's thread waits for nothing")


def close(measured: Timeline, model: Timeline) -> None:
    """The same pieces of work in the same order, with the same overlaps, at the same times."""
    assert [(s.stream, s.engine) for s in measured.spans] == [(s.stream, s.engine) for s in model.spans]
    scale = model.seconds
    for ours, theirs in zip(measured.spans, model.spans, strict=True):
        assert ours.start == pytest.approx(theirs.start, abs=1e-3 * scale)
        assert ours.end == pytest.approx(theirs.end, abs=1e-3 * scale)
    assert measured.seconds == pytest.approx(model.seconds, rel=1e-2)
    assert measured.overlap() == pytest.approx(model.overlap(), abs=1e-2 * scale)


@pytest.mark.slow
def test_the_timeline_is_that_of_simulate() -> None:
    program = storing_program()
    with trainer(program, backend="emulated") as made:
        made.step(*draw_batch(program.network))
        timeline = made.timeline()
    simulated = program.simulate()
    order = {id(span.instruction): n for n, span in enumerate(sorted(simulated.spans, key=lambda s: s.start))}
    for one in (timeline, simulated):
        one.spans.sort(key=lambda span: order[id(span.instruction)])
    close(timeline, simulated)
    assert timeline.simulated and timeline.machine == f"{program.machine.name}, emulated"


def test_no_order_changes_a_bit() -> None:
    program = small_program(dense_network(), offload=OffloadSome(), prefetch=PrefetchAhead(1), recompute=DropSome(0.6))
    assert program.counts.prefetched_bytes and program.counts.recomputed_layers
    _, expected = trained(program, 2, backend="emulated")
    for name, seed in (("early", 0), ("random", 1), ("priority", 2), ("free", 0)):
        emulated.order(name, seed)
        try:
            _, state = trained(program, 2, backend="emulated")
        finally:
            emulated.order("late")
        assert differing(state, expected) == [], name


def test_the_host_s_own_accesses_are_checked() -> None:
    """A batch that is written while the last one is still being copied in."""
    program = small_program(dense_network())
    with trainer(program, backend="emulated") as made:
        replay: Any = made.replay
        made.step(*draw_batch(program.network))
        replay.issue({})
        made._upload(program, draw_batch(program.network))
        with raises_naming(DeviceFailed, "GPU", 864):
            replay.finish()
        emulated.forgive()

"""The CUDA back end on the emulated GPU: a missing wait is found in one run, and the timeline is the model's."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from cuda.bindings import driver

from kernels.targets import emulated
from refimpl.accudnn import Model
from refimpl.backend import DeviceFailed
from refimpl.backend.emulated import WatchedThread
from refimpl.backend.host_thread import Piece
from refimpl.machine import Timeline
from refimpl.memory import UNLIMITED
from refimpl.names import presets
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.planner import Context, CopyIn, CopyOut, Launch, Program, Wait, plan
from refimpl.planner.verify import Unsafe, verify
from tests.messages import raises_naming
from tests.refimpl.backend.running import dense_network, differing, small_program, trained, trainer
from tests.refimpl.modules import DropSome, OffloadSome, PrefetchAhead, least_plan
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.emulated

H100 = machine("h100").with_catalogue("own")
KEEPS_UP = dataclasses.replace(H100, host_rate=1e12)  # the plan compresses as many maps as it can


def planned(network: str, preset: str) -> Program:
    made, wanted = build(network, 4), cast(Any, presets.setup(preset, {}))
    if preset != "accudnn":
        return least_plan(made, wanted, KEEPS_UP, 0.3)
    model = Model.of(Context(made, H100, UNLIMITED))
    return plan(made, wanted, H100, int(0.8 * model.least() + 0.2 * model.base.max()))


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


def useless(program: Program, error: Unsafe) -> bool:
    """Whether the kernels of the launch that verify speaks of are not even given the bytes of the copy.

    A call says that it reads its input; the gradient of average pooling, for one, does not.
    """
    pair = error.first, error.second
    (call,) = (one for one in pair if isinstance(one, Launch))
    (copy,) = (one for one in pair if isinstance(one, (CopyIn, CopyOut)))
    with trainer(program, backend="emulated") as made:
        replay: Any = made.replay
        position = next(at for at, one in enumerate(program.instructions) if one is call)
        given = [
            array for launch in replay._bound.launches[position] for array in launch.values if hasattr(array, "pointer")
        ]
        low = replay._device._base + copy.address
        return all(array.pointer + array.nbytes <= low or array.pointer >= low + copy.nbytes for array in given)


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
    program = small_program()
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
    program = planned("lenet:vdnnpp", "vdnnpp-all")
    host = len(program.streams) - 1
    assert found(program) == ""
    by_the_thread = [p for p in waits(program) if program.instructions[p].stream == host]  # type: ignore[union-attr]
    for position in by_the_thread:
        if refused(shorter := left_out(program, position)):
            assert "the host's thread" in found(shorter)
            return
    raise AssertionError("this program's thread waits for nothing")


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("network", "preset"),
    [
        ("lenet", "vdnn-all"), ("tiny-vgg", "vdnn-conv"), ("tiny-inception", "vdnn-all"),
        ("lenet:vdnnpp", "vdnnpp-all"), ("tiny-inception", "vdnnpp-all"), ("tiny-vgg:vdnnpp", "vdnnpp-all"),
        ("lenet", "superneurons"), ("tiny-resnet:superneurons", "superneurons"), ("tiny-vgg", "superneurons"),
        ("lenet", "accudnn"), ("tiny-vgg", "accudnn"), ("tiny-resnet", "accudnn"),
    ],
)  # fmt: skip
def test_every_wait_that_verify_needs_is_noticed(network: str, preset: str) -> None:
    program = planned(network, preset)
    shorter = [left_out(program, position) for position in waits(program)]
    wanted = [(one, error) for one in shorter if (error := refused(one)) is not None]
    missed = [(one, error) for one, error in wanted if not found(one)]
    print(f"{network} {preset}: {len(wanted)} waits needed, {len(wanted) - len(missed)} noticed when left out")
    assert [str(error) for one, error in missed if not useless(one, error)] == []


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
@pytest.mark.parametrize(
    ("network", "preset"),
    [("lenet:vdnnpp", "vdnnpp-all"), ("lenet", "superneurons")],
)
def test_the_timeline_is_that_of_simulate(network: str, preset: str) -> None:
    program = planned(network, preset)
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


@pytest.mark.parametrize("learns", [True, False])
def test_who_waits_for_a_thread_s_pieces_may_read_what_they_wrote(learns: bool) -> None:
    pinned, counter = np.zeros(64, np.uint8), np.zeros(1, np.uint32)
    thread = WatchedThread(small_program(dense_network()), counter)

    def write() -> None:
        emulated.touched(pinned.ctypes.data, pinned.nbytes, True, "the thread")

    thread._start(0, Piece("writing", write, partial(thread._await, 0, []), partial(thread._count, 1)))
    with nullcontext() if learns else emulated.learning_nothing():
        thread.finish()
    emulated.touched(pinned.ctypes.data, pinned.nbytes, False, "the host")
    assert len(emulated.forgive()) == (0 if learns else 1)


def test_an_event_that_has_been_destroyed_is_a_finding() -> None:
    _, event = driver.cuEventCreate(0)
    driver.cuEventDestroy(event)
    assert driver.cuEventSynchronize(event)[0] == driver.CUresult.CUDA_ERROR_INVALID_HANDLE
    assert emulated.forgive() == ["an event that has been destroyed is waited for by the host"]

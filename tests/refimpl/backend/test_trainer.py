"""The trainer: what a user sees of a run, and everything that can go wrong in one."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from refimpl.backend import BatchError, CopiesLate, DeviceFailed, Drawn, NotFinite, RunError, Trainer, cpu, device
from refimpl.backend.cpu import CpuReplay
from refimpl.planner import DoesNotFit, Program
from tests.messages import lacks, raises_naming
from tests.refimpl.backend.running import (
    chosen,
    differing,
    plain_training,
    small_program,
    trainer,
)
from tests.refimpl.plainly import SETTINGS, draw_batch, new_state, run_plainly


@pytest.fixture(scope="module")
def program() -> Program:
    return small_program()


def one_line(error: Any) -> bool:
    return "\n" not in str(error.value) and len(str(error.value)) < 400


# -- training and evaluating -------------------------------------------------------------------------------------------


def test_settings_may_change_between_steps(program: Program) -> None:
    """Only what takes them is bound again; the result is that of the plain run with the same settings."""
    network, given = program.network, dict(SETTINGS)
    state = new_state(network)
    with trainer(program, poison=True, order=CopiesLate()) as made:
        changes: list[dict[str, Any]] = [
            {}, {"rate": 0.1}, {"momentum": 0.1, "decay": 0.0}, {"seed": 3}, {"iteration": 77},
        ]  # fmt: skip
        for i, change in enumerate(changes):
            for name, value in change.items():
                setattr(made, name, value)
            given |= {"iteration": i, **change}
            batch = draw_batch(network, i)
            made.step(*batch)
            run_plainly(network, state, *batch, given, chosen(program))
            assert differing(made.state(), state) == []
        assert made.iteration == 78


def test_repeating_is_a_step_with_the_last_batch(program: Program) -> None:
    images, labels = draw_batch(program.network, 4)
    with trainer(program) as one, trainer(program) as other:
        one.step(images, labels)
        one.evaluate(*draw_batch(program.network, 5)) if one.inference else None  # what it uploads is not learnt from
        assert one.repeat() > 0
        for _ in range(2):
            other.step(images, labels)
        assert one.iteration == other.iteration == 2
        assert differing(one.state(), other.state()) == []
    with trainer(program) as fresh, raises_naming(RunError, "batch"):
        fresh.repeat()


def test_evaluating_counts_whole_batches_and_a_part(program: Program) -> None:
    network = program.network
    images = np.concatenate([draw_batch(network, i)[0] for i in range(3)])
    labels = np.concatenate([draw_batch(network, i)[1] for i in range(3)])
    with trainer(program, poison=True) as made:
        made.step(*draw_batch(network))
        before = made.state()
        whole = made.evaluate(images[:6], labels[:6])
        part = made.evaluate(images[:7], labels[:7])
        one = made.evaluate(images[6:7], labels[6:7])
        assert differing(made.state(), before) == []
    assert whole.predictions.shape == (6, 4) and part.predictions.shape == (7, 4)
    assert np.array_equal(part.predictions[:6], whole.predictions)
    assert np.array_equal(part.predictions[6:], one.predictions)
    assert part.loss == pytest.approx((6 * whole.loss + one.loss) / 7)
    assert part.accuracy == pytest.approx((6 * whole.accuracy + one.accuracy) / 7)
    np.testing.assert_allclose(whole.predictions.sum(1), 1, rtol=1e-5)


def test_no_evaluation_where_forward_alone_does_not_fit(program: Program, monkeypatch: Any) -> None:
    def refuse(_: Program) -> Program:
        raise DoesNotFit(None, "conv1", 100, 10, 10, 50, {})

    monkeypatch.setattr("refimpl.backend.trainer.inference_program", refuse)
    with trainer(program) as made:
        made.step(*draw_batch(program.network))
        with raises_naming(RunError, 50):
            made.evaluate(*draw_batch(program.network))


def test_a_timeline_is_measured_and_leaves_the_state_as_it_was(program: Program) -> None:
    with trainer(program, order=Drawn(1), poison=True) as made:
        first = made.timeline()  # before any step: a batch of zeros
        assert differing(made.state(), new_state(program.network)) == []
        made.step(*draw_batch(program.network))
        before = made.state()
        timeline = made.timeline()
        assert differing(made.state(), before) == [] and made.iteration == 1
        made.step(*draw_batch(program.network, 1))
        assert differing(made.state(), plain_training(program, 2)) == []
    work = [i for i in program.instructions if i.op in ("launch", "copy out", "copy in")]
    for measured in (first, timeline):
        assert not measured.simulated
        assert measured.streams == program.streams
        assert {id(span.instruction) for span in measured.spans} == set(map(id, work))
        assert all(0 <= span.start <= span.end <= measured.seconds for span in measured.spans)
        assert sum(measured.busy(engine) for engine in ("compute", "out", "in")) <= measured.seconds * 1.001


# -- wrong use ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda x, y: (x[:2], y), ("(2, 2, 6, 6)", "(3, 2, 6, 6)")),
        (lambda x, y: (x.astype(np.float64), y), ("images", "float64", "float32", "images.astype")),
        (lambda x, y: (x, y[:2]), ("(2,)", 3)),
        (lambda x, y: (x, y.astype(np.float32)), ("labels", "float32", 0, 3)),
        (lambda x, y: (x, y * 0 + [0, 4, 0]), (4, 1, 0, 3)),
    ],
)
def test_a_wrong_batch_is_refused_before_anything_runs(
    program: Program, spoil: Callable[..., Any], match: tuple[object, ...]
) -> None:
    images, labels = spoil(*draw_batch(program.network))
    with trainer(program) as made:
        for use in (made.step, made.evaluate):
            if use == made.evaluate and np.shape(images) == (2, 2, 6, 6):
                continue  # two images can be evaluated
            with raises_naming(BatchError, *match) as caught:
                use(images, labels)
            assert one_line(caught)
        assert made.iteration == 0
        assert differing(made.state(), new_state(program.network)) == []


def test_wrong_options_are_refused(program: Program) -> None:
    with raises_naming(RunError, "backend", "gpu"):
        Trainer(program, backend="gpu")
    with raises_naming(RunError, "order", "poison"):
        Trainer(program, backend="cuda", poison=True)
    with raises_naming(RunError, "seed", -1):
        Trainer(program, seed=-1)
    for rate in (float("nan"), 1e300):
        with raises_naming(RunError, "rate", rate, "float32"):
            Trainer(program, rate=rate)
    with trainer(program) as made:
        made.iteration = -1
        with raises_naming(KernelError, "iteration", -1):
            made.step(*draw_batch(program.network))
        made.iteration = 0
        made.step(*draw_batch(program.network))
        assert differing(made.state(), plain_training(program, 1)) == []


def test_without_a_gpu_cuda_says_so(program: Program) -> None:
    from kernels.targets import gpu

    if gpu.why_not() is None:
        pytest.skip("there is a GPU")
    with raises_naming(DeviceFailed, "GPU", "CPU") as caught:
        Trainer(program, backend="cuda")
    assert one_line(caught)


@pytest.mark.parametrize("failing", range(2))
def test_every_allocation_that_fails_says_so_and_harms_nobody(program: Program, monkeypatch: Any, failing: int) -> None:
    """The device arena, then the pinned one; beside a trainer that goes on."""
    with trainer(program) as other:
        other.step(*draw_batch(program.network))
        calls: list[int] = []

        def lazy_zeros(nbytes: int) -> np.ndarray:
            calls.append(nbytes)
            if len(calls) == failing + 1:
                raise MemoryError
            return device.lazy_zeros(nbytes)

        with monkeypatch.context() as patched:
            patched.setattr(cpu, "lazy_zeros", lazy_zeros)
            with raises_naming(DeviceFailed, "KiB") as caught:
                trainer(program)
        assert len(calls) == failing + 1
        assert one_line(caught)
        assert ("device", "pinned")[failing] in str(caught.value)
        other.step(*draw_batch(program.network, 1))
        assert differing(other.state(), plain_training(program, 2)) == []


def test_a_closed_trainer_says_so(program: Program) -> None:
    with trainer(program) as made:
        pass
    made.close()  # twice does no harm
    batch = draw_batch(program.network)
    for use in (lambda: made.step(*batch), lambda: made.evaluate(*batch), made.state, made.timeline):
        with raises_naming(RunError, "trainer"):
            use()


# -- NaN and infinity --------------------------------------------------------------------------------------------------


def untouched(made: Trainer, before: dict[str, np.ndarray]) -> bool:
    """All that an iteration starts from: it recomputes gradients and the batch's own statistics."""
    recomputed = re.compile(r"d\(.*|.*\.(mean|inverse_std)")
    return all(recomputed.fullmatch(name) for name in differing(made.state(), before))


def test_images_with_a_nan_are_refused_and_located(program: Program) -> None:
    images, labels = draw_batch(program.network)
    images[1, 0, 2, 3] = images[2, 1, 0, 0] = np.inf
    with trainer(program) as made:
        with raises_naming(NotFinite, 2) as caught:
            made.step(images, labels)
        assert lacks(str(caught.value), "image 1", "channel 0", "row 2", "column 3") == []
        assert caught.value.layer == "first"
        assert one_line(caught)
        assert differing(made.state(), new_state(program.network)) == []


@pytest.mark.parametrize(
    ("tensor", "value", "layer", "order"),
    [
        ("right.w", np.nan, "right", None),
        ("normal.gamma", np.inf, "normal", Drawn(3)),
        ("hidden.w", 3e38, "hidden", None),
    ],
)
def test_a_nan_that_appears_is_found_where_it_began(
    program: Program, tensor: str, value: float, layer: str, order: Any
) -> None:
    """And nothing is learnt from it: afterwards training goes on as if it had not been."""
    network = program.network
    with trainer(program, poison=order is not None, order=order) as made:
        made.step(*draw_batch(network))
        good = made.state()
        bad = {name: values.copy() for name, values in good.items()}
        bad[tensor].reshape(-1)[:] = value
        made.load_state(bad)
        with raises_naming(NotFinite, 1) as caught:
            made.step(*draw_batch(network, 1))
        assert caught.value.layer == layer
        assert lacks(str(caught.value), layer, "forward") == []
        spoilt = not np.isfinite(value)
        assert (lacks(str(caught.value), tensor, "checkpoint") == []) == spoilt
        assert untouched(made, bad) and made.iteration == 1
        made.load_state(good)
        made.step(*draw_batch(network, 1))
        assert differing(made.state(), plain_training(program, 2)) == []


def test_without_a_guard_the_same_bits_are_learnt_and_a_nan_is_found_too_late(program: Program) -> None:
    network = program.network
    with trainer(program, guard=False) as made:
        for number in range(2):
            made.step(*draw_batch(network, number))
        assert differing(made.state(), plain_training(program, 2)) == []
        bad = {name: values.copy() for name, values in made.state().items()}
        bad["last.b"][:] = np.nan
        made.load_state(bad)
        with raises_naming(NotFinite, 2):
            made.step(*draw_batch(network, 2))
        assert not untouched(made, bad) and made.iteration == 3


# -- interrupts --------------------------------------------------------------------------------------------------------


def interrupting(made: Trainer, at: int, times: int = 1) -> None:
    """Ctrl-C comes after the launch number `at` of every iteration from now on."""
    replay: Any = made.replay
    position = sorted(replay._bound.launches)[at]

    def strike() -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)

    replay._work[position].append(strike)


def test_ctrl_c_waits_for_the_end_of_the_iteration(program: Program) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with trainer(program) as made:
        interrupting(made, 0)
        with pytest.raises(KeyboardInterrupt):
            made.step(*draw_batch(program.network))
        assert signal.getsignal(signal.SIGINT) is handler
        assert made.iteration == 1
        assert differing(made.state(), plain_training(program, 1)) == []


def test_a_second_ctrl_c_ends_it_at_once_and_the_trainer_knows(program: Program, tmp_path: Any) -> None:
    with trainer(program) as made:
        made.save(tmp_path / "start.npz")
        interrupting(made, 20, times=2)
        with pytest.raises(KeyboardInterrupt):
            made.step(*draw_batch(program.network))
        assert made.iteration == 0
        batch = draw_batch(program.network)
        for use in (
            lambda: made.step(*batch), made.repeat, lambda: made.evaluate(*batch), made.weights, made.timeline,
            lambda: made.save(tmp_path / "never.npz"),
        ):  # fmt: skip
            with raises_naming(RunError, "checkpoint"):
                use()
        made.restore(tmp_path / "start.npz")
        assert isinstance(made.replay, CpuReplay)
        made.replay._work[sorted(made.replay._bound.launches)[20]].pop()
        made.step(*draw_batch(program.network))
        assert differing(made.state(), plain_training(program, 1)) == []


# -- weights by the names of where they came from ----------------------------------------------------------------------


def test_a_network_of_our_own_has_no_names_elsewhere(program: Program, tmp_path: Any) -> None:
    with Trainer(program) as made:
        for use in (made.weights, lambda: made.to_torch(None)):
            with raises_naming(RunError, "small", "weights"):
                use()
        with raises_naming(RunError, "small", "ONNX"):
            made.to_onnx(tmp_path / "trained.onnx")
    for use in (made.weights, lambda: made.save(tmp_path / "late.npz")):
        with raises_naming(RunError, "trainer"):
            use()
    assert os.listdir(tmp_path) == []

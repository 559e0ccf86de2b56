"""Fully connected layers against NumPy, PyTorch and finite differences; the choice of rung; workspaces; errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import fc, gemm
from kernels.targets.launch import bind
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

BATCH = st.one_of(st.integers(1, 5), st.sampled_from([31, 32, 33, 64, 67]))
WIDTH = st.one_of(st.integers(1, 9), st.sampled_from([63, 64, 65, 127, 128, 131, 300]))
RUNG = st.sampled_from([None, "tiled", "skinny", gemm.BEST])


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(shapes, ()))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def made(shape: tuple[int, ...], run: Callable[[np.ndarray], None]) -> np.ndarray:
    """What `run` writes into an array that has been NaN."""
    out = np.full(shape, np.nan, np.float32)
    run(out)
    return out


def close(found: np.ndarray, expected: np.ndarray, terms: int) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-6 * (1 + terms) ** 0.5)


@given(batch=BATCH, inputs=WIDTH, outputs=WIDTH, bias=st.booleans(), rung=RUNG)
def test_forward_against_the_reference(batch: int, inputs: int, outputs: int, bias: bool, rung: str | None) -> None:
    x, w, given = drawn((batch, inputs), (outputs, inputs), (outputs,))
    b = given if bias else None
    y = made((batch, outputs), lambda y: fc.forward(x, w, b, y, algorithm=rung))
    close(y, reference.fc_forward(x, w, b), inputs)


@given(batch=BATCH, inputs=WIDTH, outputs=WIDTH, rung=RUNG)
def test_gradients_against_the_reference(batch: int, inputs: int, outputs: int, rung: str | None) -> None:
    x, w, dy = drawn((batch, inputs), (outputs, inputs), (batch, outputs))
    dx = made(x.shape, lambda dx: fc.backward_data(dy, w, dx, algorithm=rung))
    dw = made(w.shape, lambda dw: fc.backward_filter(x, dy, dw, algorithm=rung))
    db = made((outputs,), lambda db: fc.backward_bias(dy, db))
    close(dx, reference.fc_backward_data(dy, w), outputs)
    close(dw, reference.fc_backward_weight(x, dy), batch)
    close(db, reference.fc_backward_bias(dy), batch)


@given(batch=BATCH, maps=st.tuples(*[st.integers(1, 6)] * 3), outputs=WIDTH)
def test_against_pytorch_with_feature_maps_as_input(
    torch: Any, batch: int, maps: tuple[int, int, int], outputs: int
) -> None:
    inputs = int(np.prod(maps))
    x, w, b, dy = drawn((batch, *maps), (outputs, inputs), (outputs,), (batch, outputs))
    tensors = [torch.tensor(value, requires_grad=True) for value in (x, w, b)]
    y = torch.nn.functional.linear(tensors[0].flatten(1), *tensors[1:])
    y.backward(torch.tensor(dy))
    close(made(y.shape, lambda y: fc.forward(x, w, b, y)), y.detach().numpy(), inputs)
    close(made(x.shape, lambda dx: fc.backward_data(dy, w, dx)), tensors[0].grad.numpy(), outputs)
    close(made(w.shape, lambda dw: fc.backward_filter(x, dy, dw)), tensors[1].grad.numpy(), batch)
    close(made(b.shape, lambda db: fc.backward_bias(dy, db)), tensors[2].grad.numpy(), batch)


def test_the_gradients_are_the_slopes_of_the_forward_pass() -> None:
    """The layer is linear in x, w and b: a step of any length along one changes Σ dy·y by slope times length."""
    shapes = (6, 10), (7, 10), (7,)
    x, w, b = drawn(*shapes)
    (dy,) = drawn((6, 7))
    slopes = (
        made(x.shape, lambda dx: fc.backward_data(dy, w, dx)),
        made(w.shape, lambda dw: fc.backward_filter(x, dy, dw)),
        made(b.shape, lambda db: fc.backward_bias(dy, db)),
    )

    def loss(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> float:
        return float(np.vdot(dy.astype(np.float64), made(dy.shape, lambda y: fc.forward(x, w, b, y))))

    for which, slope in enumerate(slopes):
        steps = [np.zeros(shape, np.float32) for shape in shapes]
        steps[which] = drawn((*shapes[which], 1))[0].reshape(shapes[which])
        moved = loss(x + steps[0], w + steps[1], b + steps[2]) - loss(x, w, b)
        assert moved == pytest.approx(float(np.vdot(slope.astype(np.float64), steps[which])), rel=1e-4, abs=1e-4)


@given(
    batch=st.sampled_from([1, 3, 32, 40]),
    inputs=st.sampled_from([256, 700, 1025]),
    outputs=st.sampled_from([1, 10, 130]),
)
def test_a_workspace_changes_the_speed_and_not_the_bits(batch: int, inputs: int, outputs: int) -> None:
    x, w, b, dy = drawn((batch, inputs), (outputs, inputs), (outputs,), (batch, outputs))
    calls: dict[str, tuple[tuple[int, ...], Callable[..., None]]] = {
        "forward": (dy.shape, lambda y, space: fc.forward(x, w, b, y, workspace=space)),
        "backward_data": (x.shape, lambda dx, space: fc.backward_data(dy, w, dx, workspace=space)),
        "backward_filter": (w.shape, lambda dw, space: fc.backward_filter(x, dy, dw, workspace=space)),
    }
    for pass_, (shape, call) in calls.items():
        size = fc.workspace_bytes(pass_, x.shape, w.shape) // 4
        space = np.full(size, np.nan, np.float32) if size else None
        without, with_one = (made(shape, partial(call, space=given)) for given in (None, space))
        np.testing.assert_array_equal(without, with_one, err_msg=pass_)


def test_the_choice_follows_from_the_rows_of_the_result() -> None:
    assert fc.algorithm_for("forward", (32, 4096), (1000, 4096)) == "skinny"
    assert fc.algorithm_for("forward", (33, 4096), (1000, 4096)) == gemm.BEST
    assert fc.algorithm_for("backward_data", (32, 4096), (1000, 4096)) == "skinny"
    assert fc.algorithm_for("backward_filter", (32, 4096), (1000, 4096)) == gemm.BEST
    x, w, y = drawn((32, 40), (100, 40), (32, 100))
    (launched,) = bind(fc.forward, x, w, None, y)
    assert launched.kernel.name.startswith("gemm_skinny")


def test_workspace_bytes_of_the_first_layer_of_vgg() -> None:
    slices, _ = gemm.slices_of(32, 4096, 25088)
    assert fc.workspace_bytes("forward", (32, 512, 7, 7), (4096, 25088)) == 4 * slices * 32 * 4096
    assert fc.workspace_bytes("backward_filter", (32, 512, 7, 7), (4096, 25088)) == 0
    assert fc.workspace_bytes("forward", (64, 25088), (4096, 25088)) == 0


def test_same_bits_from_run_to_run() -> None:
    x, w, b = drawn((40, 300), (70, 300), (70,))
    first, second = (made((40, 70), lambda y: fc.forward(x, w, b, y)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x, w, b, y: fc.forward(x, w[:, :2].copy(), b, y), ("fc.forward", "w", (4, 2), (4, 3))),
        (lambda x, w, b, y: fc.forward(x, w, b[:2].copy(), y), ("fc.forward", "b", (2,), (4,))),
        (lambda x, w, b, y: fc.forward(x, w, b, y.T.copy()), ("fc.forward", "y", (4, 2), (2, 4))),
        (lambda x, w, b, y: fc.forward(x[0], w, b, y), ("x", (3,), "batch")),
        (lambda x, w, b, y: fc.forward(x[:, ::2], w, b, y), ("x", "contiguous")),
        (lambda x, w, b, y: fc.backward_data(y, w, x.T.copy()), ("fc.backward_data", "w", (4, 3), (4, 2))),
        (lambda x, w, b, y: fc.backward_filter(x, y[:1], w), ("fc.backward_filter", "dy", (1, 4), (2, 4))),
        (lambda x, w, b, y: fc.backward_bias(y, b[:3]), ("fc.backward_bias", "db", (3,), (4,))),
        (lambda x, w, b, y: fc.backward_bias(b, b), ("dy", (4,), "batch")),
        (lambda x, w, b, y: fc.forward(x, w, b, y, algorithm="skiny"), ("skiny", "skinny")),
        (lambda x, w, b, y: fc.workspace_bytes("sideways", x.shape, w.shape), ("sideways",)),
        (lambda x, w, b, y: fc.workspace_bytes("forward", (2, 5), w.shape), ("x", (2, 5), "w", (4, 3))),
    ],
)  # fmt: skip
def test_errors(call: Callable[..., Any], says: tuple[object, ...]) -> None:
    arrays = drawn((2, 3), (4, 3), (4,), (2, 4))
    with raises_naming(KernelError, *says):
        call(*arrays)


def test_a_workspace_that_is_too_small() -> None:
    x, w, y = drawn((2, 1024), (3, 1024), (2, 3))
    needed = fc.workspace_bytes("forward", x.shape, w.shape)
    with raises_naming(KernelError, "workspace", 4, needed):
        fc.forward(x, w, None, y, workspace=np.empty(1, np.float32))

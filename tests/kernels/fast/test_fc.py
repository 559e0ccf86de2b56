"""Fully connected layers: the choice of rung, workspaces, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks.arguments import KernelError
from kernels.fast import fc, gemm
from kernels.targets.launch import bind
from tests.messages import raises_naming


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(shapes, ()))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def made(shape: tuple[int, ...], run: Callable[[np.ndarray], None]) -> np.ndarray:
    """What `run` writes into an array that has been NaN."""
    out = np.full(shape, np.nan, np.float32)
    run(out)
    return out


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

"""Softmax, cross-entropy and their common gradient: oracles, slopes, extreme values, labels out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import softmax
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

ROWS = st.integers(1, 9)
CLASSES = st.one_of(st.integers(1, 12), st.sampled_from([255, 256, 257, 1000]))


def drawn(rows: int, classes: int, spread: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels."""
    rng = np.random.default_rng((rows, classes))
    x = spread * rng.standard_normal((rows, classes)) + 5
    return x.astype(np.float32), rng.integers(0, classes, rows).astype(np.int32)


def all_three(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, losses and dx, which have been NaN."""
    y, losses, dx = np.full_like(x, np.nan), np.full(len(x), np.nan, np.float32), np.full_like(x, np.nan)
    softmax.forward(x, y)
    softmax.cross_entropy(y, labels, losses)
    softmax.backward(y, labels, dx)
    return y, losses, dx


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@given(rows=ROWS, classes=CLASSES)
def test_against_the_reference(rows: int, classes: int) -> None:
    x, labels = drawn(rows, classes)
    y, losses, dx = all_three(x, labels)
    close(y, reference.softmax_forward(x))
    close(losses, reference.cross_entropy(y, labels))
    close(dx, reference.softmax_backward(y, labels))


def test_maps_are_rows() -> None:
    x, labels = drawn(3, 40)
    found = all_three(x.reshape(3, 10, 2, 2), labels)
    assert [part.tobytes() for part in found] == [part.tobytes() for part in all_three(x, labels)]


@given(rows=ROWS, classes=CLASSES)
def test_against_pytorch(torch: Any, rows: int, classes: int) -> None:
    x, labels = drawn(rows, classes)
    y, losses, dx = all_three(x, labels)
    tensor, wanted = torch.tensor(x, requires_grad=True), torch.tensor(labels.astype(np.int64))
    torch.nn.functional.cross_entropy(tensor, wanted).backward()
    close(y, torch.softmax(tensor, dim=1).detach().numpy())
    close(losses, torch.nn.functional.cross_entropy(tensor, wanted, reduction="none").detach().numpy(), 1e-5)
    close(dx, tensor.grad.numpy())


@given(rows=ROWS, classes=CLASSES)
def test_the_gradient_is_the_slope_of_the_mean_loss(rows: int, classes: int) -> None:
    x, labels = drawn(rows, classes)
    _, _, dx = all_three(x, labels)
    direction = np.random.default_rng(1).choice(np.array([-1, 1], np.float32), x.shape)
    upper, lower = (all_three(x + step * direction, labels)[1] for step in np.array([0.0625, -0.0625], np.float32))
    slope = (upper.mean(dtype=np.float64) - lower.mean(dtype=np.float64)) / 0.125
    assert slope == pytest.approx(np.sum(dx.astype(np.float64) * direction), abs=2e-3)


@given(rows=ROWS, classes=CLASSES)
def test_in_place(rows: int, classes: int) -> None:
    x, labels = drawn(rows, classes)
    y, _, dx = all_three(x, labels)
    softmax.forward(x, x)
    assert x.tobytes() == y.tobytes()
    softmax.backward(x, labels, x)
    assert x.tobytes() == dx.tobytes()


def test_nothing_overflows() -> None:
    x = np.array([[1e38, -1e38, 0], [-1e38, -1e38, -1e38], [1000, 999, -np.inf]], np.float32)
    y, losses, dx = all_three(x, np.zeros(3, np.int32))
    close(y, reference.softmax_forward(x))
    close(losses, np.array([0, np.log(3), np.log1p(np.exp(-1))], np.float32))
    assert np.isfinite(dx).all()


def test_what_float32_cannot_tell_from_zero() -> None:
    """The loss of an impossible class is infinite, its gradient is not."""
    y, losses, dx = all_three(np.array([[0, 200]], np.float32), np.array([0], np.int32))
    assert y.tolist() == [[0, 1]] and losses.tolist() == [np.inf] and dx.tolist() == [[-1, 1]]


def test_nan_stays_in_its_row() -> None:
    y, losses, dx = all_three(np.array([[0, np.nan, 0], [0, 0, 0]], np.float32), np.array([0, 0], np.int32))
    for part in (y, losses[:, None], dx):
        assert np.isnan(part[0]).all() and np.isfinite(part[1]).all()


@pytest.mark.parametrize("label", [-1, 3, -100, 2**31 - 1, -(2**31)])
def test_a_label_out_of_range_is_seen_in_the_loss(label: int) -> None:
    x, labels = drawn(3, 3)
    labels[1] = label
    y, losses, dx = all_three(x, labels)
    assert np.isnan(losses[1]) and np.isfinite(losses[[0, 2]]).all()
    close(dx[1], y[1] / 3)
    close(dx[[0, 2]], reference.softmax_backward(y[[0, 2]], labels[[0, 2]]) * 2 / 3)


def test_the_same_bits_every_time() -> None:
    x, labels = drawn(5, 1000)
    first, second = all_three(x, labels), all_three(x, labels)
    assert [part.tobytes() for part in first] == [part.tobytes() for part in second]


def test_what_is_refused() -> None:
    x, labels = drawn(4, 5)
    losses = np.zeros(4, np.float32)
    with raises_naming(KernelError, "classes"):
        softmax.forward(x[0], x[0])
    with raises_naming(KernelError, "y", "(3, 5)", "(4, 5)", "softmax.forward"):
        softmax.forward(x, x[:3])
    with raises_naming(KernelError, "labels", "int64", "int32"):
        softmax.cross_entropy(x, labels.astype(np.int64), losses)
    with raises_naming(KernelError, "labels"):
        softmax.backward(x, labels[:3], x)
    with raises_naming(KernelError, "losses"):
        softmax.cross_entropy(x, labels, losses[:3])

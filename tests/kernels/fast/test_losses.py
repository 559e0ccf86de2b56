"""The losses beside the softmax's: a label a pixel, squared errors, binary cross-entropy.  Oracles and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import mean_loss, pixel_softmax
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

#: One with several parts of an image, and one in which the last thread of a block has none.
SHAPES = [(2, 3, 70, 70), (3, 1, 1, 1), (1, 5, 16, 17), (300, 2, 1, 2)]
SHAPE = st.one_of(
    st.sampled_from(SHAPES), st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))
)
ERRORS = ("squared", "binary")


def drawn(shape: tuple[int, ...]) -> np.ndarray:
    return 4 * np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def labelled(shape: tuple[int, ...], ignore_index: int) -> np.ndarray:
    """A label a pixel; the first one counts."""
    random = np.random.default_rng(shape)
    labels = random.integers(0, shape[1], (shape[0], *shape[2:])).astype(np.int32)
    labels[random.random(labels.shape) < 0.3] = ignore_index
    labels.flat[0] = shape[1] - 1
    return labels


def of_pixels(x: np.ndarray, labels: np.ndarray, ignore_index: int) -> tuple[np.ndarray, ...]:
    """Probabilities, losses, the number that counts, and the gradient, in place of the probabilities."""
    y, losses, counted = np.full_like(x, np.nan), np.full(len(x), np.nan, np.float32), np.full(1, np.nan, np.float32)
    pixel_softmax.forward(x, y)
    workspace = np.full(pixel_softmax.workspace_bytes(x.shape) // 4, np.nan, np.float32)
    given = {"ignore_index": ignore_index}
    pixel_softmax.cross_entropy(y, labels, losses, counted, **given, workspace=workspace)  # type: ignore[arg-type]
    dx = y.copy()
    pixel_softmax.backward(dx, labels, counted, dx, **given)  # type: ignore[arg-type]
    return y, losses, counted, dx


def of_numbers(x: np.ndarray, targets: np.ndarray, error: str) -> tuple[np.ndarray, np.ndarray]:
    losses, dx = np.full(len(x), np.nan, np.float32), np.full_like(x, np.nan)
    workspace = np.full(mean_loss.workspace_bytes(x.shape) // 4, np.nan, np.float32)
    mean_loss.forward(x, targets, losses, error=error, workspace=workspace)
    mean_loss.backward(x, targets, dx, error=error)
    return losses, dx


def close(found: np.ndarray, expected: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * float(np.abs(expected).max()))


@given(shape=SHAPE, ignore_index=st.sampled_from([-100, 255, 0]))
def test_a_label_a_pixel(torch: Any, shape: tuple[int, ...], ignore_index: int) -> None:
    x, labels = drawn(shape), labelled(shape, ignore_index)
    if ignore_index == labels.flat[0]:
        labels.flat[0] = 1 if shape[1] > 1 else 5  # of one class none would count: a label out of range is NaN
    found = y, losses, counted, dx = of_pixels(x, labels, ignore_index)
    assert all(
        one.tobytes() == two.tobytes() for one, two in zip(found, of_pixels(x, labels, ignore_index), strict=True)
    )
    if labels.flat[0] >= shape[1]:
        assert np.isnan(losses[0])
        return
    close(y, reference.pixel_softmax_forward(x))
    expected, number = reference.pixel_cross_entropy(y, labels, ignore_index)
    close(losses, expected)
    assert counted[0] == number
    close(dx, reference.pixel_softmax_backward(y, labels, ignore_index))
    assert not dx[np.broadcast_to((labels == ignore_index)[:, None], shape)].any()
    theirs = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(theirs, torch.tensor(labels).long(), ignore_index=ignore_index)
    loss.backward()
    assert losses.mean() == pytest.approx(loss.item(), rel=1e-5, abs=1e-7)
    close(dx, theirs.grad.numpy(), 1e-5)


@given(shape=SHAPE, error=st.sampled_from(ERRORS))
def test_means_over_numbers(torch: Any, shape: tuple[int, ...], error: str) -> None:
    x, targets = drawn(shape), np.random.default_rng(1).random(shape).astype(np.float32)
    losses, dx = of_numbers(x, targets, error)
    close(losses, reference.mean_loss_forward(x, targets, error))
    close(dx, reference.mean_loss_backward(x, targets, error))
    theirs = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    functional = torch.nn.functional
    function = functional.mse_loss if error == "squared" else functional.binary_cross_entropy_with_logits
    loss = function(theirs, torch.tensor(targets, dtype=torch.float64))
    loss.backward()
    assert losses.mean(dtype=np.float64) == pytest.approx(loss.item(), rel=1e-6)
    close(dx, theirs.grad.numpy())
    mean_loss.backward(x, targets, x, error=error, weight=0.25)  # in place, and of a weighted loss
    close(x, 0.25 * theirs.grad.numpy())


def test_probabilities_and_their_losses_do_not_overflow() -> None:
    x = np.array([[-1e30, -88, -20, 0, 20, 88, 1e30]], np.float32)
    losses, dx = of_numbers(x, np.zeros_like(x), "binary")
    assert losses[0] == pytest.approx(1e30 / 7, rel=1e-6) and np.isfinite(dx).all()
    close(of_numbers(x[:, 2:3], np.zeros((1, 1), np.float32), "binary")[0], np.log1p(np.exp(-20.0)))
    mean_loss.sigmoid(x, x)
    assert x[0, 0] == 0 and x[0, 3] == 0.5 and x[0, 6] == 1
    close(x[0, 2], 1 / (1 + np.exp(20.0)))


def test_labels_out_of_range_are_seen_in_the_loss_and_no_label_at_all_too() -> None:
    x, labels = drawn((2, 3, 4, 4)), labelled((2, 3, 4, 4), -100)
    labels[0, 1, 1] = 3
    _, losses, _, dx = of_pixels(x, labels, -100)
    assert np.isnan(losses[0]) and np.isfinite(losses[1]) and np.isfinite(dx).all()
    _, losses, counted, _ = of_pixels(x, np.full_like(labels, -100), -100)
    assert np.isnan(losses).all() and counted[0] == 0


def test_what_is_refused() -> None:
    x, labels = drawn((2, 3, 4, 4)), labelled((2, 3, 4, 4), -100)
    losses, counted, workspace = np.zeros(2, np.float32), np.zeros(1, np.float32), np.zeros(4, np.float32)
    with raises_naming(KernelError, "x", "(2, 3)", "height"):
        pixel_softmax.forward(x[:, :, 0, 0].copy(), x)
    with raises_naming(KernelError, "labels", "(2, 4)", "(2, 4, 4)"):
        pixel_softmax.cross_entropy(x, labels[:, 0].copy(), losses, counted, workspace=workspace)
    with raises_naming(KernelError, "workspace", 4, 16):
        pixel_softmax.cross_entropy(x, labels, losses, counted, workspace=workspace[:1])
    with raises_naming(KernelError, "workspace", 4, 8):
        mean_loss.forward(x, x, losses, error="squared", workspace=workspace[:1])
    with raises_naming(KernelError, "targets", "(2, 3, 4)"):
        mean_loss.backward(x, x[..., 0].copy(), x, error="squared")
    with raises_naming(KernelError, "error", "cubed", "squared", "binary"):
        mean_loss.forward(x, x, losses, error="cubed", workspace=workspace)

"""The losses of maps at the ends: large numbers, labels out of range, and no label at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels import mean_loss
from kernels.fast import pixel_softmax

pytestmark = pytest.mark.ptx


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
    mean_loss.forward(x, targets, losses, error=error)
    mean_loss.backward(x, targets, dx, error=error)
    return losses, dx


def close(found: np.ndarray, expected: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * float(np.abs(expected).max()))


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

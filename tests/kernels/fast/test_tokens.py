"""Embedding and positions: against the reference and PyTorch, over drawn shapes."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.fast import embedding

pytestmark = pytest.mark.ptx


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def gradient(
    tokens: np.ndarray, dy: np.ndarray, words: int, begun: np.ndarray | None = None, padding: int | None = None
) -> np.ndarray:
    dw = np.full((words, dy.shape[1]), np.nan, np.float32) if begun is None else begun.copy()
    workspace = np.full(embedding.workspace_bytes(tokens.shape) // 4, np.nan, np.float32)
    embedding.backward(tokens, dy, dw, added=begun is not None, padding=padding, workspace=workspace)
    return dw


def test_a_number_that_is_no_token_is_not_a_number_and_has_no_gradient() -> None:
    tokens = np.array([[1, 16, -1, 0, 17, 2**30, 1]], np.int32)
    w, y, dy = drawn(17, 3), np.zeros((1, 3, 7, 1), np.float32), np.ones((1, 3, 7, 1), np.float32)
    embedding.forward(tokens, w, y)
    assert np.isnan(y[0, 0, :, 0]).tolist() == [False, False, True, False, True, True, False]
    dw = gradient(tokens, dy, 17)
    assert dw[:, 0].tolist() == [1, 2] + 14 * [0] + [1]


def test_the_gradients_of_a_token_are_added_up_in_the_order_of_their_places() -> None:
    """A sum of float32 in another order would be another number."""
    tokens, dy = np.zeros((3, 500), np.int32), drawn(3, 2, 500, 1)
    total = np.zeros(2, np.float32)
    for place in np.moveaxis(dy[..., 0], 1, -1).reshape(-1, 2):
        total += place
    assert gradient(tokens, dy, 4)[0].tobytes() == total.tobytes()

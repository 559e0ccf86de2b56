"""Embedding and positions: against the reference and PyTorch, over drawn shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import embedding, position
from tests.messages import raises_naming

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


@given(
    windows=st.integers(1, 4), count=st.integers(1, 70), words=st.integers(1, 300), channels=st.integers(1, 70),
    seed=st.integers(0, 9),
)  # fmt: skip
@example(2, 300, 5, 3, 0)
@example(1, 1, 17, 65, 0)
def test_an_embedding(torch: Any, windows: int, count: int, words: int, channels: int, seed: int) -> None:
    tokens = np.random.default_rng(seed).integers(0, words, (windows, count), np.int32)
    w, y = drawn(words, channels), np.full((windows, channels, count, 1), np.nan, np.float32)
    embedding.forward(tokens, w, y)
    np.testing.assert_array_equal(y[..., 0], reference.embedding_forward(tokens, w))
    dy, theirs = drawn(*y.shape, seed=1), torch.tensor(w, requires_grad=True)
    maps = torch.nn.functional.embedding(torch.tensor(tokens).long(), theirs).movedim(-1, 1)
    maps.backward(torch.tensor(dy[..., 0]))
    dw = gradient(tokens, dy, words)
    room = 1e-5 * max(1.0, float(np.abs(dw).max()))
    np.testing.assert_allclose(dw, theirs.grad.numpy(), rtol=0, atol=room)
    np.testing.assert_allclose(dw, reference.embedding_backward(tokens, dy, words), rtol=0, atol=room)
    begun = drawn(words, channels, seed=2)
    np.testing.assert_allclose(gradient(tokens, dy, words, begun), begun + dw, rtol=0, atol=room)


@given(words=st.integers(1, 12), count=st.integers(1, 40), seed=st.integers(0, 9), data=st.data())
def test_a_token_of_padding_has_no_gradient(torch: Any, words: int, count: int, seed: int, data: Any) -> None:
    padding = data.draw(st.integers(0, words - 1))
    tokens = np.random.default_rng(seed).integers(0, words, (2, count), np.int32)
    dy, theirs = drawn(2, 3, count, 1, seed=seed), torch.zeros(words, 3, requires_grad=True)
    maps = torch.nn.functional.embedding(torch.tensor(tokens).long(), theirs, padding).movedim(-1, 1)
    maps.backward(torch.tensor(dy[..., 0]))
    dw = gradient(tokens, dy, words, padding=padding)
    np.testing.assert_allclose(dw, theirs.grad.numpy(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(dw, reference.embedding_backward(tokens, dy, words, padding), rtol=0, atol=1e-5)
    begun = drawn(words, 3)
    added = gradient(tokens, dy, words, begun, padding)
    np.testing.assert_allclose(added, begun + dw, rtol=0, atol=1e-5)
    assert not dw[padding].any() and added[padding].tobytes() == begun[padding].tobytes()


@given(shape=st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 40), st.integers(1, 9)))
def test_a_bias_is_a_position_that_is_alike_everywhere(shape: tuple[int, ...]) -> None:
    x, w, y, dw = drawn(*shape), drawn(shape[1], seed=1), np.empty(shape, np.float32), np.empty(shape[1], np.float32)
    position.forward(x, w, y)
    np.testing.assert_allclose(y, reference.position_forward(x, w), rtol=1e-6)
    position.backward(x, dw)
    np.testing.assert_allclose(dw, reference.position_backward(x, alike=True), rtol=1e-5, atol=1e-5)
    position.forward(x, w, x)
    assert x.tobytes() == y.tobytes()


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


@given(shape=st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 40), st.integers(1, 9)))
@example((2, 6, 35, 41))
def test_positions(shape: tuple[int, ...]) -> None:
    x, w, y, dw = drawn(*shape), drawn(*shape[1:], seed=1), np.empty(shape, np.float32), np.empty(shape[1:], np.float32)
    position.forward(x, w, y)
    np.testing.assert_allclose(y, reference.position_forward(x, w), rtol=1e-6)
    position.backward(x, dw)
    np.testing.assert_allclose(dw, reference.position_backward(x), rtol=1e-5, atol=1e-6)
    position.forward(x, w, x)
    assert x.tobytes() == y.tobytes()


def test_what_cannot_be_is_refused() -> None:
    tokens, w, y = np.zeros((2, 5), np.int32), drawn(7, 3), drawn(2, 3, 5, 1)
    with raises_naming(KernelError, "embedding.forward", "tokens", "float32", "int32"):
        embedding.forward(tokens.astype(np.float32), w, y)
    with raises_naming(KernelError, "embedding.forward", "y", (2, 3, 5, 1), (2, 4, 5)):
        embedding.forward(tokens, drawn(7, 4), y)
    with raises_naming(KernelError, "embedding.forward", "w", (7, 3, 2), "channels"):
        embedding.forward(tokens, drawn(7, 3, 2), y)
    with raises_naming(KernelError, "embedding.backward", "workspace", 40, 80):
        embedding.backward(tokens, y, w, workspace=drawn(10))
    with raises_naming(KernelError, "embedding.backward", "padding", 7, 7):
        embedding.backward(tokens, y, w, padding=7, workspace=drawn(20))
    with raises_naming(KernelError, "position.forward", "w", (7, 3), (3, 5, 1)):
        position.forward(y, w, y)

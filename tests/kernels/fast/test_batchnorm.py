"""Batch normalisation: means far from zero, chunks, one value a channel, and the workspace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.fast import batchnorm

SHAPES = st.builds(
    lambda images, channels, maps: (images, channels, *maps),
    st.integers(1, 6),
    st.integers(1, 9),
    st.lists(st.integers(1, 11), max_size=3),
)
SEVERAL_CHUNKS = (3, 2, 53, 67)
ONE_MORE_THAN_A_CHUNK = (1, 3, 17, 241)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def empty(*shape: int) -> np.ndarray:
    """What a kernel leaves unwritten stays visible."""
    return np.full(shape, np.nan, np.float32)


def parameters(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """gamma and beta."""
    return 1 + normal(shape[1], seed=2) / 4, normal(shape[1], seed=3)


def workspace(shape: tuple[int, ...], more: int = 0) -> np.ndarray:
    return empty(batchnorm.workspace_bytes(shape) // 4 + more)


def forward(x: np.ndarray, more: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, mean and inverse standard deviation."""
    y, mean, inverse_std = empty(*x.shape), empty(x.shape[1]), empty(x.shape[1])
    batchnorm.forward(x, *parameters(x.shape), y, mean, inverse_std, workspace=workspace(x.shape, more))
    return y, mean, inverse_std


def backward(
    x: np.ndarray, mean: np.ndarray, inverse_std: np.ndarray, dy: np.ndarray, dx: np.ndarray, more: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dx, dgamma and dbeta."""
    dgamma, dbeta = empty(x.shape[1]), empty(x.shape[1])
    gamma, space = parameters(x.shape)[0], workspace(x.shape, more)
    batchnorm.backward(x, gamma, mean, inverse_std, dy, dx, dgamma, dbeta, workspace=space)
    return dx, dgamma, dbeta


@pytest.mark.parametrize("offset", [1e2, 1e4, -1e6])
def test_a_mean_far_from_zero_costs_no_precision(offset: float) -> None:
    """The sum of the squares less the square of the sum, in float32, would have no correct digit left."""
    x = normal(*SEVERAL_CHUNKS) + np.float32(offset)
    _, mean, inverse_std = forward(x)
    expected_mean, expected_inverse = reference.batchnorm_statistics(x)
    np.testing.assert_allclose(mean, expected_mean, rtol=2.5e-7)
    np.testing.assert_allclose(inverse_std, expected_inverse, rtol=1e-5)


def test_chunks_of_very_different_values() -> None:
    """Each chunk is merged with the weight of its length."""
    x = normal(*ONE_MORE_THAN_A_CHUNK)
    x.reshape(3, -1)[:, -1] = 1000
    _, mean, inverse_std = forward(x)
    expected_mean, expected_inverse = reference.batchnorm_statistics(x)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-5)
    np.testing.assert_allclose(inverse_std, expected_inverse, rtol=1e-5)


@given(shape=SHAPES)
@example(SEVERAL_CHUNKS)
def test_in_place_and_with_more_workspace_the_bits_are_the_same(shape: tuple[int, ...]) -> None:
    x, dy = normal(*shape), normal(*shape, seed=1)
    first, second = forward(x), forward(x, more=1000)
    assert [part.tobytes() for part in first] == [part.tobytes() for part in second]
    out_of_place = backward(x, *first[1:], dy, empty(*shape))
    in_place = backward(x, *first[1:], dy, dy, more=77)
    assert [part.tobytes() for part in out_of_place] == [part.tobytes() for part in in_place]


def test_a_channel_without_spread_has_no_negative_variance() -> None:
    """1 / inverse_std² - epsilon may round to either side of zero."""
    _, mean, inverse_std = forward(np.full((4, 2, 3, 3), 5, np.float32))
    running_mean, running_variance = np.zeros(2, np.float32), np.zeros(2, np.float32)
    batchnorm.update_running(mean, inverse_std, running_mean, running_variance, count=36, momentum=1.0)
    assert running_mean.tolist() == [5, 5]
    assert (running_variance >= 0).all() and (running_variance < 1e-10).all()


def test_the_workspace_is_small() -> None:
    assert batchnorm.workspace_bytes((32, 64, 112, 112)) == 2 * 4 * 64 * 98
    assert batchnorm.workspace_bytes((1, 1)) == 8

"""Batch normalisation: oracles, slopes, means far from zero, several chunks, in place, and the workspace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import batchnorm
from kernels.targets import launch
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

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


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    """Relative to the largest value."""
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@given(shape=st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(4, 30), st.integers(4, 30)))
@example(SEVERAL_CHUNKS)
@example(ONE_MORE_THAN_A_CHUNK)
def test_image_by_image_gives_the_same_bits(shape: tuple[int, ...]) -> None:
    """On a CPU, beside the kernels for a GPU; in place, too."""
    assert batchnorm.by_image("cpu", shape[2] * shape[3]) and not batchnorm.by_image("gpu", shape[2] * shape[3])
    x, dy = 3 * normal(*shape) + 2, normal(*shape, seed=1)
    found = []
    for choose in (batchnorm.by_image, lambda *_: False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batchnorm, "by_image", choose)
            y, mean, inverse_std = forward(x)
            in_place = dy.copy()
            gradients = backward(x, mean, inverse_std, in_place, in_place)
            found.append([one.tobytes() for one in (y, mean, inverse_std, *gradients)])
    assert found[0] == found[1]


@given(shape=SHAPES)
@example((1, 1))  # one value: no spread at all
@example((5, 300))  # two axes, several blocks of channels
@example(SEVERAL_CHUNKS)
@example(ONE_MORE_THAN_A_CHUNK)
def test_against_the_reference(shape: tuple[int, ...]) -> None:
    x, dy = 3 * normal(*shape) + 2, normal(*shape, seed=1)
    y, mean, inverse_std = forward(x)
    expected_y, expected_mean, expected_inverse = reference.batchnorm_forward(x, *parameters(shape))
    spread = x.size > shape[1]  # otherwise inverse_std magnifies every rounding to 1 / sqrt(epsilon) times its size
    close(y, expected_y, 1e-5 if spread else 1e-3)
    close(mean, expected_mean, 1e-6)
    np.testing.assert_allclose(inverse_std, expected_inverse, rtol=1e-5)
    expected = reference.batchnorm_backward(x, parameters(shape)[0], mean, inverse_std, dy)
    for found, wanted in zip(backward(x, mean, inverse_std, dy, empty(*shape)), expected, strict=True):
        close(found, wanted, 2e-5)


@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (13, 6), (2, 1, 1, 1), SEVERAL_CHUNKS])
def test_as_in_pytorch(torch: Any, shape: tuple[int, ...]) -> None:
    """Two steps in training, so that the running statistics move on from where they have been, and one in inference."""
    gamma, beta = parameters(shape)
    running_mean, running_variance = np.zeros(shape[1], np.float32), np.ones(shape[1], np.float32)
    running = torch.zeros(shape[1]), torch.ones(shape[1])
    for step in (1, 2):
        x, dy = normal(*shape, seed=step) * step + step, normal(*shape, seed=step + 2)
        inputs = [torch.tensor(array, requires_grad=True) for array in (x, gamma, beta)]
        expected = torch.nn.functional.batch_norm(inputs[0], *running, *inputs[1:], training=True)
        expected.backward(torch.tensor(dy))
        y, mean, inverse_std = forward(x)
        close(y, expected.detach().numpy())
        for found, tensor in zip(backward(x, mean, inverse_std, dy, empty(*shape)), inputs, strict=True):
            close(found, tensor.grad.numpy(), 3e-5)
        before = mean.copy(), inverse_std.copy()
        count = x.size // shape[1]
        batchnorm.update_running(mean, inverse_std, running_mean, running_variance, count=count)
        assert np.array_equal(mean, before[0]) and np.array_equal(inverse_std, before[1])
        close(running_mean, running[0].numpy())
        close(running_variance, running[1].numpy())
    expected = torch.nn.functional.batch_norm(inputs[0], *running, *inputs[1:])
    y = empty(*shape)
    batchnorm.inference(x, gamma, beta, running_mean, running_variance, y)
    close(y, expected.detach().numpy())
    batchnorm.inference(x, gamma, beta, running_mean, running_variance, x)
    assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (13, 6), (1, 70, 3)])
def test_inference_and_running_statistics_against_the_reference(shape: tuple[int, ...]) -> None:
    x, (gamma, beta) = 3 * normal(*shape) + 2, parameters(shape)
    _, mean, inverse_std = forward(x)
    running = normal(shape[1], seed=4), 1 + normal(shape[1], seed=5) ** 2
    how: dict[str, Any] = {"count": x.size // shape[1], "momentum": 0.3, "epsilon": 1e-5}
    expected = reference.batchnorm_update_running(mean, inverse_std, *running, **how)
    batchnorm.update_running(mean, inverse_std, *running, **how)
    for found, wanted in zip(running, expected, strict=True):
        close(found, wanted)
    y, wanted = empty(*shape), reference.batchnorm_inference(x, gamma, beta, *running)
    batchnorm.inference(x, gamma, beta, *running, y)
    close(y, wanted)
    batchnorm.inference(x, gamma, beta, *running, x)
    assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("shape", [(3, 5, 4, 4), (2, 3, 17, 31)])
def test_inference_map_by_map_has_the_same_bits(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A map of a CPU's kernel is longer than its block, or as short as it can be."""
    x, running, found = normal(*shape), (normal(shape[1]), 1 + normal(shape[1], seed=5) ** 2), []
    for least in (batchnorm.LEAST_AREA, 1 << 20):
        monkeypatch.setattr(batchnorm, "LEAST_AREA", least)
        found.append(empty(*shape))
        with launch.recording() as noted:
            batchnorm.inference(x, *parameters(shape), *running, found[-1])
        assert [bound.kernel.name for bound in noted] == [f"batchnorm_inference{'_by_map' * (least == 16)}"]
        noted[0].run(None)
    assert found[0].tobytes() == found[1].tobytes()


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


def test_the_gradients_are_the_slopes() -> None:
    shape = (4, 3, 5, 2)
    x, dy, step = normal(*shape), normal(*shape, seed=1), np.float32(1 / 128)
    _, mean, inverse_std = forward(x)
    dx, dgamma, dbeta = backward(x, mean, inverse_std, dy, empty(*shape))
    arrays = x, *parameters(shape)
    for changed, gradient in enumerate((dx, dgamma, dbeta)):
        direction = np.random.default_rng(7).choice(np.array([-1, 1], np.float32), arrays[changed].shape)
        losses = []
        for sign in (step, -step):
            moved = (array + sign * direction if i == changed else array for i, array in enumerate(arrays))
            (x, gamma, beta), y = moved, empty(*shape)
            batchnorm.forward(x, gamma, beta, y, empty(3), empty(3), workspace=workspace(shape))
            losses.append(np.sum(dy.astype(np.float64) * y))
        slope = (losses[0] - losses[1]) / (2 * float(step))
        assert slope == pytest.approx(np.sum(gradient.astype(np.float64) * direction), abs=5e-3)


@given(shape=SHAPES)
@example(SEVERAL_CHUNKS)
def test_in_place_and_with_more_workspace_the_bits_are_the_same(shape: tuple[int, ...]) -> None:
    x, dy = normal(*shape), normal(*shape, seed=1)
    first, second = forward(x), forward(x, more=1000)
    assert [part.tobytes() for part in first] == [part.tobytes() for part in second]
    out_of_place = backward(x, *first[1:], dy, empty(*shape))
    in_place = backward(x, *first[1:], dy, dy, more=77)
    assert [part.tobytes() for part in out_of_place] == [part.tobytes() for part in in_place]


def test_running_statistics_against_the_reference() -> None:
    mean, inverse_std = normal(5), 0.1 + np.abs(normal(5, seed=1))
    running_mean, running_variance = normal(5, seed=2), np.abs(normal(5, seed=3))
    for count in (1, 2, 1000):
        options: dict[str, Any] = {"count": count, "momentum": 0.3, "epsilon": 1e-3}
        expected = reference.batchnorm_update_running(mean, inverse_std, running_mean, running_variance, **options)
        batchnorm.update_running(mean, inverse_std, running_mean, running_variance, **options)
        close(running_mean, expected[0], 1e-6)
        close(running_variance, expected[1], 1e-6)


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


def test_what_is_refused() -> None:
    shape = (2, 3, 4)
    x, gamma, (mean, std) = normal(*shape), normal(3), (normal(3), normal(3))
    for space in (None, workspace(shape)[1:]):
        with raises_naming(KernelError, "workspace", 24):
            batchnorm.forward(x, gamma, gamma, x, mean, std, workspace=space)
        with raises_naming(KernelError, "workspace", 24):
            batchnorm.backward(x, gamma, mean, std, x, x, gamma, gamma, workspace=space)
    with raises_naming(KernelError, "gamma", (4,), (3,)):
        batchnorm.inference(x, normal(4), gamma, mean, std, x)
    with raises_naming(KernelError, "dy"):
        batchnorm.backward(x, gamma, mean, std, x[:1], x, gamma, gamma, workspace=workspace(shape))
    with raises_naming(KernelError, "axes"):
        batchnorm.forward(x[0, 0], gamma, gamma, x[0, 0], mean, std, workspace=workspace(shape))
    with raises_naming(KernelError, 0):
        batchnorm.update_running(mean, std, mean, std, count=0)

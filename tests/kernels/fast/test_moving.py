"""What drops images, and what puts channels and rows elsewhere: against the oracle, which PyTorch's operators check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import channel_shuffle, drop_path, pad, permute_channels, prepend, take
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def both(module: Any, x: np.ndarray, y_shape: tuple[int, ...], **how: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, a gradient of it, and x's gradient, the outputs having been NaN."""
    y, dx, dy = np.full(y_shape, np.nan, np.float32), np.full_like(x, np.nan), drawn(*y_shape, seed=1)
    module.forward(x, y, **how)
    module.backward(dy, dx, **how)
    return y, dy, dx


@given(shape=SHAPES, probability=st.sampled_from([0.0, 0.3, 0.9]), seed=st.integers(0, 2**64 - 1))
@example((40, 3, 25, 31), 0.5, 7)  # several blocks an image
def test_drop_path(shape: tuple[int, ...], probability: float, seed: int) -> None:
    how: dict[str, Any] = {"probability": probability, "seed": seed, "layer": 3, "iteration": 2**32 + 1}
    x = drawn(*shape)
    y, dy, dx = both(drop_path, x, shape, **how)
    np.testing.assert_allclose(y, reference.drop_path_forward(x, **how), rtol=1e-6)
    np.testing.assert_allclose(dx, reference.drop_path_backward(dy, **how), rtol=1e-6)
    drop_path.forward(x, x, **how)
    assert x.tobytes() == y.tobytes()


def test_drop_path_drops_whole_images_at_its_rate_and_others_in_each_layer() -> None:
    x, kept = np.ones((4000, 2, 1, 1), np.float32), []
    for layer in (1, 2):
        y = np.empty_like(x)
        drop_path.forward(x, y, probability=0.25, seed=9, layer=layer, iteration=5)
        assert (y[:, 0] == y[:, 1]).all() and {*np.unique(y)} == {0, np.float32(4 / 3)}
        assert abs((y > 0).mean() - 0.75) < 0.03
        kept.append(y > 0)
    assert abs((kept[0] == kept[1]).mean() - (0.75**2 + 0.25**2)) < 0.05


@given(shape=SHAPES, groups=st.integers(1, 6))
@example((2, 6, 35, 41), 3)
def test_channel_shuffle(torch: Any, shape: tuple[int, ...], groups: int) -> None:
    shape = (shape[0], shape[1] * groups, *shape[2:])
    x = drawn(*shape)
    y, dy, dx = both(channel_shuffle, x, shape, groups=groups)
    np.testing.assert_array_equal(y, torch.nn.functional.channel_shuffle(torch.tensor(x), groups).numpy())
    np.testing.assert_array_equal(y, reference.channel_shuffle_forward(x, groups))
    np.testing.assert_array_equal(reference.channel_shuffle_forward(dx, groups), dy)
    np.testing.assert_array_equal(dx, reference.channel_shuffle_backward(dy, groups))


@given(shape=SHAPES, axis=st.sampled_from([1, 2]), data=st.data())
def test_take(shape: tuple[int, ...], axis: int, data: Any) -> None:
    start = data.draw(st.integers(0, shape[axis] - 1))
    count = data.draw(st.integers(1, shape[axis] - start))
    x = drawn(*shape)
    y, dy, dx = both(take, x, (*shape[:axis], count, *shape[axis + 1 :]), axis=axis, start=start)
    np.testing.assert_array_equal(y, reference.take_forward(x, count, axis, start))
    np.testing.assert_array_equal(dx, reference.take_backward(dy, shape, axis, start))


@given(shape=SHAPES, sides=st.tuples(*[st.integers(0, 3)] * 4), value=st.sampled_from([0.0, -1.5]))
@example((2, 3, 30, 33), (1, 2, 3, 0), 2.0)
def test_pad(shape: tuple[int, ...], sides: tuple[int, ...], value: float) -> None:
    top, left, bottom, right = sides
    x = drawn(*shape)
    y, dy, dx = both(pad, x, (*shape[:2], top + shape[2] + bottom, left + shape[3] + right), pad=sides, value=value)
    np.testing.assert_array_equal(y, reference.pad_forward(x, sides, value))
    np.testing.assert_array_equal(dx, reference.pad_backward(dy, sides))


@given(shape=SHAPES, data=st.data())
def test_permute_channels(shape: tuple[int, ...], data: Any) -> None:
    numbers = data.draw(st.permutations(range(shape[1])))
    order = np.array(numbers, np.int32)
    x, dy = drawn(*shape), drawn(*shape, seed=1)
    y, dx = np.full_like(x, np.nan), np.full_like(x, np.nan)
    permute_channels.forward(x, order, y)
    permute_channels.backward(dy, order, dx)
    np.testing.assert_array_equal(y, reference.permute_channels_forward(x, numbers))
    np.testing.assert_array_equal(dx, reference.permute_channels_backward(dy, numbers))
    permute_channels.backward(y, order, dx)
    np.testing.assert_array_equal(dx, x)


@given(shape=SHAPES)
@example((3, 5, 40, 31))  # several blocks a row
def test_prepend(shape: tuple[int, ...]) -> None:
    x, w = drawn(*shape), drawn(shape[1], 1)
    dy = drawn(*shape[:2], 1 + shape[2] * shape[3], 1, seed=1)
    y, dx, dw = (np.full_like(like, np.nan) for like in (dy, x, w))
    prepend.forward(x, w, y)
    prepend.backward(dy, dx, dw)
    np.testing.assert_array_equal(y, reference.prepend_forward(x, w))
    expected = reference.prepend_backward(dy, shape)
    np.testing.assert_array_equal(dx, expected[0])
    np.testing.assert_allclose(dw, expected[1], rtol=1e-5, atol=1e-6)
    alone = np.full_like(w, np.nan)
    prepend.backward(dy, None, alone)
    assert alone.tobytes() == dw.tobytes()


def test_what_cannot_be_is_refused() -> None:
    x = drawn(2, 6, 3, 3)
    with raises_naming(KernelError, "permute_channels.forward", "order", (3,), (6,)):
        permute_channels.forward(x, np.arange(3, dtype=np.int32), x)
    with raises_naming(KernelError, "permute_channels.backward", "order", "float32"):
        permute_channels.backward(x, drawn(6), x)
    with raises_naming(KernelError, "prepend.forward", "y", (2, 6, 3, 3), (2, 6, 10, 1)):
        prepend.forward(x, drawn(6, 1), x)
    with raises_naming(KernelError, "channel_shuffle.forward", (2, 6, 3, 3), 4, "groups"):
        channel_shuffle.forward(x, x, groups=4)
    with raises_naming(KernelError, "take.forward", 4, 3, 6):
        take.forward(x, drawn(2, 4, 3, 3), start=3)
    with raises_naming(KernelError, "take.backward", "axis", 3):
        take.backward(x, x, axis=3)
    with raises_naming(KernelError, "pad.forward", "y", (2, 6, 3, 3), (2, 6, 4, 3)):
        pad.forward(x, x, pad=(1, 0, 0, 0))
    with raises_naming(KernelError, "drop_path.forward", "probability", 1.0):
        drop_path.forward(x, x, probability=1.0, seed=1, layer=1, iteration=1)

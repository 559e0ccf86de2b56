"""Layer, group and instance normalisation: against NumPy and PyTorch over drawn shapes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import layernorm
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def blank(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


@st.composite
def cases(draw: Any) -> tuple[tuple[int, ...], int | None]:
    """A shape, and groups."""
    groups, channels = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    area = draw(st.lists(st.integers(1, 9), max_size=2))
    return (draw(st.integers(1, 3)), groups * channels, *area), draw(st.sampled_from([None, groups]))


def by_torch(torch: Any, x: Any, weights: Any, groups: int | None) -> Any:
    if groups is not None:
        return torch.nn.functional.group_norm(x, groups, *weights)
    return torch.nn.functional.layer_norm(x.movedim(1, -1), x.shape[1:2], *weights).movedim(-1, 1)


def run(x: Any, gamma: Any, beta: Any, dy: Any, groups: int | None) -> list[np.ndarray]:
    """y, mean, inverse_std, dx, dgamma, dbeta; the last two without gamma None."""
    kept = layernorm.Sets.of("", x.shape, groups).kept
    y, dx, mean, inverse_std = blank(*x.shape), blank(*x.shape), blank(*kept), blank(*kept)
    layernorm.forward(x, gamma, beta, y, mean, inverse_std, groups=groups)
    workspace = blank(layernorm.workspace_bytes(x.shape) // 4)
    slopes = [] if gamma is None else [blank(x.shape[1]), blank(x.shape[1])]
    layernorm.backward(x, gamma, mean, inverse_std, dy, dx, *slopes, groups=groups, workspace=workspace)
    layernorm.backward(x, gamma, mean, inverse_std, dy, dy, *slopes, groups=groups, workspace=workspace)
    assert dy.tobytes() == dx.tobytes()
    return [y, mean, inverse_std, dx, *slopes]


@given(case=cases(), affine=st.booleans())
@example(((2, 70, 9, 5), None), True)  # several blocks of an image, and more values than threads
@example(((3, 6, 41, 37), 2), True)  # more values than a block takes at once, and several chunks
@example(((2, 300), None), True)
def test_forward_and_backward(torch: Any, case: tuple[tuple[int, ...], int | None], affine: bool) -> None:
    """Against the oracle, and that against PyTorch in double precision."""
    shape, groups = case
    x, dy = 2 * drawn(*shape) + np.float32(3), drawn(*shape, seed=1)
    gamma, beta = (drawn(shape[1], seed=2), drawn(shape[1], seed=3)) if affine else (None, None)
    expected = reference.layernorm_forward(x, gamma, beta, groups)
    slopes = reference.layernorm_backward(x, gamma, dy, groups)
    right = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    weights = [None if w is None else torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in (gamma, beta)]
    if shape[1] * np.prod(shape[2:]) > (groups or 1) or groups is None:  # PyTorch refuses a single value
        made = by_torch(torch, right, weights, groups)
        made.backward(torch.tensor(dy, dtype=torch.float64))
        np.testing.assert_allclose(expected[0], made.detach().numpy(), rtol=1e-5, atol=1e-5)
        for ours, theirs in zip(slopes, [right, *(w for w in weights if w is not None)], strict=True):
            np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=1e-4, atol=1e-5)
    scale = [1, 1, expected[2].max(), expected[2].max(), 1, 1]
    for ours, theirs, size in zip(run(x, gamma, beta, dy, groups), [*expected, *slopes], scale, strict=False):
        np.testing.assert_allclose(ours, theirs.reshape(ours.shape), rtol=1e-4, atol=1e-4 * max(1, size))


@given(area=st.sampled_from([16, 63, 257, 1521]), channels=st.integers(1, 3), affine=st.booleans())
@example(area=700, channels=2, affine=True)  # a piece of four values a thread, and channels that are no whole piece
def test_channel_by_channel_has_the_bits_of_all_at_once(area: int, channels: int, affine: bool) -> None:
    x, dy = drawn(5, 2 * channels, area), drawn(5, 2 * channels, area, seed=1)
    gamma, beta = (drawn(2 * channels, seed=2), drawn(2 * channels, seed=3)) if affine else (None, None)
    found = run(x, gamma, beta, dy.copy(), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layernorm, "by_channel", lambda where, sets: False)
        expected = run(x, gamma, beta, dy.copy(), 2)
    for ours, simple in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, simple)


@pytest.mark.parametrize(("where", "groups", "area", "chosen"), [
    ("cpu", 2, 16, True), ("cpu", 2, 15, False), ("gpu", 2, 16, False), ("cpu", None, 16, False),
])  # fmt: skip
def test_a_cpu_takes_the_channels_of_groups_one_by_one(where: str, groups: int | None, area: int, chosen: bool) -> None:
    assert layernorm.by_channel(where, layernorm.Sets.of("", (3, 4, area), groups)) == chosen


def test_what_cannot_be_is_refused() -> None:
    x, gamma, kept = drawn(2, 6, 3, 3), drawn(6), drawn(2, 9)
    with raises_naming(KernelError, "layernorm.forward", 6, "channels", 4, "groups"):
        layernorm.forward(x, gamma, gamma, x, kept, kept, groups=4)
    with raises_naming(KernelError, "layernorm.forward", "mean", (2, 9), (2, 3)):
        layernorm.forward(x, gamma, gamma, x, kept, kept, groups=3)
    with raises_naming(KernelError, "layernorm.forward", "gamma, beta"):
        layernorm.forward(x, gamma, None, x, kept, kept)
    with raises_naming(KernelError, "layernorm.backward", "workspace", 0, 48):
        layernorm.backward(x, gamma, kept, kept, x, x, gamma, gamma)

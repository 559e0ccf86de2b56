"""Attention: any workspace gives the same bits, large numbers, and masked tiles; `test_plain` compares its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.checks import reference
from kernels.fast import attention
from kernels.targets.launch import bind

#: Images, heads, heads of keys and values, channels of a head, queries, keys, causal, one map.
Case = tuple[int, int, int, int, int, int, bool, bool]
CASES: tuple[Case, ...] = (
    (2, 3, 3, 7, 33, 33, False, True),
    (2, 16, 4, 2, 70, 70, True, True),
    (2, 4, 2, 3, 7, 150, False, False),
)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def made(case: Case) -> tuple[list[np.ndarray], np.ndarray, dict[str, Any]]:
    """Inputs, dy and options."""
    images, heads, groups, width, queries, keys, causal, packed = case
    channels = ((heads + 2 * groups, queries),) if packed else ((heads, queries), (groups, keys), (groups, keys))
    inputs = [drawn(images, n * width, tokens, 1, seed=i) for i, (n, tokens) in enumerate(channels)]
    how = {"heads": heads, "kv_heads": groups, "causal": causal}
    return inputs, drawn(images, heads * width, queries, 1, seed=9), how


def run(case: Case, images: int | None = None) -> list[np.ndarray]:
    """y and the gradients."""
    inputs, dy, how = made(case)
    shapes = [x.shape for x in inputs]
    y, dxs = np.full_like(dy, np.nan), [np.full_like(x, np.nan) for x in inputs]
    forward, backward = (
        np.full(attention.workspace_bytes(pass_, shapes, **how, images=images) // 4, np.nan, np.float32)
        for pass_ in attention.MATRICES
    )
    attention.forward(inputs, y, **how, workspace=forward)
    attention.backward(inputs, dy, dxs, **how, workspace=backward)
    return [y, *dxs]


def close(ours: list[np.ndarray], theirs: list[Any], room: float = 2e-5) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=room * max(1e-3, float(np.abs(other).max())))


@pytest.mark.parametrize("case", CASES)
def test_the_workspace_changes_no_bit(case: Case) -> None:
    assert [one.tobytes() for one in run(case, 1)] == [one.tobytes() for one in run(case)]


def test_less_than_an_images_heads_will_do_and_gives_the_same_bits() -> None:
    inputs, dy, how = made(case := (2, 3, 3, 2, 9, 9, False, True))
    y = np.full_like(dy, np.nan)
    attention.forward(inputs, y, **how, workspace=np.full(81, np.nan, np.float32))
    assert y.tobytes() == run(case)[0].tobytes()


def test_large_numbers_do_not_overflow() -> None:
    inputs, dy, how = made((1, 1, 1, 4, 6, 6, True, True))
    x, y = 100 * inputs[0], np.full_like(dy, np.nan)
    attention.forward([x], y, **how, workspace=np.empty(36, np.float32))
    close([y], [reference.attention_forward([x], **how)])


def test_masked_tiles_are_skipped() -> None:
    """Of 1024 tokens in eight tiles a little more than half of the squares is computed."""
    shape = attention.AttentionShape.of("test", [(2, 12, 1024, 1)], 2, None, True)
    assert shape.tiled_pairs == 36 / 64 * 1024**2
    for causal, products in ((False, 1), (True, 8)):
        x, y = np.empty((2, 12, 1024, 1), np.float32), np.empty((2, 4, 1024, 1), np.float32)
        workspace = np.empty(attention.workspace_bytes("forward", [x.shape], heads=2) // 4, np.float32)
        launched = bind(attention.forward, [x], y, heads=2, causal=causal, workspace=workspace)
        assert len(launched) == 4 * (2 * products + 1), "a CPU takes each head by itself, whose P fills its cache"

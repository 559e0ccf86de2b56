"""Attention with its probabilities as a map, in `kernels.fast.scores` and `kernels.fast.mix`: the bits of attention."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.fast import attention, mix, scores
from tests.kernels.fast.test_attention import close, drawn

pytestmark = pytest.mark.ptx

#: Images, heads, channels of a head, tokens, causal.
Case = tuple[int, int, int, int, bool]
CASES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 7), st.integers(1, 40), st.booleans())
LONG: tuple[Case, ...] = ((2, 3, 5, 150, True), (1, 2, 8, 257, True), (1, 16, 4, 70, False))


def blank(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def run(case: Case) -> dict[str, np.ndarray]:
    """All that both layers make of drawn queries, keys, values and dy, in maps that were not a number before."""
    images, heads, width, tokens, causal = case
    x, values = drawn(images, 2 * heads * width, tokens, 1), drawn(images, heads * width, tokens, 1, seed=1)
    dy, p = drawn(*values.shape, seed=2), blank(images, heads, tokens, tokens)
    y, dp, dx, dvalues = blank(*values.shape), blank(*p.shape), blank(*x.shape), blank(*values.shape)
    scores.forward(x, p, heads=heads, causal=causal)
    scores.softmax(p, causal=causal)
    mix.forward(p, values, y, causal=causal)
    mix.backward(p, values, dy, dp, dvalues, causal=causal)
    given = dp.copy()
    scores.softmax_backward(p, dp, causal=causal)
    scores.backward(x, dp, dx, heads=heads, causal=causal)
    return {"x": x, "values": values, "dy": dy, "p": p, "y": y, "dp": given, "dx": dx, "dvalues": dvalues}


@given(case=CASES)
@example(LONG[0])
@settings(deadline=None)
def test_the_bits_are_those_of_attention(case: Case) -> None:
    """Which has the same as workspace."""
    images, heads, width, tokens, causal = case
    made = run(case)
    assert np.isfinite(made["dp"]).all() and not (causal and np.triu(made["p"], 1).any())
    both = made["x"].reshape(images, heads, 2 * width, tokens)
    packed = np.concatenate([both, made["values"].reshape(images, heads, width, tokens)], axis=2)
    x = packed.reshape(images, -1, tokens, 1)
    y, dx = blank(*made["y"].shape), blank(*x.shape)
    space = blank(attention.workspace_bytes("backward", [x.shape], heads=heads) // 4)
    attention.forward([x], y, heads=heads, causal=causal, workspace=space)
    attention.backward([x], made["dy"], [dx], heads=heads, causal=causal, workspace=space)
    parts = dx.reshape(images, heads, 3 * width, tokens)
    assert y.tobytes() == made["y"].tobytes()
    assert parts[:, :, : 2 * width].tobytes() == made["dx"].tobytes()
    assert parts[:, :, 2 * width :].tobytes() == made["dvalues"].tobytes()


def test_more_heads_than_one_launch_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run((3, 4, 2, 5, True))
    monkeypatch.setattr(attention, "MOST", 5)
    parts = run((3, 4, 2, 5, True))
    assert {name: one.tobytes() for name, one in whole.items()} == {name: one.tobytes() for name, one in parts.items()}


def test_queries_of_other_tokens_than_the_keys() -> None:
    """Without a mask, and with tokens on two axes."""
    p, values, dy = (np.abs(drawn(2, 3, 4, 6)), drawn(2, 6, 2, 3), drawn(2, 6, 4, 1))
    y, dp, dvalues = blank(2, 6, 4, 1), blank(*p.shape), blank(*values.shape)
    mix.forward(p, values, y)
    mix.backward(p, values, dy, dp, dvalues)
    close([y, dp, dvalues], [reference.mix_forward(p, values), *reference.mix_backward(p, values, dy)])

"""AdamW over several steps beside PyTorch's, its first step, and a norm that is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels import adamw, clip

pytestmark = pytest.mark.ptx


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_as_in_pytorch(torch: Any, decay: float) -> None:
    """From zeros, with gradients of very different sizes; no worse than PyTorch in single precision."""
    w, mean, square = normal(7, 150), np.zeros((7, 150), np.float32), np.zeros((7, 150), np.float32)
    exact, single = (torch.nn.Parameter(torch.tensor(w, dtype=one)) for one in (torch.float64, torch.float32))
    optimisers = [torch.optim.AdamW([one], lr=0.01, weight_decay=decay) for one in (exact, single)]
    for step in range(20):
        dw = normal(7, 150, seed=step + 1) * np.float32(10.0 ** (step % 5 - 2))
        exact.grad, single.grad = torch.tensor(dw, dtype=torch.float64), torch.tensor(dw)
        for one in optimisers:
            one.step()
        adamw.update(w, dw, mean, square, iteration=step, rate=0.01, decay=decay)
    wanted = exact.detach().numpy()
    assert np.abs(w - wanted).max() <= 2 * np.abs(single.detach().numpy() - wanted).max()


def test_the_first_step_divides_a_gradient_by_its_own_size() -> None:
    """So the averages' shares, 1 - beta, have to be as precise as the corrections of their zeros."""
    w, mean, square = (np.zeros(150, np.float32) for _ in range(3))
    dw = normal(150) + np.sign(normal(150))  # epsilon is nothing beside them
    adamw.update(w, dw, mean, square, iteration=0, rate=1.0)
    np.testing.assert_allclose(w, -np.sign(dw), rtol=5e-7)
    np.testing.assert_allclose(square, (1 - 0.999) * dw.astype(np.float64) ** 2, rtol=3e-7)


def test_a_norm_that_is_not_finite_is_seen() -> None:
    dw, norm = np.ones(3, np.float32), np.array([np.nan], np.float32)
    clip.apply(norm, dw, max_norm=1.0)
    assert np.isnan(dw).all()

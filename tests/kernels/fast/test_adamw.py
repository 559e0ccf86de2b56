"""AdamW over several steps beside PyTorch's, its first step, and a norm that is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels import adamw


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

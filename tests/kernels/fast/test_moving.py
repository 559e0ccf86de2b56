"""What drops images, and what puts channels and rows elsewhere: against the oracle, which PyTorch's operators check."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import channel_shuffle, drop_path, pad, permute_channels, prepend, take
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def test_drop_path_drops_whole_images_at_its_rate_and_others_in_each_layer() -> None:
    x, kept = np.ones((4000, 2, 1, 1), np.float32), []
    for layer in (1, 2):
        y = np.empty_like(x)
        drop_path.forward(x, y, probability=0.25, seed=9, layer=layer, iteration=5)
        assert (y[:, 0] == y[:, 1]).all() and {*np.unique(y)} == {0, np.float32(4 / 3)}
        assert abs((y > 0).mean() - 0.75) < 0.03
        kept.append(y > 0)
    assert abs((kept[0] == kept[1]).mean() - (0.75**2 + 0.25**2)) < 0.05


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

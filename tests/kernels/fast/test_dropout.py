"""Dropout: masks that follow from their coordinates alone; `test_plain` compares them with the published generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.checks import reference
from kernels.fast import dropout
from kernels.targets import cpu

SEED = 123456789012345
OPTIONS: dict[str, Any] = {"probability": 0.3, "seed": SEED, "layer": 7, "iteration": 3}


def mask(shape: int | tuple[int, ...], **changes: Any) -> np.ndarray:
    """Which elements the kernel keeps."""
    y = np.full(shape, np.nan, np.float32)
    dropout.forward(np.ones(shape, np.float32), y, **{**OPTIONS, **changes})
    return y != 0


@pytest.mark.parametrize("element", [700, 1100])  # in a full tile, and in the ragged one after it
def test_a_word_just_at_the_threshold_keeps_its_element(element: int) -> None:
    group, word = element // 1024 * 256 + element % 256, element // 256 % 4
    threshold = int(reference.philox([group, 7, 3, 0], [SEED % 2**32, SEED // 2**32])[word])
    assert mask(1500, probability=threshold / 2**32)[element]
    assert not mask(1500, probability=(threshold + 1) / 2**32)[element]


def test_a_mask_can_be_made_again_and_does_not_depend_on_the_launch() -> None:
    """An element's fate follows from its index, not from how many there are, their shape or the order of threads."""
    long = mask(10_000)
    assert np.array_equal(mask(10_000), long)
    for shape in ((1,), (255,), (1025,), (3, 1001), (2, 3, 11, 13)):
        assert np.array_equal(mask(shape).ravel(), long[: np.prod(shape)])
    for order in ("forward", "reverse", 5):
        with cpu.checked(order):
            assert np.array_equal(mask(1300), long[:1300])

"""Dropout: the published random numbers, masks that follow from their four coordinates alone, and their statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.fast import dropout
from kernels.fast.dropout import philox
from kernels.targets import cpu
from kernels.targets.launch import Ints, Kernel, launch

pytestmark = pytest.mark.ptx

SEED = 123456789012345
OPTIONS: dict[str, Any] = {"probability": 0.3, "seed": SEED, "layer": 7, "iteration": 3}


def mask(shape: int | tuple[int, ...], **changes: Any) -> np.ndarray:
    """Which elements the kernel keeps."""
    y = np.full(shape, np.nan, np.float32)
    dropout.forward(np.ones(shape, np.float32), y, **{**OPTIONS, **changes})
    return y != 0


def philox_words(given: Ints, words: Ints) -> None:
    """As a kernel: the four words for a counter of four and a key of two."""
    c0, c1, c2, c3 = philox(
        np.uint32(given[0]),
        np.uint32(given[1]),
        np.uint32(given[2]),
        np.uint32(given[3]),
        np.uint32(given[4]),
        np.uint32(given[5]),
    )
    words[0] = np.int32(c0)
    words[1] = np.int32(c1)
    words[2] = np.int32(c2)
    words[3] = np.int32(c3)


PHILOX_WORDS = Kernel(philox_words, "philox_words", (1, 1, 1), {})  # not declared: it is no kernel of the package


@given(st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6))
def test_philox_is_the_references(numbers: list[int]) -> None:
    """test_reference.py holds the reference's generator to the published words."""
    words = np.zeros(4, np.int32)
    launch(PHILOX_WORDS, 1, np.array(numbers, np.uint32).view(np.int32), words)
    assert words.view(np.uint32).tolist() == reference.philox(numbers[:4], numbers[4:]).tolist()


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


@pytest.mark.parametrize(
    "change",
    [{"seed": SEED + 1}, {"seed": SEED + 2**32}, {"layer": 8}, {"iteration": 4}, {"iteration": 3 + 2**32}],
)
def test_masks_of_other_coordinates_are_independent(change: dict[str, int]) -> None:
    check_independent(mask(100_000), mask(100_000, **change))


@pytest.mark.parametrize("distance", [1, 4, 256, 512, 1024])
def test_neighbours_are_independent(distance: int) -> None:
    """1024 apart the generator's counter differs, 256 and 512 apart the word of one counter."""
    kept = mask(100_000)
    check_independent(kept[:-distance], kept[distance:])


def check_independent(a: np.ndarray, b: np.ndarray) -> None:
    """Both kept as often as chance has it, within five standard deviations."""
    both, n, p = np.count_nonzero(a & b), len(a), 0.7 * 0.7
    assert abs(both - n * p) < 5 * np.sqrt(n * p * (1 - p))

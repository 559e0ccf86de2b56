"""Packing: a round trip is exact; nothing is written elsewhere; the bytes taken are the bytes announced."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.vdnnpp.compression import stored_bytes
from refimpl.vdnnpp.packing import Packed, PackingError, packed_limit
from tests.messages import raises_naming

pytestmark = pytest.mark.vdnnpp

GUARD = 64  #: bytes before and after, which may not be touched
ODD = (-0.0, float("nan"), -1.5, float("inf"), float("-inf"), 1e-45, -1e-45)


def plainly(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The slow twin: a mask for every 32 numbers, and the numbers whose bits are not all zero, one after another."""
    bits = values.view(np.uint32)
    masks = [sum(1 << b for b, one in enumerate(bits[w : w + 32]) if one) for w in range(0, len(bits) // 32 * 32, 32)]
    return np.array(masks, np.uint32), bits[bits != 0]


def there_and_back(values: np.ndarray) -> int:
    """Pack and unpack between guarded regions; the bytes that the packed map takes."""
    nbytes = values.nbytes
    limit = packed_limit(nbytes)
    around = np.full(GUARD + limit + GUARD, 0xAB, np.uint8)
    here = np.full(GUARD + nbytes + GUARD, 0xCD, np.uint8)
    here[GUARD : GUARD + nbytes] = values.view(np.uint8)
    place = Packed(around[GUARD:], nbytes)
    stored = place.pack(here[GUARD : GUARD + nbytes])
    assert here[GUARD : GUARD + nbytes].tobytes() == values.tobytes()  # packing only reads
    here[GUARD : GUARD + nbytes] = 0xEE
    place.unpack(here[GUARD : GUARD + nbytes])
    assert here[GUARD : GUARD + nbytes].tobytes() == values.tobytes()
    for region, what in ((around, 0xAB), (here, 0xCD)):
        assert (region[:GUARD] == what).all() and (region[-GUARD:] == what).all()
    assert stored <= limit
    nonzero = np.count_nonzero(values.view(np.uint32))
    rest = len(values) % 32
    assert place.density <= (nonzero + rest) / len(values) + 1e-12
    assert place.density >= nonzero / len(values) - 1e-12
    return stored


@st.composite
def maps(draw: st.DrawFn) -> np.ndarray:
    count = draw(st.one_of(st.integers(1, 600), st.integers(16_000, 18_000)))  # small ones are packed by one thread
    density = draw(st.sampled_from((0.0, 0.02, 0.3, 0.5, 0.55, 0.7, 0.97, 1.0)))
    drawn = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    values = drawn.standard_normal(count, np.float32)
    values[drawn.random(count) >= density] = 0
    for value in draw(st.lists(st.sampled_from(ODD), max_size=5)):
        values[draw(st.integers(0, count - 1))] = value
    return values


@pytest.mark.slow
@given(maps())
@settings(max_examples=60)
def test_what_is_packed_comes_back_to_the_bit(values: np.ndarray) -> None:
    there_and_back(values)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 63, 64, 65, 257, 2047, 2048, 2049, 16_415])
def test_the_extremes_at_every_length(count: int) -> None:
    zeros = np.zeros(count, np.float32)
    there_and_back(zeros)
    there_and_back(np.ones(count, np.float32))
    for where in {0, count // 2, count - 1}:
        one = zeros.copy()
        one[where] = -0.0  # not a zero by its bits: its sign is restored too
        there_and_back(one)


@pytest.mark.parametrize("count", [2048, 10 * 2048, 64 * 2048])
@pytest.mark.parametrize("every", [1, 3, 8, 32])
def test_what_is_taken_is_counted_in_the_authors_slots(count: int, every: int) -> None:
    """Non-zeros spread evenly over maps whose eighths are whole words: the slots that the plan's formula says."""
    values = np.zeros(count, np.float32)
    worker = count // 8
    for first in range(0, count, worker):
        values[first : first + worker : every] = 1
    assert there_and_back(values) == stored_bytes(count, np.count_nonzero(values) / count)


@pytest.mark.parametrize("count", [1, 32, 1000, 20_000])
def test_arrays_that_are_too_small_are_refused(count: int) -> None:
    """The compiled loops check no index: they would write somewhere else."""
    values = np.ones(count, np.float32).view(np.uint8)
    limit = packed_limit(values.nbytes)
    with raises_naming(PackingError, limit, limit - 4):
        Packed(np.zeros(limit - 4, np.uint8), values.nbytes)
    place = Packed(np.zeros(limit, np.uint8), values.nbytes)
    for other in (values[:-4], np.zeros(values.nbytes + 4, np.uint8)):
        for work in (place.pack, place.unpack):
            with raises_naming(PackingError, other.nbytes):
                work(other)

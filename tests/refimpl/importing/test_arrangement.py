"""Views on arrangements beside the same views on arrays of indices, which NumPy executes."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from refimpl.importing.arrangement import CHANNEL, IMAGE, POSITION, Arrangement, Mixed


def indices(places: Arrangement, shape: tuple[int, ...]) -> np.ndarray:
    """The number of each place in a layer of this shape."""
    size = prod(shape[2:])
    found = places.numbers(range(len(places.axes)), image=shape[1] * size, channel=size, position=1)
    return found.reshape(places.shape)


def drawn_view(random: np.random.Generator, places: Arrangement, array: np.ndarray) -> tuple[Arrangement, np.ndarray]:
    """One view of both; a reshape merges two axes, or cuts one."""
    rank = array.ndim
    match random.choice(["permute", "part", "reshape", "expand"], p=[0.35, 0.2, 0.4, 0.05]):
        case "permute":
            order = [int(axis) for axis in random.permutation(rank)]
            return places.permuted(order), array.transpose(order)
        case "part":
            axis = int(random.integers(rank))
            start = int(random.integers(array.shape[axis]))
            count = int(random.integers(1, array.shape[axis] - start + 1))
            return places.part(axis, start, count), array.take(range(start, start + count), axis)
        case "expand":
            return places.expanded((2, *array.shape)), np.broadcast_to(array, (2, *array.shape))
    if rank > 3:
        place = int(random.integers(1, rank))
        shape = [*array.shape[: place - 1], array.shape[place - 1] * array.shape[place], *array.shape[place + 1 :]]
    else:
        place = int(random.integers(rank))
        size = array.shape[place]
        inner = int(random.choice([number for number in range(1, size + 1) if size % number == 0]))
        shape = [*array.shape[:place], size // inner, inner, *array.shape[place + 1 :]]
    return places.reshaped(shape), array.reshape(shape)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_views_move_numbers_as_numpy_moves_their_indices(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = [(2, 6, 4, 6), (3, 8, 12), (1, 12, 2, 2), (4, 6), (2, 1, 4, 4)][seed % 5]
    places, array = Arrangement.of(shape), np.arange(prod(shape)).reshape(shape)
    done = 0
    for _ in range(12):
        if array.size > 5000:
            break
        try:
            places, array = drawn_view(random, places, array)
        except Mixed:
            continue
        done += 1
        assert places.shape == array.shape
        np.testing.assert_array_equal(indices(places, shape), array)
    assert done > 2


def test_a_view_that_mixes_axes_is_refused() -> None:
    places = Arrangement.of((2, 6, 5, 5))
    with pytest.raises(Mixed, match=r"\[2, 6, 5, 5\].*\[2, 15, 10\]"):
        places.reshaped((2, 15, 10))
    with pytest.raises(Mixed, match="mix"):
        places.permuted((0, 2, 1, 3)).reshaped((2, 30, 5)).part(1, 3, 6)


def test_what_operators_ask() -> None:
    maps = Arrangement.of((2, 6, 4, 4))
    tokens = maps.reshaped((2, 6, 16)).permuted((0, 2, 1))
    assert tokens.runs_through(2) == {CHANNEL} and tokens.in_order(CHANNEL, 6, [2])
    assert tokens.reshaped((32, 6)).runs_through(0) == {IMAGE, POSITION}
    assert maps.part(1, 2, 3).range(CHANNEL) == (2, 3) and maps.part(2, 1, 2).range(POSITION) == (4, 8)
    assert maps.part(3, 1, 2).range(POSITION) is None
    heads = tokens.part(2, 2, 4).reshaped((2, 16, 2, 2)).permuted((0, 2, 1, 3))
    np.testing.assert_array_equal(heads.numbers([1, 3], channel=1), [2, 3, 4, 5])
    shuffled = maps.reshaped((2, 2, 3, 4, 4)).permuted((0, 2, 1, 3, 4)).reshaped((2, 6, 4, 4))
    np.testing.assert_array_equal(shuffled.numbers([1], channel=1), [0, 3, 1, 4, 2, 5])
    assert shuffled.flat() != maps.flat() == tokens.permuted((0, 2, 1)).flat()

"""Blocks placed by stretches of time have the addresses that placing them in turn gives, to the byte."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.combined import placing
from refimpl.combined.fixed_pool import FixedAddressesPool
from refimpl.combined.placing import Life, Stretches, in_turn
from refimpl.memory import UNLIMITED


def drawn_lives(drawn: random.Random, blocks: int, longest: int, sizes: int) -> dict[int, Life]:
    """Lives that begin at some of `blocks` positions and last for up to `longest`."""
    found = {}
    for block in range(blocks):
        begin = drawn.randrange(blocks)
        found[block] = Life(begin, begin + drawn.randint(1, longest), 512 * drawn.randint(1, sizes))
    return found


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ((0, 2), (2, 1), True), ((2, 2), (1, 1), True), ((2, 1), (3, 1), True),
        ((0, 2), (1, 1), False), ((2, 1), (1, 2), False), ((1, 1), (1, 1), False), ((1, 1), (3, 2), False),
    ],
)  # fmt: skip
def test_a_fixed_place_that_overlaps_a_block_or_the_end_is_refused(
    first: tuple[int, int], second: tuple[int, int], fits: bool
) -> None:
    """Address and size in units, in a pool of four of them."""
    places = [(512 * address, 512 * units) for address, units in (first, second)]
    pool = FixedAddressesPool(4 * 512, 512, places, UNLIMITED)
    assert pool.allocate(places[0][1]) == places[0][0]
    assert pool.allocate(places[1][1]) == (places[1][0] if fits else None)


@given(st.randoms(use_true_random=False), st.integers(1, 90), st.integers(1, 100), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=60)
def test_stretches_place_drawn_blocks_as_in_turn(
    drawn: random.Random, blocks: int, longest: int, sizes: int, stretch: int
) -> None:
    known = drawn_lives(drawn, blocks, longest, sizes)
    order = drawn.sample(list(known), drawn.randint(1, blocks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "STRETCH", stretch)
        assert Stretches(known).placed(order) == in_turn(known, order)

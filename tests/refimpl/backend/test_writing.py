"""What is asked of a network that writes or fills in, on one whose probabilities are written down."""

from __future__ import annotations

from collections import Counter
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from refimpl.backend import RunError
from refimpl.backend.writing import BYTES, fill_in, write_on
from refimpl.names.networks import tiny_bert, tiny_gpt
from tests.messages import raises_naming

TOKENS = 4


class Counting:
    """A trainer whose network is sure that 1 comes after a token, and a half as sure of 2 after it.

    At the place of a token t the probabilities are t + 1: 2/3, t + 2: 1/3, and one beyond all bytes is above them.
    """

    def __init__(self, network: Any) -> None:
        self.network = network
        self.seen: list[list[int]] = []

    def evaluate(self, windows: np.ndarray, labels: np.ndarray) -> Any:
        assert windows.dtype == np.int32 and labels.shape == windows.shape == (1, TOKENS)
        self.seen.append(windows[0].tolist())
        found = np.zeros((1, 300, TOKENS, 1), np.float32)
        for place, token in enumerate(windows[0]):
            found[0, [token % 256 + 1, token % 256 + 2], place, 0] = 2 / 3, 1 / 3
        found[0, BYTES + 1] = 1.0
        return SimpleNamespace(predictions=found)


@cache
def network(make: Any) -> Any:
    return make(batch=1, tokens=TOKENS, width=32)


def gpt() -> Any:
    return Counting(network(tiny_gpt))


def bert() -> Any:
    return Counting(network(tiny_bert))


def test_the_most_probable_byte_is_written_after_the_last_one_that_a_window_shows() -> None:
    trainer = gpt()
    assert write_on(trainer, b"\x05\x07", 4) == b"\x08\x09\x0a\x0b"
    assert trainer.seen == [[5, 7, 0, 0], [5, 7, 8, 0], [5, 7, 8, 9], [7, 8, 9, 10]]
    assert write_on(gpt(), b"abcdefg", 1) == b"h" and write_on(gpt(), b"a", 0) == b""


@pytest.mark.parametrize(("temperature", "second"), [(1.0, 1 / 3), (0.5, 1 / 5), (2.0, 1 / (1 + 2**0.5))])
def test_draws_follow_the_probabilities_raised_to_one_over_the_temperature(temperature: float, second: float) -> None:
    """Two thirds and one third: to the power of 2 they are 4 to 1, to the power of a half √2 to 1."""
    drawn = Counter(write_on(gpt(), b"\x01", 1, temperature, seed)[0] for seed in range(600))
    assert set(drawn) == {2, 3}
    assert drawn[3] / 600 == pytest.approx(second, abs=0.06)


def test_masked_places_alone_are_filled_in() -> None:
    trainer = bert()
    masked = np.array([256, 65, 256, 9], np.int32)  # the mask is the word after all bytes
    assert fill_in(trainer, masked).tolist() == [1, 65, 1, 9]
    assert trainer.seen == [[256, 65, 256, 9]]


def test_each_network_is_refused_what_the_other_one_does() -> None:
    with raises_naming(RunError, "tiny-bert", "masked"):
        write_on(bert(), b"a", 1)
    with raises_naming(RunError, "tiny-gpt", "next"):
        fill_in(gpt(), np.zeros(TOKENS, np.int32))

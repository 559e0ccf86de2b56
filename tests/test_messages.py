"""A part of a message is found as a word of its own, and an error without it is a failure."""

from __future__ import annotations

import pytest

from tests.messages import lacks, raises_naming


def test_parts_are_words_of_their_own() -> None:
    message = "conv.forward: dx has shape (2, 31), expected 'y_2'"
    assert lacks(message, "conv.forward", "dx", (2, 31), 31, "y_2") == []
    inside = ["forward", "conv", "x", "3", "y", "DX"]
    assert lacks(message, *inside) == inside


@pytest.mark.parametrize("message", ["x has 3 elements", "y has 4\nelements"])
def test_another_message_fails(message: str) -> None:
    with pytest.raises(AssertionError), raises_naming(ValueError, "y", 4):
        raise ValueError(message)
    with raises_naming(ValueError, "x", 3):
        raise ValueError("of 3, none is x")

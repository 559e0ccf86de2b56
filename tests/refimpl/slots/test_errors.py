"""Sizes for people, and the hint that is looked for once, when it is read."""

from __future__ import annotations

import pytest

from refimpl.planner import DoesNotFit
from refimpl.text import size


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (12 << 30, "12 GiB"),
        (411041792, "392 MiB"),
    ],
)
def test_sizes_are_written_for_people(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


def test_a_hint_is_looked_for_once_and_only_when_it_is_read() -> None:
    looked: list[int] = []

    def hint() -> str:
        looked.append(1)
        return "take less"

    error = DoesNotFit(None, "conv1", 2, 1, 1, 1, {})
    error.hint = hint
    assert not looked
    assert str(error).endswith(". take less") and str(error).endswith(". take less") and len(looked) == 1

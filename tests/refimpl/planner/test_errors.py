"""Sizes for people."""

from __future__ import annotations

import pytest

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

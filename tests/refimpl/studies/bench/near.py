"""Texts with the same words, and numbers that differ by no more than what another processor's rounding does."""

from __future__ import annotations

import re

import pytest

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")


def is_near(found: str, stored: str, within: float = 0.01) -> bool:
    """Whether the texts are the same but for `within` of each number, or for a number that rounding alone makes."""
    numbers, expected = ([float(one) for one in NUMBER.findall(text)] for text in (found, stored))
    return NUMBER.sub("#", found) == NUMBER.sub("#", stored) and numbers == pytest.approx(
        expected, rel=within, abs=1e-6
    )

"""Budgets as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from refimpl.names.budgets import UNLIMITED, BudgetError, Share, parse, several


@pytest.mark.parametrize(
    ("budget", "means"),
    [
        ("12GiB", 12 << 30),
        ("12 gib", 12 << 30),
        ("512MiB", 512 << 20),
        ("1.5K", 1536),
        ("3.5 GB", 3_500_000_000),
        ("3.5e", None),
        ("12g", 12 << 30),
        ("1,073,741,824", 1 << 30),
        ("1_073_741_824 bytes", 1 << 30),
        (1 << 30, 1 << 30),
        ("0.4", Share(0.4)),
        (".4", Share(0.4)),
        ("40%", Share(0.4)),
        ("1.0", Share(1.0)),
        (0.4, Share(0.4)),
        (Share(1.2), Share(1.2)),
        ("9" * 400 + "GiB", UNLIMITED),
        ("9" * 5000, UNLIMITED),
        ("1EiB", UNLIMITED),
        ("2PiB", 2 << 50),
        ("3 PB", 3 * 10**15),
        (10**30, UNLIMITED),
    ],
)
def test_what_a_budget_means(budget: Any, means: Any) -> None:
    if means is None:
        with pytest.raises(BudgetError):
            parse(budget)
    else:
        assert parse(budget) == means


@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        (None, [None]),
        ("12GiB", ["12GiB"]),
        ("8GiB,12GiB", ["8GiB", "12GiB"]),
        ("0.4,0.85", ["0.4", "0.85"]),
        ("40%, 1.125", ["40%", " 1.125"]),
        ("12,000,000", ["12,000,000"]),
        ("12,000,000,8GiB", ["12,000,000", "8GiB"]),
        ("8GiB,", ["8GiB", ""]),
    ],
)
def test_several_budgets_have_commas_between_them(text: str | None, budgets: list[str | None]) -> None:
    assert several(text) == budgets


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ("twelve", "a budget of 'twelve' is not understood; give 12GiB"),
        ("", "is not understood"),
        ("12 GiB please", "is not understood"),
        ("12GiBB", "is not understood"),
        ("-3", "leaves nothing to train with"),
        ("-3GiB", "leaves nothing to train with"),
        ("0", "leaves nothing to train with"),
        ("0.0", "leaves nothing to train with"),
        (0, "leaves nothing to train with"),
        ("-0.4", "leaves nothing to train with"),
        (float("nan"), "leaves nothing to train with"),
        (float("inf"), "is a share of what the baseline needs"),
        ("12", "a budget of 12 would be 12 bytes; give a unit, as in 12GiB"),
        ("1B", "a budget of 1B would be 1 byte; give a unit, as in 1GiB"),
        ("3.5", "for bytes give a unit, as in 3.5GiB"),
        ([], "a budget of [] is not understood"),
        ("-" + "9" * 5000, "leaves nothing to train with"),
        ("-1GiB", "a budget of -1GiB leaves nothing to train with"),
        (-(10**500), "a budget of that many bytes leaves nothing to train with"),
        (True, "a budget of True is not understood"),
    ],
)
def test_what_is_no_budget_is_one_line(budget: Any, says: str) -> None:
    with pytest.raises(BudgetError) as refused:
        parse(budget)
    assert says in str(refused.value) and "\n" not in str(refused.value)

"""Budgets as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from refimpl.memory import UNLIMITED
from refimpl.names.budgets import BudgetError, Share, parse, several
from tests.messages import raises_naming


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
        ("twelve", ("'twelve'", "12GiB")),
        ("", ("''", "12GiB")),
        ("12 GiB please", ("'12 GiB please'",)),
        ("12GiBB", ("'12GiBB'",)),
        ("-3", (-3, "nothing")),
        ("-3GiB", ("-3GiB", "nothing")),
        ("0", (0, "nothing")),
        ("0.0", ("nothing",)),
        (0, (0, "nothing")),
        ("-0.4", (-0.4, "nothing")),
        (float("nan"), ("nan", "nothing")),
        (float("inf"), ("inf", "baseline")),
        ("12", (12, "12GiB")),
        ("1B", ("1B", "1GiB")),
        ("3.5", ("3.5GiB",)),
        ([], ([], "12GiB")),
        ("-" + "9" * 5000, ("nothing",)),
        ("-1GiB", ("-1GiB", "nothing")),
        (-(10**500), ("nothing",)),
        (True, (True, "12GiB")),
    ],
)
def test_what_is_no_budget_is_one_line(budget: Any, says: tuple[object, ...]) -> None:
    with raises_naming(BudgetError, *says):
        parse(budget)

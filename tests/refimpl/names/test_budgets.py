"""Budgets and tiers as people write them."""

from __future__ import annotations

from typing import Any

import pytest

import refimpl
from refimpl.machine import MACHINES, MachineError, Tier
from refimpl.memory import UNLIMITED
from refimpl.names.budgets import BudgetError, Share, parse, several, tiers_named
from tests.messages import raises_naming


@pytest.mark.parametrize(
    ("budget", "means"),
    [
        ("12GiB", 12 << 30),
        ("3.5 GB", 3_500_000_000),
        ("3.5e", None),
        ("1,073,741,824", 1 << 30),
        ("40%", Share(0.4)),
        (0.4, Share(0.4)),
        (Share(1.2), Share(1.2)),
        ("9" * 5000, UNLIMITED),
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
        ("40%, 1.125", ["40%", " 1.125"]),
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
        ("-3GiB", ("-3GiB", "nothing")),
        ("0", (0, "nothing")),
        (float("inf"), ("inf", "baseline")),
        ("3.5", ("3.5GiB",)),
        ([], ([], "12GiB")),
    ],
)
def test_what_is_no_budget_is_one_line(budget: Any, says: tuple[object, ...]) -> None:
    with raises_naming(BudgetError, *says):
        parse(budget)


# -- tiers as people write them, and what a machine with tiers says of its copies --------------------------------------


GIB = 1 << 30
K40C = MACHINES["k40c"]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("host:32GiB@8GB/s,peer:12GiB@10GB/s", [Tier("host", 32 * GIB, 8e9), Tier("peer", 12 * GIB, 10e9)]),
        (" Peer:1GiB , host ", [Tier("peer", GIB), Tier("host")]),
        ("host,remote:1.5GiB@6e0GB/s", None),
    ],
)  # fmt: skip
def test_what_tiers_mean(text: str, means: list[Tier] | None) -> None:
    if means is None:
        with raises_naming(MachineError, "remote:1.5GiB@6e0GB/s", "NAME", "CAPACITY", "RATE"):
            tiers_named(text)
    else:
        assert list(tiers_named(text)) == means


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("host:0.5", ("NAME:CAPACITY@RATE",)),
        ("hots:8GiB", ("hots",)),
        ("peer:8GiB", ("host", "peer")),
    ],
)  # fmt: skip
def test_wrong_tiers_are_refused_in_one_line(text: str, says: tuple[object, ...]) -> None:
    with raises_naming(MachineError, *says) as caught:
        K40C.with_tiers(tiers_named(text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [Tier, lambda name: Tier(name, -1), lambda name: Tier(name, 1, 0.0)])
def test_a_tier_has_a_name_a_capacity_and_a_rate(wrong: type[Tier]) -> None:
    with pytest.raises(MachineError):
        wrong("hots" if wrong is Tier else "peer")


def test_a_copy_takes_its_tiers_rate_and_the_papers_where_none_is_given() -> None:
    """10 GB/s over the PCIe switch and 6 GB/s by RDMA; the host's is the machine's link."""
    start, gigabyte = K40C.copy_start_seconds, 10**9
    tiered = K40C.with_tiers(tiers_named("peer,remote,host"))
    for tier, rate in (("host", K40C.link), ("peer", 10e9), ("remote", 6e9)):
        for way in ("out", "in"):
            assert tiered.copy_seconds(gigabyte, way, tier) == start + gigabyte / rate
    slow = K40C.with_tiers(tiers_named("host@1GB/s"))
    assert slow.copy_seconds(gigabyte, "out") == start + 1
    with raises_naming(MachineError, "k40c"):
        K40C.copy_seconds(1, "in", "peer")


def test_plans_take_tiers_in_python_as_on_the_command_line() -> None:
    by_text = refimpl.plan("tiny-vgg", "superneurons-offload", "k40c", tiers="peer,host:1GiB@4GB/s")
    by_objects = refimpl.plan("tiny-vgg", "superneurons-offload", "k40c", tiers=[Tier("peer"), Tier("host", GIB, 4e9)])
    assert by_text.machine == by_objects.machine and by_text.tier_bytes == by_objects.tier_bytes
    assert by_text.tier_bytes["peer"] > 0

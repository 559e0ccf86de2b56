"""Tiers as people write them, and what a machine with tiers says of its copies."""

from __future__ import annotations

import pytest

import refimpl
from refimpl.machine import MACHINES, MachineError, Tier
from refimpl.names.budgets import tiers_named
from tests.messages import raises_naming

GIB = 1 << 30
K40C = MACHINES["k40c"]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("host", [Tier("host")]),
        ("host:32GiB", [Tier("host", 32 * GIB)]),
        ("host@8GB/s", [Tier("host", None, 8e9)]),
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
        ("", ("NAME:CAPACITY@RATE",)),
        ("host:", ("NAME:CAPACITY@RATE",)),
        ("host:0.5", ("NAME:CAPACITY@RATE",)),
        ("host:8GiB@8GB", ("NAME:CAPACITY@RATE",)),
        ("host:8GiB:1", ("NAME:CAPACITY@RATE",)),
        ("host,", ("NAME:CAPACITY@RATE",)),
        ("hots:8GiB", ("hots",)),
        ("host,host", ("host",)),
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

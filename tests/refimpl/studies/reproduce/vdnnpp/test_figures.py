"""`refimpl reproduce vdnnpp`: what is compared with what, in which reading, and that nothing is made to fit."""

from __future__ import annotations

import pytest

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.planner import plan
from refimpl.slots.baseline import NoOffload
from refimpl.studies.reproduce.published import Found
from refimpl.studies.reproduce.vdnnpp import figures, published
from refimpl.studies.reproduce.vdnnpp.figures import (
    SpeedRow,
    Times,
    as_vdnn,
    policy_name,
    readings,
    slower_rows,
)
from refimpl.vdnnpp.presets import static

pytestmark = pytest.mark.vdnnpp

GTX_970, TITAN_X = MACHINES["gtx-970"], MACHINES["titan-x"]


def ignored(name: str) -> None:
    pass


@pytest.fixture(scope="module")
def pinned() -> Found:
    return figures.pinned(ignored)


# -- the readings ------------------------------------------------------------------------------------------------------


def test_the_three_readings() -> None:
    assert readings(13, 9, 8) == pytest.approx({"time": 4 / 9, "cut": 4 / 13, "overhead": 4 / 5})
    assert readings(8, 8, 8) == {"time": 0, "cut": 0, "overhead": None}, "no overhead, and nothing to cut"
    assert readings(None, 9, 8) == readings(13, None, 8) == dict.fromkeys(published.READINGS)


def test_a_row_is_two_plans_and_a_base() -> None:
    """By hand: the same maps, the same kind of algorithms; vDNN with join, its window, best fit, a buffer a map."""
    built = figures.network("vdnnpp-demo", 32)
    theirs = as_vdnn("conv", figures.SETS["conv"])
    assert theirs.join and not theirs.barrier and theirs.copy_streams == "shared"
    assert theirs.slots | {"offload": "vdnnpp-conv", "prefetch": "vdnn-window"} == theirs.slots
    assert theirs.slots["allocator"] == "best-fit" and theirs.slots["pinned"] == "buffer-a-map"
    ours = static("conv", figures.SETS["conv"], pinned=figures.packed("vdnnpp-demo"))
    base = Times.of(plan(built, as_vdnn("none", NoOffload()), GTX_970, UNLIMITED))
    made = figures.speed_row("vdnnpp-demo", built, GTX_970, "conv", ours, base)
    assert made.vdnn and made.vdnnpp and base.iteration < made.vdnnpp.iteration < made.vdnn.iteration
    assert made.vdnn.iteration == plan(built, theirs, GTX_970, GTX_970.memory_bytes).simulate().seconds
    assert made.vdnnpp.iteration == plan(built, ours, GTX_970, GTX_970.memory_bytes).simulate().seconds
    assert made.iteration == readings(made.vdnn.iteration, made.vdnnpp.iteration, base.iteration)


def test_a_row_that_vdnn_alone_fits_is_slower() -> None:
    quick, slow = Times(1, 1), Times(2, 2)
    rows = [SpeedRow("gtx-970", "net", 8, "conv", "memory", "", quick, *both) for both in
            ((slow, quick), (quick, slow), (slow, None), (None, quick), (None, None))]  # fmt: skip
    assert slower_rows(rows) == (
        "Of 3 rows that vDNN fits vDNN++ is slower in 2: net(8) conv (m); net(8) conv (m), does not fit.  1 row vDNN++ "
        "alone fits."
    )


# -- pinned memory -----------------------------------------------------------------------------------------------------


def test_densities_are_those_of_the_networks_convolutions_and_poolings() -> None:
    for name, shares in published.DENSITIES_PER_CENT.items():
        built = figures.network(name, 2)
        assert len(shares) == sum(layer.kind in ("conv", "pool") for layer in built.layers)


def test_pinned_memory_never_grows_with_compression(pinned: Found) -> None:
    for r in pinned.rows:
        kept = (r.network, r.policy) == ("alexnet", "alternate-conv")  # the second of two maps leaves too early
        assert kept or r.compressed_pinned_bytes < r.on_demand_pinned_bytes
        assert r.compressed_pinned_bytes <= r.on_demand_pinned_bytes <= r.vdnn_pinned_bytes
        assert r.vdnn_pinned_bytes == pytest.approx(r.raw_bytes + r.input_bytes, rel=1e-3)
        assert 0 <= r.left_raw_bytes < r.raw_bytes or kept


def test_the_pools_of_the_port_of_the_authors_code_are_met_to_the_byte() -> None:
    (port,) = figures.pool_tables(figures.fragmented(ignored).rows)
    assert [row[-1] for row in port.rows] == ["to the byte"] * 2 * len(published.POOLS)


def test_a_policys_name() -> None:
    for policy, algorithms, adopted, shown in (
        ("conv", "memory", "", "conv (m)"), ("alternate-conv", "performance", "", "alternate (p)"),
        ("dyn", "vdnnpp", "conv (fitting)", "dyn: conv (f)"), ("dyn", "vdnnpp", "none (fastest)", "dyn: none (p)"),
        ("dyn", "vdnnpp", "all (least)", "dyn: all (m)"), ("dyn", "", "", "dyn"),
    ):  # fmt: skip
        assert policy_name(SpeedRow("titan-x", "n", 1, policy, algorithms, adopted, Times(1, 1), None, None)) == shown

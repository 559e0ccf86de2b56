"""`refimpl reproduce vdnnpp`: what is compared with what, in which reading, and that nothing is made to fit."""

from __future__ import annotations

from typing import Any

import pytest

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.planner import plan
from refimpl.slots.baseline import NoOffload
from refimpl.studies.reproduce.evaluation import MIB
from refimpl.studies.reproduce.published import Found
from refimpl.studies.reproduce.vdnnpp import figures, published
from refimpl.studies.reproduce.vdnnpp.figures import (
    SpeedRow,
    Times,
    as_vdnn,
    policy_name,
    pool_tables,
    readings,
    slower_rows,
)
from refimpl.vdnnpp.presets import VDNNPP_DYN, static

pytestmark = pytest.mark.vdnnpp

GTX_970, TITAN_X = MACHINES["gtx-970"], MACHINES["titan-x"]


def ignored(name: str) -> None:
    pass


@pytest.fixture(scope="module")
def pinned() -> Found:
    return figures.pinned(ignored)


@pytest.fixture(scope="module")
def pools() -> Found:
    return figures.fragmented(ignored)


def row(found: Found, **wanted: Any) -> Any:
    (only,) = [r for r in found.rows if all(getattr(r, name) == value for name, value in wanted.items())]
    return only


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


def test_where_no_candidate_fits_vdnns_own_dynamic_policy_is_beside_it() -> None:
    """VGG-16's POOLs search for a map to prefetch, and vDNN's do not: 12 GiB hold 256 images under vDNN alone."""
    made = figures.speed_row("vgg16", build("vgg16", 256), TITAN_X, "dyn", VDNNPP_DYN, Times(1, 1))
    assert made.vdnn and not made.vdnnpp and not made.adopted


# -- pinned memory -----------------------------------------------------------------------------------------------------


def test_the_authors_code_kept_213_8_of_545_1_mib(pinned: Found) -> None:
    vgg = row(pinned, network="vgg16", policy="conv")
    assert round((vgg.kept_bytes + vgg.input_bytes) / MIB, 1) == published.KEPT_MIB == 213.8
    assert round(vgg.raw_bytes / MIB, 1) == published.RAW_MIB == 545.1
    assert round(vgg.kept_bytes / MIB, 1) == 204.6 and round(vgg.input_bytes / MIB, 1) == 9.2


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


# -- fragmentation -----------------------------------------------------------------------------------------------------


def test_the_pools_of_the_authors_code_to_the_byte(pools: Found) -> None:
    replayed = [r for r in pools.rows if r.replayed is not None]
    assert len(replayed) == 2 * len(published.POOLS)
    for r in replayed:
        assert r.found == r.replayed and r.mark == "S"
        assert r.found.fragmentation == r.found.pool_bytes / r.found.ideal_bytes - 1
    (port,) = pool_tables(pools.rows)
    lines = [" ".join(line.split()) for line in port.text().splitlines()]
    assert "alexnet(128) conv best left 493,058,560 575,613,952 (31) 575,613,952 (31) C to the byte" in lines
    assert "not the paper's own figures" in port.note


@pytest.mark.parametrize(
    ("policy", "algorithms", "adopted", "shown"),
    [
        ("conv", "memory", "", "conv (m)"),
        ("alternate-conv", "performance", "", "alternate (p)"),
        ("dyn", "vdnnpp", "conv (fitting)", "dyn: conv (f)"),
        ("dyn", "vdnnpp", "none (fastest)", "dyn: none (p)"),
        ("dyn", "vdnnpp", "all (least)", "dyn: all (m)"),
        ("dyn", "", "", "dyn"),
    ],
)
def test_a_policys_name(policy: str, algorithms: str, adopted: str, shown: str) -> None:
    assert policy_name(SpeedRow("titan-x", "n", 1, policy, algorithms, adopted, Times(1, 1), None, None)) == shown

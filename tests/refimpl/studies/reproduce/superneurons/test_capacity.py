"""What 12 GB hold: that every figure was planned, and what is met of the published ones."""

from __future__ import annotations

from functools import partial

import pytest

from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.studies.reproduce.evaluation import GIB
from refimpl.studies.reproduce.published import Reproduced
from refimpl.studies.reproduce.superneurons import capacity
from refimpl.studies.reproduce.superneurons.capacity import ALL, BUDGET, SETUPS, STEP, WITHOUT, CapacityRow
from refimpl.studies.reproduce.superneurons.memory import FIGURES, K40C

pytestmark = [pytest.mark.superneurons, pytest.mark.slow]

LITTLE = 17 * GIB // 16


@pytest.fixture(scope="module")
def few() -> list[CapacityRow]:
    """Two networks within 12 GiB; and the deepest ResNet for one image within little, which takes less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "NETWORKS", ("alexnet", "vgg16"))
        patch.setattr(capacity, "DEEP_BATCH", 1)
        patch.setattr(capacity, "deepest", partial(capacity.deepest, budget=LITTLE, batch=1))
        return list(capacity.rows())


def fits_with_one_more(row: CapacityRow) -> bool:
    """Whether the network of a row fits with another image or unit added."""
    setup = (SETUPS | WITHOUT)[row.setup]
    if row.depth is None:
        return attempt(build(f"{row.network}:superneurons", row.batch + 1), setup, K40C, BUDGET) is not None
    units = (row.depth - capacity.depth_of(1)) // 3 + 1
    return attempt(capacity.deep(units + 1, batch=row.batch), setup, K40C, LITTLE) is not None


def test_every_row_fits_and_one_more_does_not(few: list[CapacityRow]) -> None:
    assert [(row.network, row.setup) for row in few] == [
        *((network, setup) for network in ("alexnet", "vgg16") for setup in SETUPS | WITHOUT),
        *((capacity.DEEP, setup) for setup in SETUPS),
    ]
    for row in few:
        assert row.largest
        if row.depth is None or row.setup == ALL:
            assert not fits_with_one_more(row)
        assert row.resident_bytes < row.peak_bytes <= (BUDGET if row.depth is None else LITTLE)
        assert row.tried >= 2 and row.images_a_second > 0
        assert bool(row.recomputed_layers) == (row.setup in ("recompute", ALL))


def test_every_technique_holds_more_than_the_baseline(few: list[CapacityRow]) -> None:
    for network in ("alexnet", "vgg16", capacity.DEEP):
        largest = {row.setup: row.largest for row in few if row.network == network}
        assert largest["baseline"] < largest["liveness"] < largest["offload"] < largest["recompute"] <= largest[ALL]


def test_what_is_resident_counts(few: list[CapacityRow]) -> None:
    """Weights three times over (gradients and momentum beside them), and the batch."""
    row = next(row for row in few if row.network == "vgg16" and row.setup == ALL)
    weights = sum(p.weight.nbytes for _, _, p in build("vgg16:superneurons", 1).parameters())
    batch = row.batch * 3 * 227 * 227 * 4
    assert 3 * weights + batch < row.resident_bytes < 1.001 * (3 * weights + batch)


def test_published_figures_stand_beside_all_techniques_alone(few: list[CapacityRow]) -> None:
    beside = {row.network: row.published for row in few if row.published}
    assert {row.setup for row in few if row.published} == {ALL}
    assert beside == {
        **{name: FIGURES.by("largest batch")[name] for name in ("alexnet", "vgg16")},
        capacity.DEEP: FIGURES.one("deepest"),
    }  # fmt: skip


def test_what_is_met_and_what_is_missed(few: list[CapacityRow]) -> None:
    """VGG-16's batch to the image; AlexNet's is a sixth larger."""
    found = {row.network: Reproduced(row.published, row.largest, "") for row in few if row.published}
    assert found["vgg16"].ours == 224 and found["vgg16"].met
    assert found["alexnet"].deviation == pytest.approx(0.16, abs=0.02) and not found["alexnet"].met


def test_the_published_depth_is_not_in_the_published_family() -> None:
    depths = [capacity.depth_of(units) for units in range(1, 1000)]
    assert depths[0] == 137 and FIGURES.one("deepest").value not in depths
    assert 1919 in depths and 1922 in depths
    assert capacity.deep(2).name == "resnet:140:superneurons" and capacity.deep(2).batch == 16


@pytest.mark.campaign  # one unit fewer is planned, verified and simulated by test_planning_speed.py
def test_resnet2500_fits_with_about_as_many_layers_as_the_abstract_says() -> None:
    found = capacity.resnet2500()
    assert found.met and found.ours == len(capacity.deep(capacity.UNITS_OF_2500).layers) == 9178
    assert found.note.startswith("resnet:2501:superneurons, 16 images: 12.0 GiB of the device")


def test_a_shallower_resnet_does_not_meet_the_abstracts_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "UNITS_OF_2500", 2)
    found = capacity.resnet2500()
    assert found.ours == len(capacity.deep(2).layers) and not found.met
    assert found.note.startswith("resnet:140:superneurons, 16 images: ")


# -- the host ----------------------------------------------------------------------------------------------------------


def test_notes_round_down_to_the_steps_of_the_published_batches(few: list[CapacityRow]) -> None:
    assert all(int(figure.value) % STEP == 0 for figure in FIGURES.by("largest batch").values())
    row = next(row for row in few if row.network == "alexnet" and row.setup == ALL)
    assert capacity.note(row) == f"in steps of 16: {row.batch - row.batch % 16}"
    deep = next(row for row in few if row.network == capacity.DEEP and row.setup == ALL)
    assert capacity.note(deep).endswith("GiB are weights, gradients and momentum")


@pytest.mark.parametrize(
    "name",
    ["resnet50", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("resnet101", "resnet152"))],
)
def test_a_host_tier_fitted_to_them_gives_the_resnets_largest_batches(name: str) -> None:
    found = capacity.largest_batch(f"{name}:superneurons", capacity.CHECKPOINTS_LEAVE, capacity.LIMITED_HOST)
    assert found.size == {"resnet50": 388, "resnet101": 257, "resnet152": 181}[name]
    assert found.size // STEP * STEP == FIGURES.by("largest batch")[name].value
    assert found.program is not None and found.program.pinned_bytes <= capacity.HOST_BYTES
    twice = build(f"{name}:superneurons", 2 * found.size)
    assert attempt(twice, capacity.CHECKPOINTS_LEAVE, K40C, BUDGET), "with all the host memory that it wants"

"""What a budget holds: that every row was planned, fits, and is the largest that does."""

from __future__ import annotations

from functools import partial

import pytest

from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.studies.reproduce.evaluation import GIB, MIB
from refimpl.studies.reproduce.superneurons import capacity
from refimpl.studies.reproduce.superneurons.capacity import ALL, SETUPS, CapacityRow
from refimpl.studies.reproduce.superneurons.memory import FIGURES, K40C

pytestmark = [pytest.mark.superneurons, pytest.mark.slow]

SMALL, LITTLE = 8 * MIB, 7 * GIB // 8


def fits_with_one_more(row: CapacityRow) -> bool:
    """Whether the network of a row fits with another image or unit added."""
    setup = SETUPS[row.setup]
    if row.depth is None:
        return attempt(build(f"{row.network}:superneurons", row.batch + 1), setup, K40C, SMALL) is not None
    units = (row.depth - capacity.depth_of(1)) // 3 + 1
    return attempt(capacity.deep(units + 1, batch=row.batch), setup, K40C, LITTLE) is not None


def test_every_row_fits_and_one_more_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network in little memory, and the deepest ResNet for one image: under every setup more than before."""
    monkeypatch.setattr(capacity, "NETWORKS", ("tiny-resnet",))
    monkeypatch.setattr(capacity, "SETUPS", few := {name: SETUPS[name] for name in ("liveness", ALL)})
    monkeypatch.setattr(capacity, "DEEP_BATCH", 1)
    monkeypatch.setattr(capacity, "largest_batch", partial(capacity.largest_batch, budget=SMALL))
    monkeypatch.setattr(capacity, "deepest", partial(capacity.deepest, budget=LITTLE, batch=1))
    rows = [*capacity.rows()]
    assert [row.setup for row in rows] == [*few, *few]
    for row in rows:
        if row.depth is None or row.setup == ALL:
            assert row.largest and not fits_with_one_more(row)
        assert row.resident_bytes < row.peak_bytes <= (SMALL if row.depth is None else LITTLE)
        assert row.images_a_second > 0
        theirs = FIGURES.one("deepest") if row.depth and row.setup == ALL else None
        assert row.published == theirs, "beside all techniques alone"
    for network in ("tiny-resnet", capacity.DEEP):
        largest = {row.setup: row.largest for row in rows if row.network == network}
        assert largest["liveness"] < largest[ALL]
    assert capacity.note(rows[0]) == f"in steps of 16: {rows[0].batch - rows[0].batch % 16}"
    assert capacity.note(rows[-1]).endswith("GiB are weights, gradients and momentum")


def test_the_published_depth_is_not_in_the_published_family() -> None:
    depths = [capacity.depth_of(units) for units in range(1, 1000)]
    assert depths[0] == 137 and FIGURES.one("deepest").value not in depths
    assert 1919 in depths and 1922 in depths
    assert capacity.deep(2).name == "resnet:140:superneurons" and capacity.deep(2).batch == 16


def test_a_shallower_resnet_does_not_meet_the_abstracts_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "UNITS_OF_2500", 2)
    found = capacity.resnet2500()
    assert found.ours == len(capacity.deep(2).layers) and not found.met
    assert found.note.startswith("resnet:140:superneurons, 16 images: ")

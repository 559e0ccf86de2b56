"""SuperNeurons' own lines of the figures that it shares with other frameworks."""

from __future__ import annotations

import pytest

from refimpl.studies.reproduce.superneurons import beside, figures, published

pytestmark = pytest.mark.superneurons


def test_the_memory_at_the_largest_batches_is_that_of_figure_2(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: published.LARGEST_MEMORY[name] for name in ("alexnet", "resnet50")}
    monkeypatch.setattr(published, "LARGEST_MEMORY", few)
    found = beside.costs(lambda name: None)
    assert [row.batch for row in found.rows] == [1792, 384] and len(found.figures) == 2
    for row, figure in zip(found.rows, found.figures, strict=True):
        assert row.memory_bytes == sum(figures.tensor_and_weight_bytes(figures.network(row.network, row.batch)))
        assert figure.ours == (row.memory_bytes + row.workspace_bytes) / 1e9
        assert not figure.met


def test_the_shape_of_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is highest at the end of AlexNet's batches, where the published one has fallen to 54 %."""
    monkeypatch.setattr(published, "SPEED_SHAPES", {"alexnet": published.SPEED_SHAPES["alexnet"]})
    found = beside.speeds(lambda name: None)
    batches = [*published.SPEED_CURVES["alexnet"]]
    assert [row.batch for row in found.rows] == batches
    rates = [row.rate for row in found.rows]
    assert rates == sorted(rates) and found.rows[-1].share == 1
    assert found.rows[4].published_share == 1 and found.rows[-1].published_share == pytest.approx(0.536, abs=1e-3)
    best, rate, fallen = found.figures
    assert (best.ours, rate.ours, fallen.ours) == (1280, rates[-1], 1.0)
    assert not best.met and not fallen.met


def test_a_batch_that_does_not_fit_has_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "SPEED_CURVES", {"alexnet": {16: 100, 1 << 14: 50}})
    little, much = beside.curve("alexnet")
    assert little.rate and little.share == 1 and much.rate is None and much.share is None

"""The speed that the tensor cache saves, and that a larger pool buys."""

from __future__ import annotations

import pytest

from refimpl.studies.reproduce.published import Found
from refimpl.studies.reproduce.superneurons import published, speed

pytestmark = pytest.mark.superneurons


@pytest.fixture(scope="module")
def cached() -> Found:
    with pytest.MonkeyPatch.context() as patch:
        few = {name: published.FASTER_WITH_CACHE[name] for name in ("alexnet", "resnet50")}
        patch.setattr(published, "FASTER_WITH_CACHE", few)
        return speed.cache_speed(lambda name: None)


def test_with_room_the_cache_moves_nothing_and_is_never_slower(cached: Found) -> None:
    machines = [(row.network, row.batch, row.machine) for row in cached.rows]
    assert machines == [("alexnet", 128, "k40c"), ("alexnet", 128, "titan-xp"),
                        ("resnet50", 32, "k40c"), ("resnet50", 32, "titan-xp")]  # fmt: skip
    for row in cached.rows:
        assert row.with_moved_bytes == 0 < row.without_moved_bytes
        assert row.ratio >= 1


def test_the_faster_gpu_waits_longer_for_the_same_link(cached: Found) -> None:
    for slow, fast in (cached.rows[:2], cached.rows[2:]):
        assert slow.ratio < fast.ratio


def test_the_published_ratios_are_beside_both_readings_on_the_k40c(cached: Found) -> None:
    readings = [ratio for row in cached.rows[::2] for ratio in (row.ratio, row.ratio_in_series)]
    assert [figure.ours for figure in cached.figures] == readings
    whats = [figure.published.what for figure in cached.figures]
    assert all(what.endswith("; overlapped") for what in whats[::2])
    assert all(what.endswith("; in series") for what in whats[1::2])
    assert not any(figure.met for figure in cached.figures)


def test_in_series_all_copies_are_waited_for(cached: Found) -> None:
    for row in cached.rows:
        assert row.ratio < row.ratio_in_series
        link = {"k40c": 8e9, "titan-xp": 12.8e9}[row.machine]
        assert row.without_copying_seconds == pytest.approx(row.without_moved_bytes / link, rel=0.01)


@pytest.fixture(scope="module")
def workspaces() -> Found:
    return speed.workspaces(lambda name: None)


def test_a_call_has_its_fastest_workspace_or_a_smaller_one(workspaces: Found) -> None:
    assert len(workspaces.rows) == 8 * 15, "five convolutions, three passes"
    for row in workspaces.rows:
        assert row.workspace_bytes <= row.fastest_bytes
    calls = {row.call for row in workspaces.rows}
    assert {"CONV1 Y", "CONV5 dX", "CONV2 dW"} <= calls and len(calls) == 15


def test_only_the_large_batch_in_the_small_pool_without_recomputation_lacks_workspaces(workspaces: Found) -> None:
    lacking = {
        (row.setup, row.batch, row.pool_bytes >> 30)
        for row in workspaces.rows
        if row.workspace_bytes < row.fastest_bytes
    }
    assert lacking == {("all but recompute", 300, 3)}


def test_the_larger_pool_is_faster_by_more_than_published(workspaces: Found) -> None:
    *_, figure = workspaces.figures
    assert figure.published is published.FASTER_WITH_MEMORY and not figure.met
    runs = [speed.chosen(workspaces.rows, "all but recompute", 300, pool) for pool in speed.POOLS]
    little, much = (run[0].images_a_second for run in runs)
    assert figure.ours == much / little > figure.published.value


def test_the_steps_with_the_fastest_workspace_are_beside_the_panels(workspaces: Found) -> None:
    served = workspaces.figures[:-1]
    assert [figure.published for figure in served] == published.SERVED
    assert [figure.ours for figure in served] == [8, 4, 4, 8]
    assert [figure.met for figure in served] == [True, True, False, False]
    for pool in speed.POOLS:
        steps = speed.by_step(speed.chosen(workspaces.rows, "all but recompute", 300, pool))
        assert [*steps] == [*published.WORKSPACE_STEPS]
        assert all(given <= fastest for given, fastest in steps.values())

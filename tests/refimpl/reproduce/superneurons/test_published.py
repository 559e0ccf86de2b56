"""The published figures: all there, each with a mark and a source, and consistent with one another."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from refimpl.reproduce.published import Published, Reproduced
from refimpl.reproduce.superneurons import published

pytestmark = pytest.mark.superneurons

ROOT = Path(__file__).resolve().parents[4]
GOLDEN = ROOT / "tests" / "data" / "superneurons_alexnet200.csv"


def figures() -> Iterator[Published]:
    """Every one in the module."""
    for value in vars(published).values():
        yield from within(value)


def within(value: object) -> Iterator[Published]:
    if isinstance(value, Published):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from within(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from within(part)


def test_every_figure_has_a_mark_and_a_source_and_a_name_of_its_own() -> None:
    found = list(figures())
    curve, networks, recomputed, cache = 2 + 3 * 3, 2 * 7 + 19 + 11, 3 * 6, 2 * 6 + 6
    assert len(found) == curve + networks + recomputed + cache + 1 + 2 + 6 + 7  # workspaces, depth, batches, pool
    assert {figure.mark for figure in found} == {"P", "D", "D, C", "p"}
    assert all(figure.source.startswith("PPoPP 2018, ") for figure in found)
    assert len({figure.what for figure in found}) == len(found)


def test_the_curve_is_the_golden_data() -> None:
    assert Path(published.__file__).with_name("alexnet200.csv").read_bytes() == GOLDEN.read_bytes()
    assert '"refimpl.reproduce.superneurons": ["*.csv"]' in (ROOT / "setup.py").read_text(encoding="utf-8"), (
        "installed with it"
    )


def test_the_curve_has_the_published_peaks() -> None:
    points = published.curve()
    assert [point.step for point in points] == [*range(1, 47)] and len(points) == published.STEPS["liveness"].value
    for name, peak in published.PEAKS.items():
        top = max(points, key=lambda point: point.mib[name])
        assert top.mib[name] == pytest.approx(peak.value, abs=published.CLOSE_MIB)
        assert top.step == published.PEAK_STEPS[name].value and top.layer in published.PEAK_STEPS[name].what
        assert top.direction == "backward"


def test_the_others_are_what_the_abstract_compares_with() -> None:
    """It says: at least 3.2432 times deeper than all of them."""
    assert published.DEEPEST.value / max(published.DEEPEST_OF_OTHERS.values()) == pytest.approx(3.2432, abs=1e-4)
    for network, others in published.LARGEST_OF_OTHERS.items():
        assert published.LARGEST[network].value > max(batch for batch in others if batch)


def test_only_what_is_not_in_the_text_or_its_figures_is_recalled() -> None:
    recalled = {figure.source for figure in figures() if figure.mark == "p"}
    assert recalled == {published.POOL_SPEED, published.WORKSPACES}


def test_shares_add_up_to_no_more_than_the_whole() -> None:
    for shares in (published.TIME_SHARES, published.MEMORY_SHARES):
        for of_network in shares.values():
            assert 88 < sum(figure.value for figure in of_network.values()) < 100.5


def test_the_cache_only_helps() -> None:
    assert published.WITHOUT_CACHE.keys() == published.WITH_CACHE.keys()
    assert all(published.WITH_CACHE[batch].value < published.WITHOUT_CACHE[batch].value for batch in (256, 640, 1024))


@pytest.mark.parametrize(
    ("value", "within", "ours", "deviation", "met"),
    [
        (100, None, 101.9, 0.019, True),
        (100, None, 102.1, 0.021, False),
        (84, 0.0, 84, 0.0, True),
        (84, 0.0, 85, 1 / 84, False),  # close, and still another count
        (401, 0.02, 401.019, 4.7e-5, True),
        (401, 0.02, 406.125, 0.01278, False),
        (0, None, 0, 0.0, True),
        (0, None, 1, inf, False),
    ],
)
def test_met_is_close_or_as_close_as_the_figure_asks(
    value: float, within: float | None, ours: float, deviation: float, met: bool
) -> None:
    found = Reproduced(Published("x", value, "", "P", "test", within), ours, "")
    assert found.deviation == pytest.approx(deviation, rel=1e-2, abs=1e-12) and found.met is met

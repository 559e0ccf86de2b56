"""The published figures: all there, each with a mark and a source, and consistent with one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from math import inf
from pathlib import Path

import pytest

from refimpl.studies.reproduce.published import Published, Reproduced
from refimpl.studies.reproduce.superneurons import published

pytestmark = pytest.mark.superneurons

ROOT = Path(__file__).resolve().parents[5]
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
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from within(getattr(value, field.name))


def test_every_figure_has_a_mark_and_a_source_and_a_name_of_its_own() -> None:
    found = list(figures())
    curve, totals, types = 2 + 3 * 3 + 2, 3 * 7, (7 + 6 + 6 + 7 + 6 + 6 + 6) + (4 + 3 + 3 + 4 + 4 + 4 + 4)
    recomputed, cache, workspaces = 3 * 6, 2 * 6 + 6, 4 + 1
    assert len(found) == curve + totals + types + recomputed + cache + workspaces + (
        2 + 6 + (1 + 3 * 6) + 6 + 3 * 6  # depth, batches, pool, Figures 13 and 14
    )
    assert {figure.mark for figure in found} == {"P", "D", "D, C"}, "none is recalled"
    assert all(figure.source.startswith("PPoPP 2018, ") for figure in found)
    assert len({figure.what for figure in found}) == len(found)


def test_the_curve_is_the_golden_data() -> None:
    assert Path(published.__file__).with_name("alexnet200.csv").read_bytes() == GOLDEN.read_bytes()
    assert '"refimpl.studies.reproduce.superneurons": ["*.csv"]' in (ROOT / "setup.py").read_text(encoding="utf-8"), (
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


def test_a_models_bytes_are_not_called_published() -> None:
    """Step 39 under offload: the text prints 1132.155, the curve has 1132.05, and 1132.056 is calculated."""
    peaks = {figure.mark: figure.value for figure in figures() if figure.what.startswith("offload and prefetch: peak")}
    assert peaks == {"P": 1132.155, "D": 1132.05}
    assert published.curve()[38].mib["offload"] == 1132.056


def test_table_2_has_the_ratios_of_its_own_speeds() -> None:
    for row in published.FASTER_WITH_POOL.values():
        assert row.pool.value / row.calls.value == pytest.approx(row.ratio.value, abs=0.006)
    ratios = {name: row.ratio.value for name, row in published.FASTER_WITH_POOL.items()}
    assert (ratios["resnet50"], ratios["resnet101"], ratios["resnet152"]) == (1.53, 1.68, 1.77)


def test_the_panels_of_figure_12_behave_as_the_paper_says() -> None:
    """Nothing is assigned beyond the fastest workspace; more memory is never less workspace, and faster."""
    for panel in published.PANELS:
        assert len(panel.assigned) == len(panel.fastest) == len(published.WORKSPACE_STEPS)
        assert all(given <= fastest for given, fastest in zip(panel.assigned, panel.fastest, strict=True))
    _, _, little, much = published.PANELS
    assert little.fastest == much.fastest and little.pool < much.pool
    assert all(less <= more for less, more in zip(little.assigned, much.assigned, strict=True))
    assert little.rate and much.rate
    assert much.rate / little.rate == pytest.approx(published.FASTER_WITH_MEMORY.value, abs=5e-4)
    assert [figure.value for figure in published.SERVED] == [8, 4, 1, 3]


def test_a_curve_of_figure_14_has_one_highest_point_and_falls_to_its_end() -> None:
    assert published.SPEED_CURVES.keys() == published.LARGEST.keys() == published.LARGEST_MEMORY.keys()
    for name, rates in published.SPEED_CURVES.items():
        shape = published.SPEED_SHAPES[name]
        assert [*rates] == sorted(rates) and rates[int(shape.best_batch.value)] == shape.best_rate.value
        assert sum(rate == max(rates.values()) for rate in rates.values()) == 1
        assert 0.5 < shape.fallen.value < 0.71


def test_shares_add_up_to_no_more_than_the_whole() -> None:
    for shares in (published.TIME_SHARES, published.MEMORY_SHARES):
        for of_network in shares.values():
            assert 87.9 < sum(figure.value for figure in of_network.values()) < 100.5


def test_what_the_shares_of_time_leave_are_the_structure_layers() -> None:
    """Chains have none, and their shares are all of the time."""
    left = {name: 100 - sum(figure.value for figure in of.values()) for name, of in published.TIME_SHARES.items()}
    assert all(abs(left[name]) < 0.6 for name in ("alexnet", "vgg16", "vgg19"))
    assert all(9 < left[name] < 12.1 for name in ("inceptionv4", "resnet50", "resnet101", "resnet152"))


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

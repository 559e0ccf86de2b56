"""The tuner's rules on curves that are given: the worked example, the search, the learning rate."""

from __future__ import annotations

import pytest

from refimpl.accudnn.tuner import ClosedForm, Learning, Point, fitting, optimum, search, warmed_up

pytestmark = pytest.mark.accudnn


def seconds(batch: int) -> float:
    """T(b) of the worked example: 0.2 + 0.02 b, from b = 110 on + (b - 110)/60."""
    return 0.2 + 0.02 * batch + max(0, batch - 110) / 60


def test_the_worked_example() -> None:
    assert [round(b / seconds(b), 1) for b in (44, 110, 150)] == [40.7, 45.8, 38.8]
    form = ClosedForm(budget=12, fixed=1, per_image=0.25, saved=0.15)
    assert (round(form.without, 9), round(form.optimum, 9), round(form.ratio, 9)) == (44, 110, 2.5)


def test_the_search_finds_the_knee_of_the_worked_example() -> None:
    asked: list[int] = []

    def measure(batch: int) -> Point:
        asked.append(batch)
        return Point(batch, seconds(batch))

    curve = search(measure, start=11)
    rates = fitting(curve)
    assert max(rates, key=rates.__getitem__) == 110
    assert optimum(rates, "single") == min(b for b in rates if b / seconds(b) >= 0.99 * 110 / seconds(110)) < 110
    assert optimum(rates, "cluster") >= 110
    assert len(asked) == len(set(asked)) < 60  # nothing is planned twice
    assert [one.batch for one in curve] == sorted(asked)
    coarse = asked[: asked.index(max(asked)) + 1]
    below = [batch < 110 or batch / seconds(batch) >= 0.95 * 110 / seconds(110) for batch in coarse[-4:]]
    assert below == [True, False, False, False]  # three times in a row, and no further


def test_the_search_ends_where_nothing_fits() -> None:
    curve = search(lambda batch: Point(batch, 1.0 if batch <= 40 else None), start=8)
    rates = fitting(curve)
    assert max(rates) == 40 == optimum(rates)  # of b images in 1 second each, the most that fit are the fastest
    assert min(one.batch for one in curve if one.seconds is None) == 41


def test_a_network_that_does_not_fit_has_a_curve_of_one_point() -> None:
    assert search(lambda batch: Point(batch), start=1) == [Point(1)]


def test_the_rate_of_the_worked_example() -> None:
    """8 × 64 images, B0 = 256, rate0 = 0.1."""
    found = Learning(8 * 64)
    assert (found.rate, found.scaling, found.warmup_epochs) == (0.2, "linear", 5)
    assert found.iterations_an_epoch == 1_281_167 // 512


def test_the_rate_grows_with_the_square_root_beyond_32_times() -> None:
    assert (Learning(32 * 256).scaling, Learning(32 * 256).rate) == ("linear", pytest.approx(3.2))
    assert Learning(64 * 256).scaling == "square root"
    assert Learning(64 * 256).rate == pytest.approx(0.8)


def test_warm_up_is_linear_from_the_base_rate() -> None:
    assert [round(warmed_up(0.4, 0.1, 10, done), 9) for done in (0, 5, 9, 10, 11)] == [0.1, 0.25, 0.37, 0.4, 0.4]
    assert warmed_up(0.4, 0.1, 0, 0) == 0.4

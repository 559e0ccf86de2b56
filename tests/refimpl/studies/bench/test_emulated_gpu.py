"""What `refimpl bench --emulated` shows and writes down; that it measures needs the emulated GPU."""

from __future__ import annotations

import pytest

from refimpl.studies.bench import emulated_gpu


def report(product: float, iteration: float, cold: float | None) -> emulated_gpu.EmulatedReport:
    return emulated_gpu.EmulatedReport(
        name="a CPU", versions={"numba": "1"}, load=0.0, turns=3, product=product, kernel=product / 2,
        iteration=iteration, cold=cold,
    )  # fmt: skip


def test_each_figure_is_judged() -> None:
    (table,) = report(2 * 384**3 / 25e9, 0.5, 31.0).tables()
    assert [row[2] for row in table.rows] == ["25.0 GFLOP/s", "50.0 GFLOP/s", "0.50 s", "31.0 s"]
    assert [row[3] for row in table.rows] == ["met", "", "met", "missed"]
    (table,) = report(2 * 384**3 / 19e9, 1.5, None).tables()
    assert [row[3] for row in table.rows] == ["missed", "", "missed", ""]


@pytest.mark.emulated
@pytest.mark.slow
def test_a_product_and_its_kernel_are_measured() -> None:
    """Which takes longer is not asked: on a busy machine either may be held up."""
    assert min(emulated_gpu.products(2)) > 0

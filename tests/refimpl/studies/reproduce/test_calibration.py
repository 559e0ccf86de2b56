"""The fit of Titan X's efficiencies, done again, and the error stated for every figure.

python -m tests.refimpl.studies.reproduce.test_calibration > tests/data/titan_x_calibration.csv
"""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import pytest

from refimpl.machine import MACHINES, TITAN_X
from refimpl.machine.model import Efficiency
from refimpl.studies.reproduce.calibration import calibration, fit, prepare

STATED = Path(__file__).parents[3] / "data" / "titan_x_calibration.csv"


@pytest.mark.slow
def test_the_fit_comes_out_at_the_efficiencies_in_use() -> None:
    found = fit(prepare(), Efficiency(0.8, 0.8, 0.8, 0.8, 0.7))
    assert astuple(found) == pytest.approx(astuple(TITAN_X.efficiency), rel=0.01)


def as_csv() -> str:
    """The rows of `calibration`, as the file states them."""
    lines = [
        "# Milliseconds on Titan X (Maxwell): measured (github.com/soumith/convnet-benchmarks), and as modelled here.",
        "library,network,batch,part,measured_ms,modelled_ms,error_percent",
    ]
    for row in calibration():
        figure = row.measured
        of = f"{figure.library},{figure.network},{figure.batch},{figure.part},{figure.milliseconds:g}"
        lines.append(f"{of},{row.modelled:.1f},{100 * row.error:.1f}")
    return "\n".join(lines)


def test_every_error_is_as_stated() -> None:
    assert STATED.read_text(encoding="utf-8") == as_csv() + "\n"


def test_every_figure_is_met_within_a_fifth() -> None:
    assert max(abs(row.error) for row in calibration()) < 0.20


def test_the_other_machines_take_titan_x_s_efficiencies() -> None:
    assert {machine.efficiency for machine in MACHINES.values()} == {TITAN_X.efficiency}


if __name__ == "__main__":
    print(as_csv())

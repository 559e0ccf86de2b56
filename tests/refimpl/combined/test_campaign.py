"""The page's tables are those of the rows that the campaign kept, and its figures are what the planner gives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.refimpl.combined import campaign
from tests.refimpl.combined.campaign import FIRST, NAMES, OTHERS, PAGE, TABLES, rows, written

pytestmark = pytest.mark.combined


def one(**papers: float) -> dict[str, Any]:
    """A row; a paper that is not named does not fit."""
    cells = {name: [papers[name], "a setup"] if name in papers else None for name in ("baseline", *NAMES)}
    found = {"case": "alexnet/256", "budget": 1 << 30, "floor": 1.0, "bound": 1.01, "combined": 1.1, "cpu": 3.2}
    return found | {"papers": cells, "dynamic": {"vDNN": None, "vDNN++": [2.0, "a setup"]}}


def test_the_page_has_the_tables_of_the_rows() -> None:
    page = PAGE.read_text()
    assert {name for name in TABLES if f"<!-- campaign: {name} -->" in page} == {*TABLES}
    assert written(page, rows()) == page


def test_there_is_a_row_for_every_point() -> None:
    found = [row["case"] for row in rows()]
    assert found == [*(case for case in FIRST for _ in range(campaign.BUDGETS)), *OTHERS]


def test_a_paper_that_is_slower_than_another_has_its_number_and_counts_among_the_three() -> None:
    row = one(**{"vDNN": 1.6, "vDNN++": 1.3, "AccUDNN": 1.2})
    assert "| 1.600† | 1.300† | – | 1.200 | 1.100 | 3.2 |" in campaign.of_points([row])
    assert campaign.of_cases([row]).splitlines()[-1] == (
        "| all | 1 | 1 | 0 | 1.091, at most 1.091 | 1 | 1 | 1.182, at most 1.182 |"
    )
    assert campaign.of_bounds([row]).endswith("| all | 1 | 1.188, at most 1.188 | 1.089, at most 1.089 |")


def test_a_paper_at_the_floor_closes_a_point_for_the_papers_that_it_is_among() -> None:
    row = one(SuperNeurons=1.3, AccUDNN=1.0002) | {"combined": 1.0}
    assert "1.300" not in campaign.of_points([row])
    assert campaign.of_cases([row]).splitlines()[-1] == "| all | 0 | 0 | 0 | – | 1 | 1 | 1.300, at most 1.300 |"


@pytest.mark.slow
def test_a_row_is_what_the_planner_gives() -> None:
    kept = next(row for row in rows() if row["case"] == "alexnet/256" and campaign.is_open(row))
    point = next(point for point in campaign.points_of("alexnet/256") if point.budget == kept["budget"])
    again = campaign.row(point)
    assert {name: again[name] for name in kept if name != "cpu"} == {name: kept[name] for name in kept if name != "cpu"}

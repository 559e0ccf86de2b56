"""The page's tables are those of the rows that the campaign kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.refimpl.combined import campaign
from tests.refimpl.combined.campaign import NAMES, PAGE, TABLES, rows, written

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


def test_a_case_has_a_row_for_every_point() -> None:
    found = [(row["case"], row["budget"]) for row in rows()]
    points = [(one.case, one.budget) for case in dict(found) for one in campaign.points_of(case)]
    assert {*dict(found)} > {"alexnet/256", "vgg16/64", "vgg16/256"} and sorted(found) == sorted(points)


def test_a_policy_is_no_slower_than_with_less_memory() -> None:
    tight = one(vDNN=1.6, AccUDNN=1.2)
    roomy = one(**{"vDNN": 1.7, "vDNN++": 1.3, "AccUDNN": 1.1}) | {"budget": 2 << 30, "combined": 1.15}
    first, second, other = campaign.with_smaller([tight, roomy, one(vDNN=1.9) | {"case": "vgg16/64"}])
    assert (first, other["papers"]["vDNN"]) == (tight, [1.9, "a setup"])
    assert [second["papers"][name] and second["papers"][name][0] for name in NAMES] == [1.6, 1.3, None, 1.1]
    assert second["combined"] == 1.1 and roomy["combined"] == 1.15


def test_a_paper_that_is_slower_than_another_has_its_number_and_counts_among_the_three() -> None:
    row = one(**{"vDNN": 1.6, "vDNN++": 1.3, "AccUDNN": 1.2})
    assert "| 1.600† | 1.300† | – | 1.200 | 1.100 | 3.2 |" in campaign.of_points([row])
    assert campaign.of_cases([row]).splitlines()[-1] == (
        "| all | 1 | 1 | 0 | 1.091, at most 1.091 | 1 | 1 | 1.182, at most 1.182 |"
    )
    assert campaign.of_bounds([row]).endswith("| all | 1 | 1.188, at most 1.188 | 1.089, at most 1.089 |")

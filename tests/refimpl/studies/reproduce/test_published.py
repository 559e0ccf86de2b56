"""The published figures: read from their files, each with a mark and a source, and consistent with one another."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from refimpl.studies.reproduce import PAPERS
from refimpl.studies.reproduce.published import Figures, Published, Reproduced, sized, written
from refimpl.studies.reproduce.superneurons import memory
from refimpl.studies.reproduce.superneurons.memory import FIGURES

ROOT = Path(__file__).resolve().parents[4]
ROOM = ROOT / "refimpl" / "studies" / "reproduce"


def flat(group: Any) -> list[Published]:
    """All figures of a group and of those in it."""
    return [group] if isinstance(group, Published) else [one for inner in group.values() for one in flat(inner)]


@pytest.mark.parametrize(
    ("paper", "count", "marks", "source"),
    [
        ("vdnn", 42, {"P", "p"}, ("MICRO-49 2016, ", "arXiv v1, ")), ("vdnnpp", 2, {"P"}, "IPDPS 2019, abstract"),
        ("superneurons", 197, {"P", "D", "D, C"}, "PPoPP 2018, "), ("accudnn", 5, {"P"}, ("arXiv 1901.06773", "ICCD")),
    ],
)  # fmt: skip
def test_every_figure_has_a_name_of_its_own_a_mark_a_source_and_a_quantity(
    paper: str, count: int, marks: set[str], source: str | tuple[str, ...]
) -> None:
    found = flat(Figures(str(ROOM / paper / "figures.py"))._groups)
    assert len(found) == len({figure.what for figure in found}) == count and paper in PAPERS
    assert {figure.mark for figure in found} == marks
    assert all(figure.source.startswith(source) for figure in found)
    assert all(figure.quantity for figure in found), "a percentage or a ratio has to say it: else no median counts it"
    assert all("{" not in figure.what for figure in found)


def test_a_file_is_read_by_group_and_key(tmp_path: Path) -> None:
    (tmp_path / "published.json").write_text(
        '{"published": [{"mark": "P", "source": "a table", "figures": {'
        '"peak": {"what": "peak", "unit": "GB", "value": 3},'
        '"runs": {"what": "{0}, {1}: runs", "unit": "", "within": 0, "value": {"vgg16(64)": {"all": 7}}}}}]}',
        encoding="utf-8",
    )
    figures = Figures(str(tmp_path / "figures.py"))
    assert figures.one("peak") == Published("peak", 3, "GB", "P", "a table")
    assert figures.by_two("runs")["vgg16(64)"]["all"] == Published("VGG-16(64), all: runs", 7, "", "P", "a table", 0)
    assert figures.data == {}
    assert sized("vgg16(64)") == ("vgg16", 64) and written("alexnet") == "AlexNet"


# -- SuperNeurons' -----------------------------------------------------------------------------------------------------


def test_the_curve_has_the_published_peaks() -> None:
    points = memory.published_curve()
    assert [int(point["step"]) for point in points] == [*range(1, 47)]
    for name in memory.CURVE:
        top, step = max(points, key=lambda point: float(point[f"{name}_mib"])), FIGURES.one(f"peak step {name}")
        peak = FIGURES.one(f"peak {name}")
        assert float(top[f"{name}_mib"]) == pytest.approx(peak.value, abs=memory.CLOSE_MIB)
        assert int(top["step"]) == step.value and top["layer"] in step.what and top["direction"] == "backward"


def test_the_others_are_what_the_abstract_compares_with() -> None:
    deepest = FIGURES.one("deepest").value / max(FIGURES.data["deepest of others"])
    assert deepest == pytest.approx(FIGURES.one("deeper").value, abs=1e-4)
    for network, others in FIGURES.data["largest batch of others"].items():
        assert FIGURES.by("largest batch")[network].value > max(batch for batch in others if batch)


# -- met ---------------------------------------------------------------------------------------------------------------


def test_met_is_close_or_as_close_as_the_figure_asks() -> None:
    for value, within, ours, deviation, met in (
        (100, None, 101.9, 0.019, True), (100, None, 102.1, 0.021, False), (100, None, 97.9, -0.021, False),
        (84, 0.0, 84, 0.0, True), (84, 0.0, 85, 1 / 84, False),  # close, and still another count
        (401, 0.02, 401.019, 4.7e-5, True), (401, 0.02, 406.125, 0.01278, False),
        (0, None, 0, 0.0, True), (0, None, 1, inf, False),
    ):  # fmt: skip
        found = Reproduced(Published("x", value, "", "P", "test", within), ours, "")
        assert found.deviation == pytest.approx(deviation, rel=1e-2, abs=1e-12) and found.met is met

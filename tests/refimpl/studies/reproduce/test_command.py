"""`refimpl reproduce`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refimpl.report.tables import Column, Table
from refimpl.studies.reproduce import PAPERS, Paper
from refimpl.studies.reproduce.evaluation import Part, one_table, reproduced_json
from refimpl.studies.reproduce.published import Found, Published, Reproduced
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

# -- one paper ---------------------------------------------------------------------------------------------------------


@pytest.mark.superneurons
def test_what_cannot_be_had_is_refused_at_once(wrong: Wrong, tmp_path: Path) -> None:
    picture = tmp_path / "pool.png"
    assert f"--picture {picture}: there is no picture of pool" in wrong(
        "reproduce", "superneurons", "--only", "pool", "--picture", picture
    )


# -- any paper ---------------------------------------------------------------------------------------------------------


def test_json_has_no_infinity() -> None:
    figure = Reproduced(Published("moved", 0, "GB", "p", "test"), 0.5, "how")
    assert json.loads(json.dumps(reproduced_json(figure), allow_nan=False)) == {
        "what": "moved", "value": 0, "unit": "GB", "mark": "p", "source": "test", "within": None,
        "above": False, "at_most": False, "in_medians": True, "of": None, "quantity": "bytes", "ours": 0.5,
        "deviation": None, "met": False, "note": "how",
    }  # fmt: skip


@dataclass(frozen=True)
class OneFigure(Paper):
    """A paper with a part that has a figure, and one that has none and must not be asked."""

    ours: float = 0.0

    def parts(self) -> dict[str, Part]:
        figure = Published(f"{self.title}'s peak", 100, "GB", "P", "a table")
        return {
            "peak": Part("peak", "", 1, lambda watch: Found([Reproduced(figure, self.ours, "")], []), units="GB: 1."),
            "rows": Part("rows", "", 1, lambda watch: pytest.fail("has no published figure"), beside=False),
        }


def test_all_papers_in_one_run(refimpl: Command, wrong: Wrong, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    papers = {
        name: OneFigure(name.title(), name, "a network", "vdnn-all", "--batch 1", ours=ours)
        for name, ours in (("one", 100.0), ("two", 130.0))
    }
    monkeypatch.setattr("refimpl.studies.reproduce.command.PAPERS", papers)
    said = refimpl("reproduce", "all")
    assert said.status == 0
    lines = said.out.splitlines()
    assert {"One: published beside ours", "Two: published beside ours", "Published figures, met and missed"} < {*lines}
    assert ["all", "2", "1", "1", "2", "15.0%", "0", "–"] in [line.split() for line in lines]
    document = json.loads(refimpl("reproduce", "all", "--json").out)
    assert [paper["paper"] for paper in document["papers"]] == ["one", "two"]
    assert [len(paper["published"]) for paper in document["papers"]] == [1, 1]
    assert document["summary"][-1].items() >= {"name": "all", "figures": 2, "met": 1, "missed": 1}.items()
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "fidelity.md"
    page.write_text("before\n<!-- begin reproduce all -->\nold\n<!-- end reproduce all -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr("refimpl.studies.reproduce.command.root", lambda: tmp_path)
    assert f"written: {page}" in refimpl("reproduce", "all", "--write").err
    text = page.read_text(encoding="utf-8")
    assert "old" not in text and "| all | 2 | 1 | 1 | 2 | 15.0% | 0 | – |" in text and text.endswith("after\n")
    assert lacks(wrong("reproduce", "all", "--only", "peak"), "--only", "one", "two") == []
    assert lacks(wrong("reproduce", "all", "--run"), "--run", "one", "two") == []


COMMAND = "refimpl.studies.reproduce.command"


@dataclass(frozen=True)
class DrawnPaper(Paper):
    """A paper with pictures of two of its three parts, and a measurement that says what it was asked."""

    def parts(self) -> dict[str, Part]:
        def part(name: str, draw: bool) -> Part:
            found = Found([], [DrawnRow(name, 1.5)])
            table = one_table(f"Table of {name}", (Column("name", "name"), Column("number", "number", str)))
            picture: Any = (lambda rows: rows[0].name) if draw else None
            return Part(name, "", 2, lambda watch: found, table, picture, beside=False)

        return {name: part(name, draw) for name, draw in (("first", True), ("second", False), ("third", True))}

    def measured(self) -> Any:
        return Measuring


@dataclass(frozen=True)
class DrawnRow:
    name: str
    number: float


@dataclass(frozen=True)
class Measuring:
    """In place of a paper's measurement."""

    asked: ClassVar[list[Any]] = []
    device: ClassVar[str] = "a device"

    @staticmethod
    def rounds(backend: str, iterations: int) -> int:
        return len(backend) * iterations

    @classmethod
    def measure(cls, request: Any) -> Measuring:
        cls.asked.append(request)
        return cls()

    def tables(self) -> list[Table]:
        return [Table("measured", ["what"], [["a row"]])]

    def notes(self) -> list[str]:
        return ["Not measured: the rest."]

    def write(self, root: Path, paper: str, title: str) -> list[Path]:
        return [root / f"{paper}-{title}.md"]


@pytest.fixture
def one_paper(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The command knows `DrawnPaper` alone; what is drawn and measured."""
    paper = DrawnPaper("One", "one", "a network", "vdnn-all", "--batch 1")
    saved: list[Any] = []
    monkeypatch.setattr(f"{COMMAND}.PAPERS", {"one": paper})
    monkeypatch.setattr(f"{COMMAND}.save", lambda figure, path: saved.append((figure, path.name)))
    monkeypatch.setattr(f"{COMMAND}.root", lambda: Path("/docs"))
    monkeypatch.setattr("refimpl.machine.here.gpu_at_hand", lambda: False)
    Measuring.asked.clear()
    return saved


def test_each_part_has_its_table_and_its_picture(refimpl: Command, one_paper: list[Any], tmp_path: Path) -> None:
    said = refimpl("reproduce", "one", "--picture", tmp_path / "a.svg")
    assert one_paper == [("first", "a-first.svg"), ("third", "a-third.svg")]
    titles = [line for line in said.out.splitlines() if line.startswith(("Table", "Picture"))]
    pictures = [f"Picture: {tmp_path}/a-{name}.svg" for name in ("first", "third")]
    assert titles == ["Table of first", "Table of second", "Table of third", *pictures]
    said = refimpl("reproduce", "one", "--only", "third", "--only", "second", "--picture", tmp_path / "a.svg", "--json")
    assert one_paper[2:] == [("third", "a.svg")], "the only one has the name that was given"
    assert json.loads(said.out) == {
        "paper": "one", "published": [], "second": [{"name": "second", "number": 1.5}],
        "third": [{"name": "third", "number": 1.5}],
    }  # fmt: skip


def test_a_measurement_is_asked_for_and_shown(refimpl: Command, wrong: Wrong, one_paper: list[Any]) -> None:
    words = ("reproduce", "one", "--run", "--network", "lenet", "--batch", 3, "--budget", "2GiB", "--iterations", 7)
    said = refimpl(*words, "--write")
    assert " ".join(said.out.split()) == "One, measured on a device measured what a row Not measured: the rest."
    assert said.err.endswith("written: /docs/one-One.md\n")
    (asked,) = Measuring.asked
    assert (asked.network, asked.batch, asked.policy, asked.budget, asked.backend, asked.iterations) == (
        "lenet", 3, "vdnn-all", "2GiB", "cpu", 7,
    )  # fmt: skip
    assert json.loads(refimpl(*words, "--policy", "accudnn", "--json").out) == {}
    assert Measuring.asked[1].policy == "accudnn"
    assert lacks(wrong("reproduce", "one", "--run", "--picture", "a.svg"), "--picture", "--run") == []


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_entry_is_whole(name: str) -> None:
    from refimpl.names import presets

    paper = PAPERS[name]
    parts = paper.parts()
    assert len(parts) > 1 and all(part.about and part.rounds > 0 for part in parts.values())
    assert paper.policy in presets.PRESETS and paper.title and paper.trains


@pytest.mark.parametrize("name", PAPERS)
def test_running_wants_a_gpu_or_a_small_network(name: str, wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refimpl.machine.here.gpu_at_hand", lambda: False)
    said = wrong("reproduce", name, "--run")
    assert f"no GPU here; a small network runs on the CPU: {PAPERS[name].small}" in said
    small = PAPERS[name].small.split()
    assert lacks(wrong("reproduce", name, "--run", *small, "--iterations", 0), "--iterations", 1, 0) == []
    assert lacks(wrong("reproduce", name, "--write"), "--write", "--run") == []
    assert lacks(wrong("reproduce", name, "--policy", "vdnn-all"), "--policy", "--run") == []
    assert lacks(wrong("reproduce", name, "--run", "--only", "networks"), "--only", "--run") == []

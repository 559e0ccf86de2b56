"""The entries of the challenge: the table of the page, and which rows a pull request's workflow judges."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.test_docs import ROOT, script

entries = script("entries")
HEAD = ",".join(entries.COLUMNS).replace("planning, s", '"planning, s"') + "\n"
KNOWN = "no policy,baseline,10.000,0.0%,10.000,10.000,0,7,2026-11-29,a67e3af2\n"
MINE = "Ada,docs/entries/mine.py:SETUP,2.000,50.0%,2.000,2.000,50,7,2026-11-29,a67e3af2\n"


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two rows, one of a file, that is committed."""
    git(tmp_path, "init", "-q")
    (tmp_path / "docs" / "entries").mkdir(parents=True)
    (tmp_path / "docs" / "entries" / "mine.py").write_text("SETUP = 1\n")
    (tmp_path / "docs" / "entries" / "entries.csv").write_text(HEAD + KNOWN + MINE)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "two rows")
    monkeypatch.setattr(entries, "ROOT", tmp_path)
    monkeypatch.setattr(entries, "judged", lambda row: row)
    return tmp_path / "docs" / "entries"


def setups(commit: str = "HEAD") -> list[str]:
    return [row["setup"] for row in entries.touched(commit)]


def test_rows_that_are_new_or_changed_or_whose_file_is_are_judged(folder: Path) -> None:
    assert setups() == []
    (folder / "mine.py").write_text("SETUP = 2\n")
    assert setups() == ["docs/entries/mine.py:SETUP"]
    git(folder, "commit", "-aqm", "another setup")
    (folder / "entries.csv").write_text(HEAD + KNOWN.replace("10.000", "1.000") + MINE + "Bo,rotor,,,,,,,,\n")
    assert setups() == ["baseline", "rotor"]
    first = git(folder, "commit-tree", "-m", "nothing", git(folder, "hash-object", "-t", "tree", "/dev/null"))
    assert len(setups(first)) == 3  # there was no table


def test_a_figure_that_differs_and_a_second_file_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert entries.faults(entries.stored()) == []
    monkeypatch.setattr(entries, "judged", lambda row: row | {"score": "3.000", "planning, s": "900"})
    (folder / "helper.py").write_text("")
    assert entries.faults(entries.stored()[1:]) == [
        "docs/entries/helper.py is in no row; an entry is one file",
        "docs/entries/mine.py:SETUP: score is 2.000 in the table, and 3.000 here",
    ]


def test_a_row_is_what_the_challenge_and_the_lab_say(monkeypatch: pytest.MonkeyPatch) -> None:
    part = {"points": 3, "fits": 2, "score": 1.23456}
    said = {"whole": part, "printed": part, "drawn": part | {"score": 9.0}, "planning_seconds": 4.4}
    monkeypatch.setattr(
        entries, "run", lambda *words: json.dumps({"scores": [said]}) if "study" in words else "c0ffee\n"
    )
    monkeypatch.setattr(entries, "mark", lambda setup: "72")
    made = entries.judged({"by": "Ada", "setup": "x"})
    assert [made[one] for one in entries.SCORES] == ["1.235", "66.7%", "1.235", "9.000", "72"]
    assert (*made,) == ("by", "setup", *entries.COLUMNS[2:]) and made["commit"] == "c0ffee"


def test_the_page_has_the_stored_rows_the_best_first() -> None:
    assert entries.table() in entries.PAGE.read_text("utf-8"), "python docs/entries.py"
    scores = [float(row["score"]) for row in entries.stored()]
    assert scores == sorted(scores) and len(scores) > 15
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]) and row["by"] for row in entries.stored())


@pytest.mark.matrix  # half a minute of plans
def test_a_stored_row_is_what_is_planned_today() -> None:
    (row,) = [row for row in entries.stored() if row["setup"] == "superneurons-liveness"]
    assert entries.faults([row]) == []


def test_the_workflow_gives_an_entry_nothing() -> None:
    text = (ROOT / ".github" / "workflows" / "entries.yml").read_text("utf-8")
    settings = re.sub(r"#.*", "", text)
    assert "pull_request:" in settings and "pull_request_target" not in settings and "secrets" not in settings
    assert "permissions:\n  contents: read\n" in settings and "persist-credentials: false" in settings

"""A policy of one's own beside all presets: what docs/study.md tells a reader to do, on fewer points."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from refimpl import cli
from refimpl.names.presets import PRESETS
from refimpl.studies.challenge import command
from refimpl.studies.challenge.point_set import printed
from refimpl.studies.grid.command import points_of

ROOT = Path(__file__).resolve().parents[4]
MINE = "docs/trial/my_policy.py:MINE"


def commands() -> list[str]:
    """Those of the page's section."""
    text = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Ten minutes.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^refimpl .*$", section, re.MULTILINE)


def test_the_trial_has_fifty_points_and_every_preset() -> None:
    every = points_of(str(ROOT / "docs" / "trial" / "trial.toml"))
    assert len({(one.network, one.machine, one.budget) for one in every}) == 50 and len(every) == 800 == 50 * 16
    assert {one.setup.split()[0] for one in every} == {MINE, *PRESETS}


@pytest.mark.slow
def test_the_trial_works_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs" / "trial"
    folder.mkdir(parents=True)
    for name in ("my_policy.py", "trial.toml"):
        text = (ROOT / "docs" / "trial" / name).read_text(encoding="utf-8")
        text = re.sub(r"^networks = .*$", 'networks = ["tiny-vgg"]', text, flags=re.MULTILINE)
        text = re.sub(r"^machines = .*$", 'machines = ["titan-x"]', text, flags=re.MULTILINE)
        text = re.sub(r"^budgets = .*$", "budgets = [0.6]", text, flags=re.MULTILINE)
        (folder / name).write_text(text.replace("effort=10", "effort=2"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "printed", lambda: printed()[:1])
    monkeypatch.setattr(command, "drawn", lambda seed: [])
    called = commands()
    assert [one.split()[1] for one in called] == ["plan", "study", "study", "study"]
    for one in called:
        jobs = ["--jobs", "1"] * (one.split()[1] == "study")
        assert cli.main([*shlex.split(one)[1:], *jobs]) == 0, one
    assert MINE in capsys.readouterr().out
    assert all((tmp_path / f"trial-{name}.png").stat().st_size > 10_000 for name in ("profile", "heat-map"))

"""`refimpl view`."""

from __future__ import annotations

from pathlib import Path

import pytest

from refimpl.cli import resolve
from tests.refimpl.cli.said import Command

MACHINE = ("--machine", "titan-x")


def test_a_page_of_one_program_and_of_two(refimpl: Command, tmp_path: Path) -> None:
    said = refimpl("view", "lenet", "--policy", "vdnn-all", "--out", tmp_path / "one.html", *MACHINE)
    assert said.status == 0 and "lenet, batch 32 · vdnn-all · titan-x (simulated)" in said.out
    more = ("--against", "superneurons", "--against-network", "tiny-resnet")
    said = refimpl("view", "lenet", "--policy", "vdnn-all", *more, "--out", tmp_path / "two.html", *MACHINE)
    assert said.status == 0 and "beside tiny-resnet" in said.out
    titles = [(tmp_path / name).read_text().split("</title>")[0] for name in ("one.html", "two.html")]
    assert "superneurons" not in titles[0] and "superneurons" in titles[1]


def test_both_programs_are_proved(refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proved: list[str] = []
    monkeypatch.setattr(resolve, "proved", lambda program: proved.append(program.setup.name))
    refimpl("view", "lenet", "--against", "superneurons", "--out", tmp_path / "page.html", *MACHINE)
    assert proved[-1] == "superneurons" and "baseline" in proved


def test_wrong_words_are_one_line_and_no_page(refimpl: Command, tmp_path: Path) -> None:
    for words in (("--against", "vdn-all"), ("--against-network", "vgg17"), ("--budget", "1MiB")):
        said = refimpl("view", "lenet", *words, "--out", tmp_path / "page.html", *MACHINE)
        assert said.status in (2, 3) and len(said.err.splitlines()) == 1
    said = refimpl("view", "lenet", "--out", tmp_path / "no folder" / "page.html", *MACHINE)
    assert said.status == 2 and "--out" in said.err
    assert list(tmp_path.iterdir()) == []

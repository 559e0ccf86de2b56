"""`refimpl view`: a page, and files that other tools open."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest

from refimpl.cli import GONE
from refimpl.report.allocation_log import read_rmm
from tests.refimpl.cli.said import Command

MACHINE = ("--machine", "titan-x")


def test_a_page_of_one_program_and_of_two(refimpl: Command, tmp_path: Path) -> None:
    said = refimpl("view", "lenet", "--policy", "vdnn-all", "--out", tmp_path / "one.html", *MACHINE)
    assert said.status == 0 and "lenet, batch 32 · vdnn-all · titan-x (simulated)" in said.out
    said = refimpl(
        "view", "lenet", "--policy", "vdnn-all", "--against", "superneurons", "--out", tmp_path / "two.html", *MACHINE
    )
    assert said.status == 0 and "beside lenet" in said.out
    titles = [(tmp_path / name).read_text().split("</title>")[0] for name in ("one.html", "two.html")]
    assert "superneurons" not in titles[0] and "superneurons" in titles[1]


def test_a_picture_of_memory_above_streams(refimpl: Command, tmp_path: Path) -> None:
    said = refimpl("view", "lenet", "--policy", "vdnn-all", "--out", tmp_path / "one.svg", *MACHINE)
    drawn = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert said.status == 0 and "one.svg: lenet" in said.out
    words = ("every map stays on the GPU: ", "with vdnn-all: ", "to the host's memory", "back, before it is needed")
    assert all(word in drawn for word in (*words, "time since the iteration began (ms)", "memory in use (MiB)"))
    assert "the GPU has" not in drawn  # 12 GiB, far above the curves
    least, most = sorted(float(n) for n in re.findall(r": ([\d.]+) MiB at most", drawn))
    assert least < most
    said = refimpl("view", "lenet", "--against", "vdnn-all", "--out", tmp_path / "two.png", *MACHINE)
    assert said.status == 2 and "--against" in said.err and not (tmp_path / "two.png").exists()


def test_wrong_words_are_one_line_and_no_page(refimpl: Command, tmp_path: Path) -> None:
    wrong = (
        "--against vdn-all",
        "--budget 1MiB",
        "--run",
        "--against vdnn-all --format rmm",
    )
    for words in (*map(str.split, wrong), ("--format", "chrome", "--budget", "64KiB")):
        said = refimpl("view", "lenet", *words, "--out", tmp_path / "page.html", *MACHINE)
        assert said.status in (2, 3) and len(said.err.splitlines()) == 1
    said = refimpl("view", "lenet", "--out", tmp_path / "no folder" / "page.html", *MACHINE)
    assert said.status == 2 and "--out" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("form", "ending", "is_so"),
    [
        ("chrome", "json", lambda path: json.loads(path.read_text())["traceEvents"]),
        ("snapshot", "pickle", lambda path: set(pickle.loads(path.read_bytes())) >= {"segments", "device_traces"}),
        ("rmm", "csv", lambda path: len(read_rmm(path)) > 20),
    ],
)
def test_a_format_of_another_tool_by_its_name_or_by_the_ending(
    refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, ending: str, is_so
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "simulated on titan-x" in refimpl("view", "lenet", "--format", form, "--out", "named.dat", *MACHINE).out
    assert refimpl("view", "lenet", "--out", f"ended.{ending}", *MACHINE).status == 0
    assert refimpl("view", "lenet:superneurons", "--format", form, *MACHINE).status == 0
    written = sorted(("named.dat", f"ended.{ending}", f"lenet-superneurons.{ending}"))
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    assert all(is_so(Path(name)) for name in written)


def test_a_measured_trace(refimpl: Command, tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    said = refimpl("view", "lenet", "--batch", 4, "--run", "--backend", "cpu", "--out", path)
    assert said.status == 0 and "measured on" in said.out and path.is_file()


def test_a_command_that_went_names_its_successor(refimpl: Command) -> None:
    for name, successor in GONE.items():
        said = refimpl(name, "lenet", "--out", "traces")
        assert (said.status, said.err) == (2, f"refimpl {name}: this is now {successor}\n")

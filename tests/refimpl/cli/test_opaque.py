"""Commands on a module with operators that have no kernel here: planned and marked everywhere, and never run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

torch = pytest.importorskip("torch")

MODULES = """
import torch
from torch import nn


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.fc(torch.erf(torch.cumsum(x, 2)).mean((2, 3)))


def make(batch=4):
    return Odd(), (batch, 3, 8, 8)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.run, self.fc = nn.Embedding(20, 8), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 20)

    def forward(self, x):
        return self.fc(self.run(self.embed(x))[0])


def words(batch=4):
    return Words(), torch.zeros(batch, 12, dtype=torch.int64)
"""
SHARES = r"\d+% of the time and \d+% of the bytes opaque"
#: Command → its options.  All of them print a table, or write a page that has one.
PLANNING = {
    "plan": ("--policy", "superneurons"),
    "compare": ("--with", "vdnn-all", "--with", "superneurons"),
    "study": ("--with", "baseline", "--budget", 1.0, "--effort", 1, "--jobs", 1),
    "tune": ("--budget", "400KiB"),
    "torch": ("--budget", 1.0, "--set", "effort=1"),
    "view": ("--out", "page.html"),
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"modules_{abs(hash(tmp_path))}.py"
    path.write_text(MODULES)
    return path.name


SLOW = ("tune", "torch")  #: many plans, or many exports


@pytest.mark.parametrize("command", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in PLANNING])
def test_every_command_that_plans_marks_what_is_opaque(refimpl: Command, file: str, command: str) -> None:
    said = refimpl(command, f"{file}:make", *PLANNING[command], "--machine", "titan-x")
    assert said.status == 0, said.err
    assert re.search(SHARES, " ".join(said.out.split()))
    if command == "view":
        assert re.search(SHARES, Path("page.html").read_text(encoding="utf-8"))
        said = refimpl("view", f"{file}:make", "--format", "rmm", "--out", "log.csv", "--machine", "titan-x")
        assert re.search(SHARES, " ".join(said.out.split()))


RUNNING = {"run": ("--steps", 1), "export": ("--out", "a.py"), "profile": ("--out", "a.json")}


@pytest.mark.parametrize("command", RUNNING)
def test_what_would_run_it_refuses_in_one_line_that_lists_the_operators(wrong: Wrong, file: str, command: str) -> None:
    line = wrong(command, f"{file}:make", *RUNNING[command])
    assert lacks(line, "can be planned and not run", "aten.cumsum.default and aten.erf.default are not supported") == []
    assert "mean" not in line
    assert not Path("a.py").exists() and not Path("a.json").exists()


def test_a_recurrent_layer_has_cudnns_reserve_as_an_item(refimpl: Command, file: str) -> None:
    said = refimpl("plan", f"{file}:words", "--machine", "titan-x")
    assert lacks(" ".join(said.out.split()), "not counted: cuDNN's reserve", "gates, cell and output") == []
    most = 32 * 12 * (4 * 16 + 2 * 16) * 4  # texts, words, gates with cell and output, bytes
    assert f"0 bytes to {most // 1024} KiB" in " ".join(said.out.split())

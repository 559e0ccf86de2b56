"""Commands with a module of one's own in a slot: it works everywhere, and what it gets wrong is one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.messages import lacks
from tests.refimpl.cli.said import Command

PAGE = Path(__file__).parents[3] / "docs" / "slots" / "index.md"
MINE = ("--set", "liveness=layer-wise", "--set", "offload={}:BigMaps:least=256KiB")
PARETO = ("pareto", "tiny-vgg", "--batch", 64, "--machine", "titan-x", "--with", "baseline", "--no-bound")


def documented() -> str:
    """The module that the page about slots shows."""
    (module,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return module


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The documented module, in the working directory, under a name that no other test uses."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"mine_{abs(hash(tmp_path))}.py"
    path.write_text(documented())
    return path


def using(path: Path) -> list[str]:
    return [word.format(path.stem) for word in MINE]


@pytest.mark.slow
def test_worker_processes_find_a_module_of_ones_own(mine: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "refimpl", *map(str, PARETO), *using(mine), "--budget", "40MiB", "--effort", "5"]
    done = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, cwd=tmp_path, env=environment())
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "40 MiB" in done.stdout


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}


def broken(path: Path, before: str, after: str) -> int:
    """Put a mistake into the module; the number of its line."""
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    return text[: text.index(before)].count("\n") + 1 + after[: after.index("1 // 0")].count("\n")


COMMANDS = {
    "plan": (), "compare": ("--with", "baseline"), "run": ("--steps", 1), "view": (),
    "export": ("--out", "a.py"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ("return Leaving(context, self.least)", "return 1 // 0", "bind"),
        ('return dict.fromkeys(self.at, "a large map")', "return {\n            1 // 0: 2}", "offloads"),
    ],
    ids=["bind", "offloads"],
)
def test_an_error_in_a_module_is_one_line_with_its_own_line(
    refimpl: Command, mine: Path, command: str, before: str, after: str, where: str
) -> None:
    line = broken(mine, before, after)
    said = refimpl(command, "tiny-vgg", "--batch", 4, "--machine", "titan-x", *using(mine), *COMMANDS[command])
    assert said.status == 2 and said.out == ""
    wanted = f"refimpl {command}: {mine.name}, line {line}, in {where}: ZeroDivisionError: "
    assert said.err.startswith(wanted) and said.err.count("\n") == 1, said.err


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_error_in_a_workers_module_is_the_same_line(refimpl: Command, mine: Path, jobs: int) -> None:
    line = broken(mine, "return Leaving(context, self.least)", "return 1 // 0")
    said = refimpl(*PARETO, *using(mine), "--budget", "40MiB", "--jobs", jobs, "--out", "kept")
    assert said.status == 2 and said.err.count("\n") == 1, said.err
    assert lacks(said.err, "refimpl pareto", mine.name, line, "bind", "ZeroDivisionError", "kept") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return [x for x, number in self.at.items() if number == step.number]", "return None"),
        ('return dict.fromkeys(self.at, "a large map")', "return None"),
    ],
)
def test_an_answer_of_another_type_is_one_line_that_names_the_module(
    refimpl: Command, mine: Path, before: str, after: str
) -> None:
    mine.write_text(mine.read_text().replace(before, after))
    said = refimpl("plan", "tiny-vgg", "--batch", 4, "--machine", "titan-x", *using(mine))
    assert said.status == 2 and said.err.count("\n") == 1, said.err
    assert (mine.stem in said.err and "TypeError" in said.err) or "AttributeError" in said.err


def test_a_module_that_exits_does_not_end_the_command_in_silence(refimpl: Command, mine: Path) -> None:
    mine.write_text(mine.read_text().replace("return Leaving(context, self.least)", "raise SystemExit(0)"))
    said = refimpl("plan", "tiny-vgg", "--batch", 4, "--machine", "titan-x", *using(mine))
    assert said.status == 2 and f"{mine.name}, line " in said.err and "SystemExit: 0" in said.err


@pytest.mark.slow
def test_a_module_that_no_other_process_can_have_is_refused(refimpl: Command, mine: Path) -> None:
    mine.write_text(
        documented()
        + "\n\ndef made():\n    class Local(BigMaps):\n        pass\n    return Local()\n\n\nLOCAL = made()\n"
    )
    words = ("--set", "liveness=layer-wise", "--set", f"offload={mine.stem}:LOCAL", "--budget", "40MiB", "--jobs", 2)
    said = refimpl(*PARETO, *words)
    assert said.status == 2 and said.err.count("\n") == 1 and "--jobs 1" in said.err


@pytest.mark.slow
def test_a_killed_worker_is_one_line_and_the_points_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "points"
    command = [sys.executable, "-m", "refimpl", "pareto", "vgg16", "--machine", "titan-x", "--jobs", "2", "--out", out]
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while time.monotonic() < until and not (out.exists() and out.read_bytes().count(b"\n") > 3):
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(workers[0], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and err.count("\n") == 1, err
    assert lacks(err, out) == []


def test_a_function_of_ones_own_may_import_its_neighbours_late(
    refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder that is not the working directory, when the function is called and not before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "networks"
    folder.mkdir()
    name = f"neighbour_{abs(hash(tmp_path))}"
    (folder / f"{name}.py").write_text("from refimpl.names.networks import lenet\n")
    (folder / "own.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n\n\n"
        "@dataclass\nclass Sizes:\n    name: ClassVar[str] = 'x'\n    width: int = 3\n\n\n"
        f"def make(batch):\n    from {name} import lenet\n    return lenet(batch=batch)\n\n\n"
        "def fails(batch):\n    return {}['x']\n"
    )
    said = refimpl("summary", f"{folder / 'own.py'}:make", "--batch", 3)
    assert said.status == 0, said.err
    said = refimpl("summary", f"{folder / 'own.py'}:fails")
    assert said.status == 2 and lacks(said.err, 18, "fails", "KeyError", "'x'") == [] and "own.py" in said.err

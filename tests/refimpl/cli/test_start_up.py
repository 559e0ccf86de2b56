"""How long the command takes before it does anything: what it imports, and processor seconds."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

IMPORTED = "import sys; from refimpl.cli import main; code = main(sys.argv[1:]); print(*sys.modules); sys.exit(code)"


def run(*words: str, code: str | None = None, bytecode: Path | None = None) -> str:
    """What a command prints, run in a process of its own; `bytecode`: where Python keeps what it compiles."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if bytecode is not None:
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    start = ["-c", code] if code else ["-m", "refimpl"]
    return subprocess.run(
        [sys.executable, *start, *words], env=environment, check=True, capture_output=True, text=True
    ).stdout


def processor_seconds(*words: str, bytecode: Path) -> float:
    """Of the quickest of some runs, once all is compiled."""
    run(*words, bytecode=bytecode)
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(*words, bytecode=bytecode)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def test_the_list_of_commands_needs_no_network() -> None:
    modules = run(code=IMPORTED).split()
    assert "refimpl.cli.parallel" in modules
    assert not {"numpy", "refimpl.network", "refimpl.machine", "refimpl.planner"} & {*modules}


def test_a_plan_needs_no_numpy() -> None:
    modules = run("plan", "lenet", "--budget", "1GiB", code=IMPORTED).split()
    assert "refimpl.planner.loop" in modules
    assert not {"numpy", "numba", "matplotlib", "torch"} & {*modules}


@pytest.mark.slow
@pytest.mark.timing
def test_start_up_is_quick(tmp_path: Path) -> None:
    assert processor_seconds("--help", bytecode=tmp_path) < 0.15
    assert processor_seconds("plan", "lenet", bytecode=tmp_path) < 0.3

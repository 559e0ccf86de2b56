"""Another project's package `kernels` is refused in one line when refimpl is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def imported_beside(folder: Path) -> subprocess.CompletedProcess[str]:
    """`import refimpl` where Python finds packages in `folder` first."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    command = [sys.executable, "-c", "import refimpl; print(refimpl.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.mark.parametrize("text", ["", "PROJECT = 'other'", "raise RuntimeError('no GPU')"])
def test_the_kernels_of_another_project_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text(text)
    done = imported_beside(tmp_path)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: refimpl needs its own package kernels"), done.stderr
    assert str(ROOT) in last and "reinstall refimpl" in last
    assert ("RuntimeError: no GPU" if "raise" in text else str(tmp_path)) in last


def test_our_own_kernels_are_accepted(tmp_path: Path) -> None:
    assert imported_beside(tmp_path).returncode == 0

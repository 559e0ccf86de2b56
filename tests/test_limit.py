"""An endless loop is a failed test with a traceback, and the other tests go on."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.limit import Endless, limited

ROOT = Path(__file__).resolve().parent.parent

LOOPS = """
from hypothesis import given, strategies
import pytest, time

def test_a_loop():
    while True:
        try:
            list(range(1000))
        except Exception:
            pass

@given(strategies.integers())
def test_an_example(number):
    while number > 10:
        list(range(1000))

def test_what_comes_after():
    pass

@pytest.mark.campaign
def test_a_search():
    begin = time.process_time()
    while time.process_time() < begin + 1.5:
        list(range(1000))

"""


def test_a_loop_is_ended() -> None:
    with pytest.raises(Endless, match=r"0\.05 s of processor time; more: pytest --limit"), limited(0.05):
        while True:
            with suppress(Exception):
                sum(range(1000))


def test_the_limit_ends_with_the_test() -> None:
    with limited(0.05):
        pass
    for _ in range(100):
        sum(range(20_000))


def pytest_inside(folder: Path, tests: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    loops = folder / "test_loops.py"
    loops.write_text(LOOPS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    command += ["-p", "kernels.targets.emulated"]  # imported before the first test, and not in its time
    command += ["-q", "-p", "no:cacheprovider", "--limit", "1", *options, *(f"{loops}::{name}" for name in tests)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one run of loops and a campaign prints; the campaign is selected by its mark."""
    names = ["test_a_loop", "test_an_example", "test_what_comes_after", "test_a_search"]
    return pytest_inside(tmp_path_factory.mktemp("loops"), names, "-m", "campaign or not campaign").stdout


@pytest.mark.slow
def test_a_loop_fails_its_test_alone(printed: str) -> None:
    """Two loops fail; a test after them and a campaign pass."""
    assert "2 failed, 2 passed" in printed, printed
    # A traceback shows a test as far as the line on which the alarm came, and its frame.
    assert all(f"code {name}>" in printed for name in ("test_a_loop", "test_an_example"))
    assert "Endless: the test has taken 1 s" in printed

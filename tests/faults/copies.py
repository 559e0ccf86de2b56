"""Copies of a tree in which tests run while a file is wrong: one copy for each worker, compiled kernels shared."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kernels.targets.cpu.build import cache_directory

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kernels", "refimpl")
WRONG_IN = (*PACKAGES, "docs", "tutorials")  #: folders in which a fault may be
TEXTS = (".py", ".c", ".h", ".ipynb", ".json")
COPIED = (*PACKAGES, "tests", "docs", "tutorials", "README.md", "CONTRIBUTING.md", "pyproject.toml", "setup.py")

#: A plugin of pytest: hypothesis tells the first example that fails and looks for no smaller one, however slow it is.
NO_SHRINKING = """
from hypothesis import HealthCheck, Phase, settings

def pytest_collection():
    phases = Phase.explicit, Phase.generate
    settings.register_profile("first", settings.default, phases=phases, suppress_health_check=[*HealthCheck])
    settings.load_profile("first")
"""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Run:
    """One run of pytest."""

    status: int | None  #: None: it took too long
    failed: list[str]  #: names of tests, and of files that could not be imported
    seconds: float  #: of the processor, with all processes that it started


class Copy:
    """A copy of a project's files.

    Args:
        root: the project.
        place: the copy's folder; the one above has what all copies share: compiled kernels and the plugin.
    """

    def __init__(self, root: Path, place: Path) -> None:
        self.place = place
        path = os.pathsep.join((str(place), str(place.parent)))
        self.environment = os.environ | {"PYTHONPATH": path, "REFIMPL_CACHE": str(place.parent / "cache")}
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
            elif (root / name).exists():
                shutil.copy2(root / name, place / name)
        files = (path for folder in WRONG_IN for path in (place / folder).rglob("*"))
        self.sources = {path: path.read_text("utf-8") for path in files if path.suffix in TEXTS}

    @contextmanager
    def with_text(self, path: Path, text: str) -> Iterator[None]:
        """Inside, the file has this text."""
        path.write_text(text, "utf-8")
        try:
            yield
        finally:
            path.write_text(self.sources[path], "utf-8")

    def has(self, test: str) -> bool:
        return (self.place / test.partition("::")[0]).exists()

    def run(self, arguments: Sequence[str], patience: float) -> Run:
        """Run pytest for at most `patience` seconds."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
        command += ["-p", "no_shrinking"]
        with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
            process = subprocess.Popen(
                command, cwd=self.place, env=self.environment, stdout=said, stderr=said, start_new_session=True
            )
            status, seconds = ended(process, patience)
            said.seek(0)
            failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said.read(), re.MULTILINE)
        return Run(status, failed, seconds)


def ended(process: subprocess.Popen[bytes], patience: float) -> tuple[int | None, float]:
    """The exit status, None of a process that had to be killed, and the processor's seconds."""
    until, late = time.monotonic() + patience, False
    while True:
        pid, status, used = os.wait4(process.pid, 0 if late else os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return None if late else process.returncode, used.ru_utime + used.ru_stime
        if time.monotonic() > until:
            os.killpg(process.pid, signal.SIGKILL)
            late = True
        time.sleep(0.1)


class Copies:
    """Several copies of a tree, in which work is done side by side."""

    def __init__(self, root: Path, folder: Path, workers: int) -> None:
        (folder / "no_shrinking.py").write_text(NO_SHRINKING, "utf-8")
        with suppress(OSError):  # an entry that another process replaces meanwhile is compiled again
            shutil.copytree(cache_directory() or "", folder / "cache", ignore=shutil.ignore_patterns("new-*"))
        self.workers = workers
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(workers):
            self._free.put(Copy(root, folder / str(number)))

    def map(self, work: Callable[[Copy, Item], Result], items: Sequence[Item]) -> list[Result]:
        """Each item's result, of work that has a copy to itself."""

        def alone(item: Item) -> Result:
            copy = self._free.get()
            try:
                return work(copy, item)
            finally:
                self._free.put(copy)

        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(alone, items))


def short(test: str) -> str:
    """A test's name without its folder and its parameters."""
    return test.partition("[")[0].rpartition("/")[2].replace(".py::", "::")

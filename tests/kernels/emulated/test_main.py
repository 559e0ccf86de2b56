"""`python -m kernels.targets.emulated SCRIPT` runs any program of Numba CUDA; and what is kept of kernels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.targets import emulated, gpu
from kernels.targets.emulated import __main__ as command
from kernels.targets.emulated import c_compiler, lines
from kernels.targets.launch import Floats, kernel, launch
from kernels.targets.private import NumbaKernel
from kernels.targets.shim import cuda
from tests.messages import lacks, raises_naming

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
import numpy as np
from kernels.targets import gpu
from kernels.targets.shim import cuda

@cuda.jit
def fill(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = i

x = gpu.to_device(np.zeros(8, np.float32))
fill[1, 32](x, int(sys.argv[1]))
print(gpu.to_host(x)[7])
"""


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernels.targets.emulated", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", **more}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.emulated
def test_a_script_runs_and_what_the_checks_find_is_its_exit_status(tmp_path: Path) -> None:
    path = tmp_path / "fill.py"
    path.write_text(SCRIPT)
    right = run(str(path), "8")
    assert (right.returncode, right.stdout, right.stderr) == (0, "7.0\n", "")
    wrong = run(str(path), "9")
    assert wrong.returncode == 1 and wrong.stdout == ""
    assert wrong.stderr.splitlines()[-1].startswith("the emulated GPU found an error: kernel fill")
    elsewhere = tmp_path / "no-utf-8-\udcff"
    kept = run(str(path), "8", REFIMPL_CACHE=str(elsewhere))
    assert (kept.returncode, kept.stdout) == (0, "7.0\n") and any(elsewhere.iterdir())


@pytest.mark.parametrize(
    ("script", "found", "status", "says"),
    [
        ("print(sys.argv, __name__)", [], 0, ""),
        ("sys.exit(7)", [], 7, ""),
        ("sys.exit()", [], None, ""),
        ("1 / 0", [], 1, "ZeroDivisionError"),
        ("sys.exit(7)", ["kernel fill: a race"], 1, "the emulated GPU found an error: kernel fill: a race\n"),
    ],
)
def test_a_scripts_exit_status_is_its_own_unless_something_is_found(
    script: str, found: list[str], status: int | None, says: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "script.py"
    path.write_text(f"import sys\n{script}\n")
    monkeypatch.setattr(sys, "argv", ["refimpl-emulated", str(path), "8"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(emulated, "start", lambda: None)
    monkeypatch.setattr(lines, "work_named_by_line_of", nullcontext)
    monkeypatch.setattr(emulated, "findings", lambda: found)
    assert command.main() == status
    shown = capsys.readouterr()
    assert says in shown.err and (shown.err == "") == (says == "") and sys.path[0] == str(tmp_path)
    assert shown.out == (f"['{path}', '8'] __main__\n" if "print" in script else "")


def test_without_a_script_the_driver_is_named_and_what_cannot_run_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(c_compiler, "driver", lambda: Path("driver.so"))
    monkeypatch.setattr(sys, "argv", ["refimpl-emulated"])
    assert command.main() == 0 and capsys.readouterr().out == "driver.so\n"
    monkeypatch.setattr(sys, "argv", ["refimpl-emulated", str(tmp_path)])
    assert command.main() == f"there is no script {tmp_path}"

    def start() -> None:
        raise emulated.EmulationError("another driver is loaded")

    monkeypatch.setattr(emulated, "start", start)
    path = tmp_path / "script.py"
    path.write_text("raise AssertionError")
    monkeypatch.setattr(sys, "argv", ["refimpl-emulated", str(path)])
    assert command.main() == "another driver is loaded"


@pytest.mark.emulated
def test_the_page_says_what_six_faults_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line for line, and in as many messages: `docs/emulated-gpu.md` beside `docs/six_faults.py`."""
    emulated.start(races="always")
    monkeypatch.syspath_prepend(ROOT / "docs")
    import six_faults  # type: ignore[import-not-found]

    text = (ROOT / "docs" / "emulated-gpu.md").read_text(encoding="utf-8")
    try:
        for number, row in enumerate(re.findall(r"^\| .* \| `+(.*?)`+ \|$", text, flags=re.M)):
            name = ("bound", "race", "barrier", "shared", "unset", "event")[number]
            x = cuda.to_device(np.ones(64, np.float32))
            try:
                if name == "event":
                    with lines.work_named_by_line_of(six_faults.__file__):
                        six_faults.event(x)
                else:
                    getattr(six_faults, name)[1 + (name == "bound"), 64](x)
                cuda.synchronize()
            except Exception:
                pass  # the driver's error follows from the finding
            (finding,) = emulated.forgive()
            assert finding.startswith(row)
        assert number == 5
    finally:
        emulated.forgive()
        emulated.start(races="first")


# -- what builds it ----------------------------------------------------------------------------------------------------


def test_what_is_lacking_to_build_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_compiler, "system", lambda: "Linux")
    monkeypatch.setattr(c_compiler, "_compiler", lambda: None)
    assert not lacks(c_compiler.why_not() or "", "apt install gcc", "clang")
    with raises_naming(c_compiler.NoCompiler, "apt install gcc"):
        c_compiler.kernel("fill", "int main;", races=False)
    monkeypatch.setattr(c_compiler, "_compiler", lambda: "/usr/bin/cc")
    assert c_compiler.why_not() is None
    monkeypatch.setattr(c_compiler, "system", lambda: "Darwin")
    assert not lacks(c_compiler.why_not() or "", "libcuda.so.1", "Linux")


def test_the_first_compiler_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    last = c_compiler.COMPILERS[-1]
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name == last else None)
    assert c_compiler._compiler.__wrapped__() == f"/bin/{last}"
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert c_compiler._compiler.__wrapped__() is None


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("races", [True, False])
def test_a_kernel_is_compiled_once_with_its_options(
    folder: bool, races: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the compiler notes what it is asked; without a folder for kernels, one of this process serves."""
    asked: list[list[str]] = []

    def compiler(command: list[str], **how: Any) -> Any:
        asked.append(command)
        Path(command[command.index("-o") + 1]).write_bytes(b"library")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(c_compiler, "why_not", lambda: None)
    monkeypatch.setattr(c_compiler, "_key", lambda: "key")
    monkeypatch.setattr(c_compiler, "_compiler", lambda: "cc")
    monkeypatch.setattr(c_compiler, "cache_directory", lambda: tmp_path if folder else None)
    monkeypatch.setattr(c_compiler, "_temporary", lambda: tmp_path / "of this process")
    monkeypatch.setattr(subprocess, "run", compiler)
    path = c_compiler.kernel("fill", "int one;", races)
    assert (
        path.name == "kernel.so" and path.parent.name.startswith("emulated_fill_") and path.read_bytes() == b"library"
    )
    assert path.is_relative_to(tmp_path / "of this process") != folder
    (command_line,) = asked
    assert (f"-DRACES={int(races)}" in command_line) and ("-Og" in command_line) == races
    assert (path.parent / "source.c").read_text() == "int one;"
    assert c_compiler.kernel("fill", "int one;", races) == path and len(asked) == (1 if folder else 2)
    assert c_compiler.kernel("fill", "int two;", races).parent != path.parent


def test_what_a_compiler_says_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "source.c:1: error:\n  expected ';'\n" + 1000 * "x")
    monkeypatch.setattr(c_compiler, "_compiler", lambda: "cc")
    monkeypatch.setattr(subprocess, "run", lambda command, **how: failed)
    with raises_naming(c_compiler.NoCompiler, "cc does not compile fill_1: source.c:1: error: expected ';'") as error:
        c_compiler._compile(tmp_path / "fill_1", "int", "kernel.so", ())
    assert len(str(error.value)) < 700


def test_what_a_header_includes_is_part_of_the_source() -> None:
    """A change in a header is another kernel; each header counts once."""
    found = c_compiler._with_headers('#include "kernel.h"\n#include "kernel.h"\n#include <math.h>\n')
    kernel_h = (c_compiler.HERE / "kernel.h").read_text(encoding="utf-8")
    assert found.count(kernel_h) == 1 and found.endswith(kernel_h) == ('#include "' not in kernel_h)


@pytest.mark.emulated
def test_orders_and_searches_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated.start()
    with raises_naming(emulated.EmulationError, "no order 'lately'", *emulated.ORDERS):
        emulated.order("lately")
    with raises_naming(emulated.EmulationError, "races are searched for first, always, never", "'seldom'"):
        emulated.start("seldom")
    for seed in ("x", "9" * 5000):
        with raises_naming(emulated.EmulationError, "REFIMPL_ORDER", 18):
            emulated.order("early", seed)
    before = emulated._order
    name, _, seed = before.partition(":")
    try:
        emulated.order("early", 7)
        assert emulated.environment() == f"REFIMPL_ORDER=early:7 REFIMPL_RACES={emulated._races}"
        emulated.order("late")
        assert emulated.environment().startswith("REFIMPL_ORDER=late ")
    finally:
        emulated.order(name, int(seed or 0))


@kernel(block=32)
def count_up(x: Floats, n: int) -> None:
    i = cuda.grid(1)
    if i < n:
        x[i] = i + 1


@pytest.mark.emulated
@pytest.mark.parametrize("damaged", [False, True])
def test_numba_compiles_a_kernel_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """What this process has loaded is forgotten, as another one would not have it."""
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path))
    emulated.start()
    compilations = []
    real = NumbaKernel.__init__

    def counted(*args: Any, **options: Any) -> None:
        compilations.append(1)
        real(*args, **options)

    monkeypatch.setattr(NumbaKernel, "__init__", counted)
    for _ in range(2):
        gpu.loaded.cache_clear()
        count_up.gpu.overloads.clear()
        x = gpu.to_device(np.zeros(40, np.float32))
        launch(count_up, 2, x, 35)
        assert gpu.to_host(x).tolist() == [*range(1, 36), *[0] * 5]
        (entry,) = tmp_path.glob("gpu_count_up_*")
        if damaged:
            (entry / "kernel.ptx").write_bytes(b"not what was written")
    assert len(compilations) == 1 + damaged

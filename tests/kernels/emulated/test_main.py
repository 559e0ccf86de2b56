"""`python -m kernels.targets.emulated SCRIPT` runs any program of Numba CUDA; and what is kept of kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.launch import Floats, kernel, launch
from kernels.shim import NumbaKernel, cuda
from kernels.targets import emulated, gpu

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
import numpy as np
from kernels.targets import gpu
from kernels.shim import cuda

@cuda.jit
def fill(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = i

x = gpu.to_device(np.zeros(8, np.float32))
fill[1, 32](x, int(sys.argv[1]))
print(gpu.to_host(x)[7])
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernels.targets.emulated", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0"}
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
    absent = run(str(tmp_path / "absent.py"))
    assert absent.returncode == 1 and absent.stderr == f"there is no script {tmp_path / 'absent.py'}\n"


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

"""`python -m kernels.emulated SCRIPT`: any program of Numba CUDA on the emulated GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
import numpy as np
from kernels import gpu
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
    command = [sys.executable, "-m", "kernels.emulated", *arguments]
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

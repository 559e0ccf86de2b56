"""What the real host code, Numba's, cuda.core's and ours, tells the driver.

The tests themselves are beside this file, in `launches.py`.  They run in a process of their own, which finds the
emulated GPU's driver where it looks for libcuda, as it is: no kernel is translated, a launch computes nothing, and is
noted (`kernels/targets/emulated/journal.h`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.targets import emulated, machine_code
from kernels.targets.emulated import c_compiler

HERE = Path(__file__).parent
WHY_NOT = emulated.why_not() or machine_code.why_not()


@pytest.mark.emulated
@pytest.mark.slow
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_what_the_host_tells_the_driver(tmp_path: Path) -> None:
    for name in ("libcuda.so", c_compiler.DRIVER):  # Numba looks for the first of the two
        (tmp_path / name).symlink_to(c_compiler.driver())
    path = [str(tmp_path), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(path)}
    options = ["-q", "-rA", "-p", "no:cacheprovider", "--noconftest", "-o", "addopts="]
    command = [sys.executable, "-m", "pytest", *options, str(HERE / "launches.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent.parent)
    assert done.returncode == 0, done.stdout + done.stderr

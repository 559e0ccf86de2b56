"""The real host code, Numba's, cuda.core's and ours, on a driver library that only keeps books.

`stub_driver.c` is compiled here; `on_stub_driver.py` (launches) and `backend_on_stub_driver.py` (whole programs) hold
the tests themselves: they run in a process of their own that finds the stub where it looks for the driver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import machine_code

HERE = Path(__file__).parent
TESTS = [HERE / f"{name}on_stub_driver.py" for name in ("", "backend_", "driver_calls_", "packing_")]
COMPILER = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the stub takes the place of libcuda.so.1, the driver on Linux")
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc, gcc or clang) to build the stub driver with")
@pytest.mark.skipif(machine_code.why_not() is not None, reason=str(machine_code.why_not()))
def test_the_host_code_runs_on_a_stub_driver(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    command = [str(COMPILER), "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "stub_driver.c"), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (tmp_path / "libcuda.so").symlink_to(library)  # Numba looks for this name first

    path = [str(tmp_path), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(path)}
    options = ["-q", "-rA", "-p", "no:cacheprovider", "--noconftest", "-o", "addopts="]
    command = [sys.executable, "-m", "pytest", *options, *map(str, TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent.parent)
    print(done.stdout)  # shows the microseconds of a launch: pytest -s
    assert done.returncode == 0, done.stdout + done.stderr

"""Ranks that are processes, where MPI is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    not (MPIEXEC and importlib.util.find_spec("mpi4py")),
    reason="MPI is not installed, so no processes train together: pip install 'refimpl[mpi]'",
)


def mpiexec(*ranks: list[str], copies: int = 2, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run Python as `copies` ranks, all with the same arguments, or as one rank each with its own.

    Each on one thread: ranks wait for each other in a busy loop, and so would their threads.
    """
    each = [["-n", str(copies // len(ranks)), sys.executable, *map(str, rank)] for rank in ranks]
    arguments = [str(MPIEXEC), *options, *each[0], *(word for rank in each[1:] for word in (":", *rank))]
    environment = os.environ | {"REFIMPL_THREADS": "1"}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=240, env=environment)

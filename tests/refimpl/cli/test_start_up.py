"""What a command imports before it does anything: only what it needs."""

from __future__ import annotations

import subprocess
import sys

IMPORTED = "import sys; from refimpl.cli import main; code = main(sys.argv[1:]); print(*sys.modules); sys.exit(code)"
HEAVY = {"numpy", "numba", "llvmlite", "matplotlib", "torch", "scipy"}


def imported(*words: str) -> set[str]:
    """The modules of a command's process at its end."""
    done = subprocess.run([sys.executable, "-c", IMPORTED, *words], check=True, capture_output=True, text=True)
    return {*done.stdout.splitlines()[-1].split()}


def test_the_list_of_commands_needs_no_network() -> None:
    modules = imported()
    assert "refimpl.cli.parallel" in modules
    assert not (HEAVY | {"refimpl.network", "refimpl.machine", "refimpl.planner"}) & modules


def test_a_plan_needs_no_numpy_no_kernel_and_no_study() -> None:
    modules = imported("plan", "lenet", "--budget", "1GiB")
    assert "refimpl.planner.loop" in modules
    assert not (HEAVY | {"kernels.fast.conv", "refimpl.backend.trainer", "refimpl.studies.bench"}) & modules

"""Plain kernels run in other ways: in Numba's simulator, launched by Numba on a GPU, in checked mode; their ladders.

The operations of `operations.py`, with small arrays, are carried out by the CPU's compiler, and their calls are noted
down with the arguments before and after.  Numba's simulator and a GPU have to come to the same.
"""

from __future__ import annotations

import ast
import copy
import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import cuda

from kernels.fast import conv
from kernels.run import run
from kernels.rungs import module_of
from kernels.targets import cpu
from kernels.targets.cpu.checked import CheckFailed
from tests.kernels.operations import OPERATIONS, Draw, arrays
from tests.matrix import some

ROOT = Path(__file__).parents[2]


class Noted(NamedTuple):
    """A call of a plain family's function."""

    family: str
    function: str
    before: tuple[Any, Any]  #: arguments by position, and by name
    after: tuple[Any, Any]


class Families:
    """The plain families; calls of their functions are noted down."""

    def __init__(self, calls: list[Noted], family: str = "") -> None:
        self.calls, self.family = calls, family

    def __getattr__(self, name: str) -> Any:
        if not self.family:
            return Families(self.calls, name)

        def call(*given: Any, **named: Any) -> None:
            before = copy.deepcopy((given, named))  # an array that is given twice stays one
            getattr(importlib.import_module(f"kernels.{self.family}"), name)(*given, **named)
            self.calls.append(Noted(self.family, name, before, copy.deepcopy((given, named))))

        return call


@cache
def calls_of(operation: str) -> list[Noted]:
    calls: list[Noted] = []
    OPERATIONS[operation](Families(calls), Draw(-1))
    return calls


def results(given: Sequence[Any]) -> list[np.ndarray]:
    """Those of arguments, but for a workspace."""
    return [*arrays(list(given[0])), *arrays([one for name, one in given[1].items() if name != "workspace"])]


IN_THE_SIMULATOR = """
import importlib, pickle, sys
import numpy as np
from kernels import run
run.BLOCKS = {1: (32,), 2: (8, 4), 3: (8, 4, 1)}  # each thread of a block is one of Python's
calls = pickle.load(sys.stdin.buffer)
for family, function, (given, named), _ in calls:
    with np.errstate(over="ignore"):
        getattr(importlib.import_module(f"kernels.{family}"), function)(*given, **named)
assert not {"kernels.fast", "kernels.targets", "kernels.checks", "refimpl"} & sys.modules.keys()
pickle.dump([before for _, _, before, _ in calls], sys.stdout.buffer)
"""


@pytest.mark.slow
def test_plain_kernels_run_in_numbas_simulator() -> None:
    """In a process of its own, with Numba, NumPy and the plain files alone."""
    calls = [tuple(call) for operation in OPERATIONS for call in calls_of(operation)]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IN_THE_SIMULATOR]
    ran = subprocess.run(command, env=environment, input=pickle.dumps(calls), capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    for (family, function, _, after), got in zip(calls, pickle.loads(ran.stdout), strict=True):
        for want, array in zip(results(after), results(got), strict=True):
            np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-5, err_msg=f"{family}.{function}")


@pytest.mark.gpu
@pytest.mark.parametrize("operation", some(OPERATIONS, "conv", "relu", "clip", "position alike"))
def test_numba_launches_plain_kernels_on_device_arrays(operation: str) -> None:
    for family, function, (given, named), after in calls_of(operation):
        there: dict[int, Any] = {}

        def moved(value: Any, there: dict[int, Any] = there) -> Any:
            if isinstance(value, (tuple, list)):
                return type(value)(moved(one) for one in value)
            if not isinstance(value, np.ndarray):
                return value
            return there.setdefault(id(value), cuda.to_device(value))

        call: Callable[..., None] = getattr(importlib.import_module(f"kernels.{family}"), function)
        call(*moved(given), **{name: moved(value) for name, value in named.items()})
        for want, array in zip(results(after), results((given, named)), strict=True):
            got = there[id(array)].copy_to_host()
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=f"{family}.{function}")


# -- the ladder of a plain file's docstring ----------------------------------------------------------------------------

LADDERS = {
    path.stem: ladder.split("\n")
    for path in sorted((ROOT / "kernels").glob("*.py"))
    if (ladder := (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\nRungs:\n")[2])
}


def test_every_plain_file_with_a_faster_version_ends_in_its_ladder() -> None:
    families = {path.stem for path in (ROOT / "kernels").glob("*.py") if "@cuda.jit\n" in path.read_text("utf-8")}
    assert LADDERS.keys() >= {family for family in families if ".fast." in module_of(family, "fast")}
    named = {line.split()[0] for lines in LADDERS.values() for line in lines}
    assert all(find_spec(name) for name in named)
    assert named >= {module.__name__ for module in conv.ALGORITHMS.values()}


# -- checked mode ------------------------------------------------------------------------------------------------------


@cuda.jit
def reads_beyond_its_row(x, y):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[0, i + 1]


def test_an_index_beyond_a_row_is_found() -> None:
    """Although the array goes on there."""
    x, y = np.ones((2, 4), np.float32), np.zeros(4, np.float32)
    run(reads_beyond_its_row, 4, x, y)
    with cpu.checked(), pytest.raises(CheckFailed, match=r"x\[0, i \+ 1\]: index 4 on axis 1, which has 0 … 3"):
        run(reads_beyond_its_row, 4, x, y)

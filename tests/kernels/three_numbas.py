"""Every plain kernel on the emulated GPU under one of three Numba CUDAs; `make compilers` makes the environments.

    python -m kernels.targets.emulated tests/kernels/three_numbas.py numba-cuda-mlir results.pickle

carries out the operations of `operations.py` with small arrays, compares the results with NumPy's, and with the bits
that are in the file already; another environment has left them there.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import numpy as np

import kernels

PACKAGES = ("numba-cuda", "numba-cuda-mlir", "numba")


class OnDevice:
    """The plain families; their functions are given copies of NumPy arrays on the device, and these are copied back."""

    def __init__(self, cuda: Any, family: str = "") -> None:
        self.cuda, self.family = cuda, family

    def __getattr__(self, name: str) -> Any:
        if not self.family:
            return OnDevice(self.cuda, name)
        function: Callable[..., None] = getattr(importlib.import_module(f"kernels.{self.family}"), name)

        @wraps(function)
        def call(*given: Any, **named: Any) -> None:
            there: dict[int, tuple[np.ndarray, Any]] = {}

            def moved(value: Any) -> Any:
                if isinstance(value, (tuple, list)):
                    return type(value)(moved(one) for one in value)
                if not isinstance(value, np.ndarray):
                    return value
                return there.setdefault(id(value), (value, self.cuda.to_device(value)))[1]

            function(*moved(given), **{key: moved(value) for key, value in named.items()})
            for here, device in there.values():
                here[...] = device.copy_to_host()

        return call


def main(package: str, path: Path) -> int:
    """The exit status: 1 if an operation fails, differs from NumPy, or has other bits than another Numba's."""
    real = cuda = importlib.import_module("numba.cuda")
    if package == "numba-cuda-mlir":  # as if each plain file imported it in place of numba.cuda
        cuda = numba.cuda = importlib.import_module("numba_cuda_mlir.cuda")
    for file in Path(kernels.__file__).parent.glob("*.py"):
        importlib.import_module(f"kernels.{file.stem}" if file.stem != "__init__" else "kernels")
    numba.cuda = real
    from tests.kernels import operations
    from tests.kernels.operations import NUMPY, OPERATIONS, Draw

    operations.PLAIN = OnDevice(cuda)  # type: ignore[assignment]  # some operations compare with plain kernels
    before: dict[str, dict[str, Any]] = pickle.loads(path.read_bytes()) if path.exists() else {}
    found, failed = {}, []
    for operation, carry_out in OPERATIONS.items():
        wanted = carry_out(NUMPY, Draw(-1))
        try:
            got = carry_out(OnDevice(cuda), Draw(-1))
            for want, array in zip(wanted, got, strict=True):
                np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-4)
        except Exception as error:
            failed.append(f"{operation}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        else:
            found[operation] = [np.where(np.isnan(array), np.nan, array).tobytes() for array in got]
    modules = [sys.modules[name] for name in sys.modules if name.startswith("kernels.") and name.count(".") == 1]
    known = {each for module in modules for each in vars(module).values() if hasattr(each, "py_func")}
    plain = [each for each in known if not each.targetoptions.get("device")]
    run = [each for each in plain if each.overloads]
    print(f"{package} {version(package)}: {len(run)} of {len(plain)} plain kernels run, {len(found)} of "
          f"{len(OPERATIONS)} operations are NumPy's", *failed, sep="\n    ")  # fmt: skip
    for other, bits in before.items():
        apart = [operation for operation in found if operation in bits and found[operation] != bits[operation]]
        print(f"    {len(apart)} operations have other bits than under {other}: {', '.join(apart)}".rstrip(": "))
    path.write_bytes(pickle.dumps(before | {package: found}))
    return int(bool(failed))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    sys.path.insert(0, os.getcwd())
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))

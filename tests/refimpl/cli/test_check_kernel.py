"""`refimpl check-kernel`, given what it cannot check: one line each, and no traceback."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels.targets import emulated
from kernels.targets.shim import cuda
from refimpl.cli import check_kernel
from refimpl.cli.parser import WRONG, Fail
from tests.messages import raises_naming

pytestmark = pytest.mark.emulated

KERNELS = """
import numpy as np
from numba import cuda

def plain(x):
    x[cuda.grid(1)] = 1

def lacks(x):
    x[0] = cuda.nothing(3)

def lacks_in_numpy(x):
    x[0] = np.nothing(3)

def returns(x):
    return 3

def text(x):
    x[0] = "a"

def atomic_of_half(x):
    s = cuda.shared.array(4, np.float16)
    cuda.atomic.add(s, 0, np.float16(1))

def large(x):
    s = cuda.shared.array(100000, np.float32)
    s[cuda.threadIdx.x] = 1
    cuda.syncthreads()
    x[0] = s[0]

def yields(x):
    yield x

def any_number(*x):
    x[0] = 1

def prints(x):
    print(x[0])

class Thing: pass

number = 3
device = cuda.jit(device=True)(plain)
reduced = cuda.reduce(lambda a, b: a + b)
"""

REFUSED = [
    ("lacks", ["float32[4]"], "lacks nothing"),
    ("lacks_in_numpy", ["float32[4]"], "lacks_in_numpy nothing"),
    ("returns", ["float32[4]"], "returns"),
    ("text", ["float32[4]"], "text setitem"),
    ("atomic_of_half", ["float32[4]"], "atomic_of_half float16 my_kernels.py"),
    ("large", ["float32[4]"], "shared"),
    ("yields", ["float32[4]"], "yields"),
    ("any_number", ["float32[4]"], "any_number"),
    ("prints", ["float32[4]"], "prints"),
    ("Thing", ["float32[4]"], "Thing type"),
    ("number", ["float32[4]"], "number int"),
    ("reduced", ["float32[4]"], "reduced Reduce"),
    ("device", ["float32[4]"], "device"),
    ("absent", ["float32[4]"], "absent"),
    ("", ["float32[4]"], "my_kernels.py"),
    ("plain", [], "plain 1 0"),
    ("plain", ["float32[99999999999999]"], "256 MiB"),
    ("plain", ["float32[" + ",".join(["1"] * 40) + "]"], "32"),
    ("plain", ["9" * 30], "64"),
    ("plain", ["9" * 9000], "64"),
    ("plain", ["float32[-3]"], "float32[-3]"),
    ("plain", ["complex64[3]"], "complex64[3] float32"),
]


@pytest.mark.slow
def test_each_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "my_kernels.py"
    path.write_text(KERNELS)
    for name, given, says in REFUSED:
        options = SimpleNamespace(kernel=f"{path}:{name}", grid=(1,), block=None, seeds=0, given=given)
        with raises_naming(Fail, *says.split()) as caught:
            check_kernel.run(options)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 600, str(caught.value)
    emulated.forgive()
    emulated.start(races="first")


@pytest.mark.parametrize("text", ["0", "-1", "1,2,3,4", "9999999999", "2147483648", "", "1,", "1.5"])
def test_a_grid_that_no_gpu_takes_is_refused(text: str) -> None:
    with raises_naming(Exception, 1, 2147483647):
        check_kernel.numbers(text)


def test_an_atomic_that_nvvm_does_not_have_is_named_with_its_line() -> None:
    def total(x: object) -> None:
        cuda.atomic.add(x, 0, 1)

    error = type("NvvmError", (Exception,), {"__module__": "numba.cuda.cudadrv.error"})("ERROR_COMPILATION (9)")
    line = total.__code__.co_firstlineno + 1
    says = check_kernel.reason(error, cuda.jit(total))
    assert says.startswith("ERROR_COMPILATION (9)") and f"line {line}: cuda.atomic.add(x, 0, 1)" in says


@pytest.mark.slow
def test_a_kernel_without_an_end_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my_kernels.py"
    path.write_text("from numba import cuda\n\ndef endless(x):\n    while x[0] < 5:\n        cuda.syncthreads()\n")
    emulated.start()
    emulated.most_steps(1000)
    try:
        options = SimpleNamespace(kernel=f"{path}:endless", grid=(1,), block=None, seeds=0, given=["float32[4]"])
        assert check_kernel.run(options) == WRONG  # type: ignore[arg-type]
    finally:
        emulated.most_steps(1 << 30)
        emulated.start(races="first")

"""`refimpl check-kernel`: the orders that it tries, its arguments, and one line for what it cannot check."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels.targets import emulated
from kernels.targets.shim import cuda
from refimpl.cli import check_kernel
from refimpl.cli.parser import WRONG, Fail
from tests.messages import raises_naming

KERNELS = """
from numba import cuda

x = 3
def plain(x):
    x[cuda.grid(1)] = 1

def lacks(x):
    x[0] = cuda.nothing(3)

def text(x):
    x[0] = "a"

def large(x):
    s = cuda.shared.array(100000, np.float32)
    s[cuda.threadIdx.x] = 1
    cuda.syncthreads()
    x[0] = s[0]

def endless(x):
    while x[0] < 5:
        cuda.syncthreads()

def yields(x):
    yield x

def any_number(*x):
    x[0] = 1

def named(**x): pass

reduced = cuda.reduce(lambda a, b: a + b)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_kernels.py"
    path.write_text(f"import numpy as np\n{KERNELS}")
    return path


def run(file: Path, name: str, *given: str) -> int:
    options = SimpleNamespace(kernel=f"{file}:{name}", grid=(1,), block=None, seeds=0, given=given)
    return check_kernel.run(options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.emulated
def test_each_is_refused_in_one_line(file: Path) -> None:
    for name, given, says in (
        ("lacks", ["float32[4]"], "lacks nothing"), ("text", ["float32[4]"], "text setitem"),
        ("large", ["float32[4]"], "shared"), ("reduced", ["float32[4]"], "reduced Reduce"), ("plain", [], "plain 1 0"),
        ("plain", ["float32[99999999999999]"], "256 MiB"), ("plain", ["9" * 9000], "64"),
        ("plain", ["complex64[3]"], "complex64[3] float32"),
    ):  # fmt: skip
        with raises_naming(Fail, *says.split()) as caught:
            run(file, name, *given)
        assert len(str(caught.value)) < 600, str(caught.value)
    emulated.forgive()
    emulated.start(races="first")


@pytest.mark.slow
@pytest.mark.emulated
def test_a_kernel_without_an_end_is_found(file: Path) -> None:
    emulated.start()
    emulated.most_steps(1000)
    try:
        assert run(file, "endless", "float32[4]") == WRONG
    finally:
        emulated.most_steps(1 << 30)
        emulated.start(races="first")


@pytest.mark.parametrize(
    ("what", "words"),
    [("", ["no kernel"]), ("missing", ["missing"]), ("x", ["x", "int"]), ("yields", ["yields"]),
     ("any_number", ["any_number"]), ("named", ["named"])],
)  # fmt: skip
def test_what_is_no_kernel_is_refused(what: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "my.py"
    path.write_text(KERNELS.replace("from numba import cuda\n", "").partition("reduced =")[0])
    with raises_naming(Fail, "my.py", *words):
        check_kernel.loaded(f"{path}:{what}")
    for text in (f"{path}", f"{tmp_path}/none.py:kernel", ":kernel"):
        with raises_naming(Fail, text):
            check_kernel.loaded(text)


@pytest.mark.parametrize("text", ["0", "1,2,3,4", "2147483648", "1,", "1.5"])
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

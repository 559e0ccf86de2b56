"""Which kernel a launch runs: the one of its own image, whatever any process compiled before, in whatever order."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.targets import compiled, emulated, gpu
from kernels.targets.cpu import build
from kernels.targets.launch import Floats, kernel, launch
from kernels.targets.private import ptx_of
from kernels.targets.shim import cuda

pytestmark = pytest.mark.emulated

START = """
import sys
import numpy as np
from kernels.fast import gemm, relu, softmax
from kernels.targets import compiled, emulated, gpu
from kernels.targets.declare import REGISTRY
emulated.start(races="never")
"""
COMPILE = """
for name in sys.argv[1:]:
    gpu.loaded(REGISTRY[name])
"""
KEEP = """
for name in sys.argv[1:]:
    compiled.compiled(REGISTRY[name])
"""
LAUNCH_BOTH = """
draw = np.random.default_rng(0).standard_normal
small, large = ((64, 64, 40), True), ((128, 128, 40), False)
for (m, n, k), transposed in (small, large, small, large):
    a, b, c = draw((m, k), np.float32), draw((k, n), np.float32), np.zeros((m, n), np.float32)
    there = [gpu.to_device(each) for each in (a.T.copy() if transposed else a, b, c)]
    gemm.gemm(*there, trans_a=transposed, algorithm="split_fragments")
    assert np.abs(gpu.to_host(there[-1]) - a @ b).max() < 1e-4, (m, n, k)
    assert emulated.findings() == []
loaded = {name for name, each in REGISTRY.items() if each.gpu.overloads}
assert loaded == set(sys.argv[1:]), loaded
"""


def process(script: str, cache: Path, *names: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "REFIMPL_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", START + script, *names], env=environment, stderr=subprocess.PIPE, text=True
    )


def succeed(*processes: subprocess.Popen[str]) -> None:
    """They all end without an error."""
    for each in processes:
        _, says = each.communicate(timeout=300)
        assert each.returncode == 0, says


SMALL, LARGE = "gemm_split_fragments_64x64_tn", "gemm_split_fragments_128x128_nn"


@pytest.mark.slow
def test_a_process_that_loads_what_two_others_compiled_first_runs_both(tmp_path: Path) -> None:
    """Both were the first kernel of their process, and have one name in the source."""
    for name in (SMALL, LARGE):
        succeed(process(COMPILE, tmp_path, name))
    succeed(process(LAUNCH_BOTH, tmp_path, SMALL, LARGE))


def files(cache: Path) -> dict[str, bytes]:
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in cache.glob("gpu_*/*")}


@pytest.mark.slow
def test_an_entry_has_the_same_bytes_whichever_process_compiled_it_and_whatever_before(tmp_path: Path) -> None:
    """Two fill one cache at once, in opposite orders: kernels with shared arrays, or functions that several call."""
    names = ["softmax_backward", "gemm_tiled", "relu_backward", "relu_forward"]
    succeed(*(process(KEEP, tmp_path / "both", *order) for order in (names, names[::-1])))
    succeed(process(KEEP, tmp_path / "one", *names))
    assert len(one := files(tmp_path / "one")) == 3 * len(names) and files(tmp_path / "both") == one
    assert [path.name for path in (tmp_path / "both").iterdir() if path.name.startswith("new-")] == []


def test_an_entry_that_another_process_has_completed_meanwhile_stays_where_it_is(tmp_path: Path) -> None:
    """Where the file system has no locks, both compile; what a third one reads must not go away."""
    theirs: list[Any] = []

    def write(made: Path) -> None:
        (made / "file").write_text("the same")
        if not theirs:
            theirs.append(0)
            theirs[0] = build.kept(tmp_path, "entry_0123456", write).stat().st_ino

    assert build.kept(tmp_path, "entry_0123456", write).stat().st_ino == theirs[0]


def counting(step: int) -> Callable[..., None]:
    def count(x: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            x[i] = np.float32(step) * i

    return count


def test_two_kernels_of_one_name_are_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As two processes would name them: by Numba, which counts what each has compiled."""
    from numba.cuda.core.bytecode import FunctionIdentity

    emulated.start()
    kernels, names = [], set()
    for step in (3, 5):
        monkeypatch.setattr(FunctionIdentity, "_unique_ids", itertools.count(1))
        made = cuda.jit(counting(step))
        made.compile((cuda.types.Array(cuda.types.float32, 1, "C"),))
        kernels.append(made)
        names |= {each.entry_name for each in made.overloads.values()}
    assert len(names) == 1
    for step, made in zip((3, 5), kernels, strict=True):
        x = gpu.to_device(np.zeros(8, np.float32))
        made[1, 32](x)
        assert gpu.to_host(x).tolist() == [step * i for i in range(8)]


@kernel(block=32, name="min")
def least(x: Floats, n: int) -> None:
    """Its name alone would be a word of PTX."""
    i = cuda.grid(1)
    if i < n:
        x[i] = min(x[i], np.float32(2))


def test_a_kernel_has_its_own_name_on_the_gpu() -> None:
    emulated.start()
    x = gpu.to_device(np.arange(5, dtype=np.float32))
    launch(least, 1, x, 5)
    assert gpu.to_host(x).tolist() == [0, 1, 2, 2, 2]
    made = compiled.compiled(least)
    assert made.entry_name == "min_kernel" and "v1" not in ptx_of(made)


MODULES = [
    '; ModuleID = "f.<locals>.k$9"\n@"_ZN08NumbaEnv1kB2v9" = common global i8* null\n'
    'define void @"_ZN1kB2v9Ex"(i64 %"n")\n{\n call void @"_ZN1bB2v4Ex"()\n call void @"_ZN1aB2v5Ex"()\n}\n'
    '@"_cudapy_smem_17" = addrspace(3) global [4 x float] undef\n'
    '!1 = !DIFile(directory: "/home/me/project/kernels", filename: "k.py")\n',
    '; ModuleID = "a$5"\ndefine linkonce_odr i32 @"_ZN1aB2v5Ex"()\n{\n}\n',
    'define linkonce_odr i32 @"_ZN1bB2v4Ex"()\n{\n call void @"_ZN1cB3v12Ex"()\n}\n',
    'define linkonce_odr i32 @"_ZN6unusedB2v1Ex"()\n{\n}\n',
    'define linkonce_odr i32 @"_ZN1cB3v12Ex"()\n{\n}\n',
]


def test_names_and_order_of_modules_follow_from_the_kernel_alone() -> None:
    made = compiled.independent(MODULES, "_ZN1kB2v9Ex", "k_kernel")
    assert made == compiled.independent([MODULES[0], *reversed(MODULES[1:])], "_ZN1kB2v9Ex", "k_kernel")
    assert made[0] == (
        'define void @"k_kernel"(i64 %"n")\n{\n call void @"function_1"()\n call void @"function_2"()\n}\n'
        '@"shared_3" = addrspace(3) global [4 x float] undef\n'
        '!1 = !DIFile(directory: "kernels", filename: "k.py")\n'
    )
    assert [text.split('"')[1] for text in made[1:]] == ["function_1", "function_2", "function_4"]

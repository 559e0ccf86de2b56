"""Kernels compiled for generations of GPUs, none of which need be here, and held to what they offer.

`make test` compiles a kernel of the fastest rungs for the newest, `make test-emulated` one of each source.
"""

from __future__ import annotations

import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import nvjitlink, nvrtc

import kernels
from kernels.targets import machine_code
from kernels.targets.launch import REGISTRY, Floats, Kernel
from kernels.targets.machine_code import TARGETS, MachineCode, Target, ToolchainError, compile_kernel
from kernels.targets.shim import cuda
from tests.matrix import more, some

for module in pkgutil.walk_packages(kernels.__path__, "kernels."):
    import_module(module.name)
NAMES = [name for name, each in REGISTRY.items() if each.function.__module__.startswith("kernels.")]
FAMILIES = tuple(sorted({REGISTRY[name].family for name in NAMES}))

# The fastest rungs, where nearly all time of a network is spent; each comes in several tile sizes.
FASTEST = (
    "gemm_split_fragments_", "conv_gather_by_tap_", "conv_gather_by_table_", "conv_gather_in_groups_",
    "conv_filter_gradient_",
)  # fmt: skip

# Kernels that are launched where arrays are on the CPU, and nowhere else: one of each source, for one target, shows
# that they are CUDA's, too.
FOR_THE_CPU = re.compile(r"gemm_vector_rows_|gemm_skinny_rows_|conv_depthwise_|conv_vector_|\w+_by_(map|image)(_|$)")
# Their sums fill a CPU's vector registers, more than a GPU's thread may have; nothing chooses them for a GPU.
MAY_SPILL = re.compile(r"conv_vector_(depthwise_)?(sums|gradients)_")

REGISTERS_OF_A_MULTIPROCESSOR = 65536
SHARED_BYTES_OF_A_BLOCK = 48 * 1024  # what a kernel may use without asking for more

pytestmark = pytest.mark.skipif(machine_code.why_not() is not None, reason=str(machine_code.why_not()))
needs_disassembler = pytest.mark.skipif(machine_code.find_nvdisasm() is None, reason="nvdisasm is not installed")


def faults(kernel: Kernel, code: MachineCode, loop: bool = True) -> Iterator[str]:
    """What a kernel's code for one target does that it should not; `loop`: in its hottest loop, too."""
    if code.uses_float64:
        yield "double precision: " + next(line.strip() for line in code.ptx.splitlines() if ".f64" in line)
    spills = code.stack_bytes or code.local_bytes or code.spill_bytes
    if spills and not MAY_SPILL.match(kernel.name):
        yield f"{code.stack_bytes} bytes of stack, {code.local_bytes} of local memory, {code.spill_bytes} spilt"
    if code.shared_bytes > SHARED_BYTES_OF_A_BLOCK:
        yield f"{code.shared_bytes} bytes of shared memory"
    if code.registers > (128 if kernel.threads >= 256 else 255):
        yield f"{code.registers} registers"
    if code.registers * kernel.threads > REGISTERS_OF_A_MULTIPROCESSOR:
        yield f"{code.registers} registers for each of {kernel.threads} threads"
    if loop and kernel.name.startswith(FASTEST) and machine_code.find_nvdisasm() is not None:
        yield from faults_of_the_inner_loop(kernel, code)


def faults_of_the_inner_loop(kernel: Kernel, code: MachineCode) -> Iterator[str]:
    """The hottest loop of a fast kernel multiplies and adds, and reads shared memory 128 bits at a time."""
    loop = code.hottest_loop
    if loop is None:
        yield "no inner loop"
        return
    if loop.multiply_add_share < 0.85:
        yield f"{loop.multiply_add_share:.0%} multiply-adds in the inner loop"
    if not loop.counts["LDS.128"] or loop.counts["LDS.64"] or loop.counts["LDS.32"]:
        yield f"shared memory is not read 128 bits at a time: {loop.counts}"
    if kernel.name.startswith("conv") and (loop.multiply_adds, loop.counts["LDS.128"]) != (64, 4):
        yield f"{loop.multiply_adds} multiply-adds and {loop.counts['LDS.128']} reads in a loop, not 64 and 4"


def source(name: str) -> str:
    """A kernel's name without its sizes and transpositions: kernels that differ in these alone have one source."""
    return re.sub(r"\d|_[nt]{1,2}(?=_|$)", "", name)


def is_first(kernel: Kernel) -> bool:
    """Whether it is the first of its source."""
    return kernel.name == next(name for name in NAMES if source(name) == source(kernel.name))


def targets(kernel: Kernel) -> Sequence[Target]:
    """The newest; of the fastest rungs' sources the oldest, too; of a CPU's kernels one of each source."""
    if FOR_THE_CPU.match(kernel.name) and not is_first(kernel):
        return ()
    return TARGETS[::2] if kernel.name.startswith(FASTEST) and is_first(kernel) else TARGETS[-1:]


WITH_ALL_THAT_COMPILES_FOR_GPUS = (pytest.mark.emulated, pytest.mark.slow)


@pytest.mark.parametrize(("family", "chosen"), [
    *(pytest.param(family, targets, marks=WITH_ALL_THAT_COMPILES_FOR_GPUS) for family in FAMILIES),
    *(more(family, lambda kernel: TARGETS[::2]) for family in FAMILIES),
])  # fmt: skip
def test_the_kernels_of_a_family_fit_old_and_new_gpus(
    family: str, chosen: Callable[[Kernel], Sequence[Target]]
) -> None:
    """Each kernel is compiled once for its targets; `make matrix` has all kernels for the oldest and the newest."""
    found = [
        f"{kernel.name}, sm_{code.target[0]}{code.target[1]}: {fault}"
        for kernel in (REGISTRY[name] for name in NAMES if REGISTRY[name].family == family)
        if (wanted := chosen(kernel))
        for code in compile_kernel(kernel, wanted)
        for fault in faults(kernel, code, is_first(kernel))
    ]
    assert found == [], "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("rung", some(FASTEST, "conv_gather_by_tap_"))
def test_the_fastest_rungs_fit_the_newest_gpu(rung: str) -> None:
    """One kernel of each, of a small tile: 1 s where a large one takes 14. `make test-emulated` compiles all."""
    kernel = REGISTRY[next(name for name in NAMES if name.startswith(rung) and "64" in name)]
    assert [*faults(kernel, one(kernel, TARGETS[-1]))] == []


def test_a_library_of_the_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolkit may be there in part: NVVM on the system, and nothing else."""

    def missing() -> None:
        raise OSError

    for name, module, version in (("nvJitLink", nvjitlink, "version"), ("NVRTC", nvrtc, "nvrtcVersion")):
        monkeypatch.setattr(module, version, missing)
        assert f"the CUDA compiler ({name}) is not installed: pip install" in str(machine_code.why_not())


def test_the_disassembler_is_found_on_the_path_and_in_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "cu13" / "bin" / "nvdisasm"
    tool.parent.mkdir(parents=True)
    tool.touch()
    found = machine_code.find_nvdisasm.__wrapped__
    spec = SimpleNamespace(submodule_search_locations=["/nowhere", str(tmp_path)])
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert found() == "/usr/bin/nvdisasm"
    monkeypatch.setattr("shutil.which", lambda name: None)
    for given, answer in ((spec, str(tool)), (SimpleNamespace(submodule_search_locations=None), None), (None, None)):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, given=given: given)
        assert found() == answer


# --- The compiler's report is read as it is meant: kernels made to break each rule ----------------------------------


def made(function: Callable[..., None], **options: Any) -> Kernel:
    """A kernel that is not declared, so that it is not among the package's."""
    return Kernel(function, "a_test", (64, 1, 1), options)


def one(kernel: Kernel, target: Target = (9, 0)) -> MachineCode:
    return compile_kernel(kernel, [target])[0]


def test_double_precision_is_found() -> None:
    def tenth(x: Floats, n: int) -> None:
        x[n] = x[n] * 0.1

    assert one(made(tenth)).uses_float64


def test_shared_memory_is_counted() -> None:
    def exchange(x: Floats) -> None:
        tile = cuda.shared.array((3, 64), np.float32)
        ints = cuda.shared.array(8, np.int32)
        t = np.uint32(cuda.threadIdx.x)
        tile[1, t] = x[t]
        ints[t % np.uint32(8)] = t
        cuda.syncthreads()
        x[t] = tile[1, np.uint32(63) - t] + np.float32(ints[0])

    assert one(made(exchange)).shared_bytes == 3 * 64 * 4 + 8 * 4


def test_a_run_time_index_into_a_local_array_shows_as_stack() -> None:
    def pick(x: Floats, n: int) -> None:
        values = cuda.local.array(64, np.float32)
        for i in range(64):
            values[i] = x[np.uint32(i)]
        for i in range(64):
            x[np.uint32(i)] = values[np.uint32((i * n) & 63)]

    assert one(made(pick)).stack_bytes >= 64 * 4


def test_too_few_registers_show_as_spills() -> None:
    def sums(x: Floats, y: Floats) -> None:
        values = cuda.local.array(64, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        for i in range(64):
            values[i] = x[t + np.uint32(i) * np.uint32(64)]
        cuda.syncthreads()
        for i in range(64):
            y[t + np.uint32(i) * np.uint32(64)] = values[63 - i]

    free, bounded = one(made(sums)), one(made(sums, launch_bounds=(1024, 2)))
    assert free.spill_bytes == 0 and free.registers > 64
    assert bounded.spill_bytes > 0 and bounded.registers <= 32


@pytest.mark.slow
@needs_disassembler
def test_the_hottest_loop_is_the_innermost_one_with_the_multiply_adds() -> None:
    def polynomial(x: Floats, n: int, m: int) -> None:
        t = np.uint32(cuda.threadIdx.x)
        value = x[t]
        i = 0
        while i < n:
            total = np.float32(0)
            j = 0
            while j < m:
                total = total * value + np.float32(1)
                j += 1
            x[t + np.uint32(i)] = total
            i += 1

    code = one(made(polynomial))
    loop = code.hottest_loop
    assert loop is not None
    assert loop.multiply_adds >= 4 and loop.multiply_add_share > 0.5  # the compiler unrolls it
    assert loop.counts["STG.32"] == 0
    assert any(outer.contains(loop) and outer.counts["STG.32"] for outer in code.loops)


def test_instructions_are_counted_by_name_and_width() -> None:
    shared = ["LDS.U.128 R4, [R2]", "@!P0 LDS R1, [R2+0x10]"]
    lines = [*shared, "@P1 LDG.E.64 R2, [R4.64]", "FFMA R1, R2, R3, R1", "@UP0 UMOV UR4, 1"]
    assert machine_code.count(lines) == Counter({"LDS.128": 1, "LDS.32": 1, "LDG.64": 1, "FFMA": 1, "UMOV": 1})


def test_ptx_that_the_linker_does_not_know_is_one_clear_error() -> None:
    def nothing(x: Floats) -> None:
        x[0] = np.float32(1)

    newer = re.sub(r"\.version .*", ".version 99.0", one(made(nothing)).ptx)
    with pytest.raises(ToolchainError, match=r"kernel a_test: the linker refuses PTX 99\.0: .*of one CUDA release"):
        machine_code._link("a_test", newer, (9, 0))

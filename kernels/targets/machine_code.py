"""Kernels compiled to machine code for GPUs that need not be there, and what can be read off that code.

    for code in compile_kernel(REGISTRY["gemm_tiled"]):
        print(code.target, code.registers, code.shared_bytes, code.stack_bytes, code.uses_float64)

Numba compiles a kernel's source to NVVM's intermediate language, NVVM makes PTX of that for one target, and nvJitLink
turns the PTX into machine code and tells what it uses.  None of the three needs a driver; the extra `cu13` brings them.
What a loop consists of is read from the disassembly (`nvdisasm`), where there is one.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kernels.targets.collector import collector_paused
from kernels.targets.declare import Kernel
from kernels.targets.gpu import INSTALL, why_not_compile

with suppress(ImportError):  # `why_not` says so
    from cuda.bindings import nvjitlink

    from kernels.targets import private
    from kernels.targets.compiled import signature

Target = tuple[int, int]  #: a compute capability
TARGETS: tuple[Target, ...] = ((7, 5), (8, 0), (9, 0))


class ToolchainError(RuntimeError):
    """A compiler, linker or disassembler is missing or refuses its input."""


def why_not() -> str | None:
    """What is missing to compile kernels here, in one line; None if nothing is."""
    return why_not_compile()


@dataclass(frozen=True)
class Loop:
    """A stretch of machine code that ends with a jump back to its start."""

    first: int  #: number of its first instruction
    last: int
    counts: Counter[str]  #: instructions by name, as `count` groups them

    @property
    def instructions(self) -> int:
        return self.last - self.first + 1

    @property
    def multiply_adds(self) -> int:
        return self.counts["FFMA"]

    @property
    def multiply_add_share(self) -> float:
        """Fused multiply-adds among all instructions: the most of a GPU's peak that the loop can reach."""
        return self.multiply_adds / self.instructions

    def contains(self, other: Loop) -> bool:
        return self is not other and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True)
class MachineCode:
    """A kernel compiled for one target."""

    kernel: str
    target: Target
    ptx: str
    cubin: bytes  #: the machine code, an ELF file
    registers: int  #: a thread
    shared_bytes: int  #: a block, as the kernel declares them (from 8.0 on the GPU adds 1024 of its own)
    stack_bytes: int  #: a thread
    local_bytes: int  #: a thread
    spill_bytes: int  #: stored and loaded by a thread because registers ran out

    @property
    def uses_float64(self) -> bool:
        """Does double precision occur anywhere, index arithmetic included?"""
        return ".f64" in self.ptx

    @cached_property
    def instructions(self) -> list[str]:
        """The machine code, an instruction a line; needs `nvdisasm`."""
        return self._disassembly[0]

    @cached_property
    def loops(self) -> list[Loop]:
        """Every jump backwards closes a loop."""
        instructions, labels = self._disassembly
        found = []
        for last, instruction in enumerate(instructions):
            jump = re.search(r"\bBRA\b.*`\((\.L_\w+)\)", instruction)
            first = labels.get(jump[1], last + 1) if jump else last + 1
            if first < last:  # a jump to itself ends the code, it is no loop
                found.append(Loop(first, last, count(instructions[first : last + 1])))
        return found

    @property
    def hottest_loop(self) -> Loop | None:
        """The innermost loop with the most fused multiply-adds; None without a loop."""
        innermost = (loop for loop in self.loops if not any(loop.contains(other) for other in self.loops))
        return max(innermost, key=lambda loop: loop.multiply_adds, default=None)

    @cached_property
    def _disassembly(self) -> tuple[list[str], dict[str, int]]:
        """Instructions, and the index that each label points at."""
        instructions: list[str] = []
        labels: dict[str, int] = {}
        for line in disassemble(self.cubin).splitlines():
            if label := re.match(r"(\.L_\w+):", line):
                labels[label[1]] = len(instructions)
            elif instruction := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
                instructions.append(instruction[1])
        return instructions, labels


def count(instructions: Iterable[str]) -> Counter[str]:
    """Instructions by their base name; loads and stores with their width in bits, such as LDS.128."""
    counts: Counter[str] = Counter()
    for instruction in instructions:
        base, *modifiers = re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0].split(".")
        if base in ("LDS", "STS", "LDG", "STG", "LDL", "STL"):
            base += "." + next((width for width in ("128", "64") if width in modifiers), "32")
        counts[base] += 1
    return counts


def compile_kernel(kernel: Kernel, targets: Iterable[Target] = TARGETS) -> list[MachineCode]:
    """Compile a kernel for each target.  Reading the source and finding its types, the slower half, is done once."""
    if problem := why_not():
        raise ToolchainError(problem)
    targets = tuple(targets)
    with collector_paused():
        made = private.ptx_for(kernel.function, signature(kernel), targets, kernel.options)
    return [_link(kernel.name, ptx, target) for ptx, target in zip(made, targets, strict=True)]


def _link(name: str, ptx: str, target: Target) -> MachineCode:
    options = [f"-arch=sm_{target[0]}{target[1]}", "-verbose", "-O3"]
    linker = nvjitlink.create(len(options), options)
    try:
        data = ptx.encode()
        try:
            nvjitlink.add_data(linker, nvjitlink.InputType.PTX, data, len(data), f"{name}.ptx")
            nvjitlink.complete(linker)
        except nvjitlink.nvJitLinkError as error:
            message = " ".join(_text(linker, "error").split()) or str(error)
            raise ToolchainError(
                f"kernel {name}: the linker refuses PTX {_find(r'^.version (.*)', ptx)}: {message}; "
                f"NVVM and nvJitLink must be of one CUDA release: {INSTALL}"
            ) from error
        log = _text(linker, "info")
        cubin = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, cubin)
    finally:
        nvjitlink.destroy(linker)
    return MachineCode(
        kernel=name, target=target, ptx=ptx, cubin=bytes(cubin),
        registers=_largest(r"used (\d+) registers", log),
        shared_bytes=sum(int(n) for n in re.findall(r"\.shared \.align \d+ \.b8 \S+\[(\d+)\];", ptx)),
        stack_bytes=_largest(r"(\d+) bytes stack frame", log),
        local_bytes=_largest(r"(\d+) bytes lmem", log),
        spill_bytes=_largest(r"(\d+) bytes spill stores", log) + _largest(r"(\d+) bytes spill loads", log),
    )  # fmt: skip


def _text(linker: Any, log: str) -> str:
    text = bytearray(getattr(nvjitlink, f"get_{log}_log_size")(linker))
    getattr(nvjitlink, f"get_{log}_log")(linker, text)
    return text.rstrip(b"\0").decode()


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise ToolchainError(f"cannot read the compiler's report: nothing in it matches {pattern!r}")
    return found[1]


def _largest(pattern: str, log: str) -> int:
    """The largest of a figure that the linker gives for each function; a report without it is not one we can read."""
    _find(pattern, log)
    return max(int(n) for n in re.findall(pattern, log))


@functools.cache
def find_nvdisasm() -> str | None:
    """The disassembler: on the path, or in the package nvidia-cuda-nvdisasm."""
    if on_path := shutil.which("nvdisasm"):
        return on_path
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((str(tool) for folder in folders for tool in sorted(Path(folder).glob("*/bin/nvdisasm"))), None)


def disassemble(cubin: bytes) -> str:
    """Machine code as text."""
    tool = find_nvdisasm()
    if tool is None:
        raise ToolchainError("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True)
    if done.returncode:
        raise ToolchainError(f"nvdisasm failed: {' '.join(done.stderr.split())}")
    return done.stdout

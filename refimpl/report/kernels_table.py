"""The kernels' table: every kernel there is, what it does, and what its machine code uses on each GPU."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import kernels
from kernels.targets.launch import REGISTRY, Kernel


@dataclass(frozen=True)
class Usage:
    """The resources that a kernel's machine code uses for one compute capability."""

    target: str  #: as in "9.0"
    registers: int  #: per thread
    shared_bytes: int  #: per block


@dataclass(frozen=True)
class KernelRow:
    """One kernel."""

    family: str  #: the file below kernels/ that it is written in
    kernel: str
    file_does: str
    does: str  #: may be empty, where the kernel's name says what it does of what its file does
    block: tuple[int, ...]  #: without the axes of one thread at its end
    machine_code: list[Usage] = field(default_factory=list)


def all_kernels() -> list[Kernel]:
    """Every kernel of the package, all its modules imported, family by family."""
    for module in pkgutil.walk_packages(kernels.__path__, "kernels."):
        importlib.import_module(module.name)
    return sorted(REGISTRY.values(), key=lambda kernel: kernel.family)


def family(kernel: Kernel) -> str:
    """The short name of a kernel's family: "conv" for all of its modules."""
    return kernel.family.split(".")[0]


def families() -> list[str]:
    """The kernels' families by their short names."""
    return list(dict.fromkeys(family(kernel) for kernel in all_kernels()))


def first_sentence(docstring: str | None) -> str:
    paragraph = " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split())
    return re.split(r"(?<=[^.])\.(?= |$)", paragraph)[0].rstrip(":")


def usage(kernel: Kernel) -> list[Usage]:
    """Registers and shared memory on each GPU; needs the CUDA wheels, but no GPU."""
    from kernels.targets.machine_code import compile_kernel

    found = compile_kernel(kernel)
    return [Usage(".".join(map(str, code.target)), code.registers, code.shared_bytes) for code in found]


def rows(only: str | None = None, with_machine_code: bool = False) -> Iterator[KernelRow]:
    """One row a kernel, of one family or of all."""
    for kernel in all_kernels():
        if only in (None, family(kernel)):
            yield KernelRow(
                family=kernel.family,
                kernel=kernel.name,
                file_does=first_sentence(sys.modules[kernel.function.__module__].__doc__),
                does=first_sentence(kernel.function.__doc__),
                block=kernel.block[: max(n for n, size in enumerate(kernel.block, 1) if n == 1 or size > 1)],
                machine_code=usage(kernel) if with_machine_code else [],
            )


def table(found: Sequence[KernelRow]) -> tuple[list[str], list[list[str]]]:
    """Head and lines, for the terminal and the documentation: one for each file, then one for each of its kernels."""
    targets = list(dict.fromkeys(used.target for row in found for used in row.machine_code))
    lines: list[list[str]] = []
    for number, row in enumerate(found):
        if number == 0 or found[number - 1].family != row.family:
            lines.append([row.family, row.file_does, *[""] * (1 + len(targets))])
        used = {u.target: f"{u.registers} / {u.shared_bytes}" for u in row.machine_code}
        lines.append([f"  {row.kernel}", row.does, "×".join(map(str, row.block)), *(used[t] for t in targets)])
    return ["file, kernel", "what it does", "block", *targets], lines

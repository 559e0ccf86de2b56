"""What this project uses of Numba's CUDA targets that is not public, in one place; `TESTED` has the versions.

A kernel that Numba has compiled for some types is a value of its dispatcher's `overloads`: here a `made` kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba.cuda.codegen import CUDACodeLibrary as CodeLibrary  # PTX and machine code of a kernel
from numba.cuda.codegen import JITCUDACodegen as Codegen  # what makes them
from numba.cuda.cudadrv.driver import driver as numba_driver  # it looks for a driver when it is imported
from numba.cuda.dispatcher import _Kernel as NumbaKernel  # a kernel compiled for one signature, before it is loaded

from kernels.checks.arguments import contiguous_strides
from kernels.targets.shim import cuda

__all__ = [
    "TESTED", "ArrayArgument", "CompiledKernel", "NumbaKernel", "arguments_of", "described", "image_of", "loaded",
    "made", "modules_changed", "ptx_for", "ptx_of", "remade", "watch_mlir", "watch_numba", "words",
]  # fmt: skip

TESTED = {"numba-cuda": "0.30.4", "numba-cuda-mlir": "0.6.0", "numba": "0.68.1"}

# --- A kernel that is compiled ---------------------------------------------------------------------------------------


def made(function: Callable[..., None], types: Sequence[Any], options: Mapping[str, Any], entry: str) -> Any:
    """A kernel, compiled for this process's GPU; `entry`: the name that NVVM was given for it (`modules_changed`)."""
    kernel = NumbaKernel(function, types, **options)
    kernel.entry_name = kernel._codelibrary._entry_name = entry
    return kernel


def remade(function: Callable[..., None], types: Sequence[Any], entry: str, name: str, ptx: str, image: bytes) -> Any:
    """A kernel as `made` has left it in another process."""
    from cuda.core import ObjectCode

    library = CodeLibrary(None, name, entry_name=entry)
    capability = library._ensure_cc(None)
    library._ptx_cache[capability] = [ptx]
    library._cubin_cache[capability] = ObjectCode.from_cubin(image, name=name)
    library._finalized = True
    kernel = NumbaKernel._rebuild(
        cooperative=False, name=entry, signature=cuda.types.void(*types), codelibrary=library, debug=False,
        lineinfo=False, call_helper=None, extensions=[],
    )  # fmt: skip
    kernel.py_func, kernel.argtypes = function, types
    return kernel


def ptx_of(kernel: Any) -> str:
    return str(kernel._codelibrary.get_asm_str())


def image_of(kernel: Any) -> bytes:
    """The machine code, as it is loaded; Numba's own target has the driver link it, and gives out bytes."""
    linked = kernel._codelibrary.get_cubin()
    return bytes(getattr(linked, "code", linked))


def loaded(kernel: Any) -> Any:
    """The kernel in a library of its own on the GPU, for `cuda.core.launch`."""
    kernel.bind()
    return kernel._codelibrary.get_cufunc().kernel


@contextmanager
def modules_changed(change: Callable[[list[str], str], list[str]]) -> Iterator[None]:
    """NVVM is given what `change` makes of the LLVM modules, and the entry's name, of each kernel compiled inside."""
    real = CodeLibrary.llvm_strs

    def changed(library: Any) -> list[str]:
        if library._llvm_strs is None:
            library._llvm_strs = change(real.fget(library), library._entry_name)
        return library._llvm_strs

    CodeLibrary.llvm_strs = property(changed)
    try:
        yield
    finally:
        CodeLibrary.llvm_strs = real


def ptx_for(
    function: Callable[..., None], types: Sequence[Any], targets: Sequence[tuple[int, int]], options: Mapping[str, Any]
) -> list[str]:
    """The PTX of a kernel for GPUs of these compute capabilities, which need not be there."""
    real = cuda.dispatcher.get_current_device  # device functions ask it what it is before they are compiled
    cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=targets[-1])
    try:
        library, _ = cuda.compiler._compile_pyfunc_with_fixup(
            function, types, device=False, abi="numba", cc=targets[-1], **options
        )
    finally:
        cuda.dispatcher.get_current_device = real
    return [library.get_asm_str(cc=target) for target in targets]


# --- How arguments are laid out --------------------------------------------------------------------------------------


def words(values: Iterable[Any]) -> list[Any]:
    """The values of a launch as the machine code takes them.

    Numba passes an array as the fields of its array structure: two object pointers (none on a GPU), number of elements,
    bytes of an element, address, then shape and strides.  A Python integer is passed as 64 bits, a NumPy float as its
    own 32, and a tuple as its numbers.
    """
    out: list[Any] = []
    for value in values:
        if isinstance(value, (int, np.float32)):
            out.append(value)
        elif isinstance(value, tuple):
            out += value
        else:
            itemsize = value.dtype.itemsize
            steps = [itemsize * step for step in contiguous_strides(value.shape)]
            out += (0, 0, value.size, itemsize, value.pointer, *value.shape, *steps)
    return out


@dataclass(frozen=True)
class ArrayArgument:
    """An array among a kernel's arguments."""

    name: str
    offset: int  #: bytes of arguments before it
    axes: int
    item_bytes: (
        int  #: 0: laid out as by `words`; else two pointers, an offset, shape, strides, in items, as MLIR has it
    )


def arguments_of(names: Iterable[str], types: Iterable[Any], mlir: bool = False) -> tuple[list[ArrayArgument], int]:
    """The arrays among a kernel's arguments, and the bytes of all arguments: each is at a multiple of its own bytes."""
    from kernels.targets.emulated.ptx import UnsupportedPtx, aligned

    found: list[ArrayArgument] = []
    at, waiting = 0, [*zip(names, types, strict=False)][::-1]
    while waiting:
        name, kind = waiting.pop()
        family = type(kind).__name__.removesuffix("Literal")
        if hasattr(kind, "ndim"):
            item_bytes = np.dtype(str(kind.dtype)).itemsize if mlir else 0
            found.append(ArrayArgument(name, aligned(at, 8), kind.ndim, item_bytes))
            at = aligned(at, 8) + 8 * ((3 if mlir else 5) + 2 * kind.ndim)
        elif family in ("UniTuple", "Tuple"):
            waiting += [(name, each) for each in kind][::-1]
        elif family in ("Integer", "Float", "Boolean"):
            nbytes = 1 if family == "Boolean" else kind.bitwidth // 8
            at = aligned(at, nbytes) + nbytes
        else:
            raise UnsupportedPtx(f"argument {name} is a {kind}; give arrays, numbers, and tuples of them")
    return found, at


# --- What the emulated GPU is told of a kernel -----------------------------------------------------------------------


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel before it is loaded."""

    name: str  #: in its source
    entry: str  #: in its PTX
    ptx: str
    image: bytes  #: the machine code
    arrays: list[ArrayArgument]
    argument_bytes: int


def described(kernel: Any) -> CompiledKernel:
    """A kernel of numba-cuda, or of Numba's own target."""
    name = getattr(kernel, "shown_name", kernel.py_func.__name__)
    types = kernel.argtypes if hasattr(kernel, "argtypes") else kernel.argument_types
    arguments = arguments_of(kernel.py_func.__code__.co_varnames, types)
    return CompiledKernel(name, kernel.entry_name, ptx_of(kernel), image_of(kernel), *arguments)


def watch_numba(filled: Callable[[str], str], told: Callable[[CompiledKernel], None]) -> None:
    """Have every kernel compiled with its lines, NVVM given what `filled` makes of each of its LLVM modules, and `told`
    called before the kernel is loaded."""
    numba_driver.__init__()  # it has looked for a driver when it was imported; now there is one
    compiled, real, target = NumbaKernel.__init__, NumbaKernel.bind, Codegen.magic_tuple

    def compile_with_lines(kernel: Any, *args: Any, **options: Any) -> None:
        with modules_changed(lambda modules, entry: [filled(text) for text in modules]):
            compiled(kernel, *args, **options | {"lineinfo": True})  # so that a finding can say where
            ptx_of(kernel)

    def bind(kernel: Any) -> None:
        if not getattr(kernel, "is_told", False):
            told(described(kernel))
            kernel.is_told = True
        real(kernel)

    NumbaKernel.__init__, NumbaKernel.bind = compile_with_lines, bind
    Codegen.magic_tuple = lambda codegen: (*target(codegen), "emulated")  # Numba's own cache keeps these kernels apart


def watch_mlir(told: Callable[[CompiledKernel], None]) -> None:
    """The same for numba-cuda-mlir, as soon as it is imported, and without `filled`: it gives out no LLVM modules."""
    if "numba_cuda_mlir" in sys.modules:
        return _watch_mlir(told)

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            if name != "numba_cuda_mlir":
                return None
            sys.meta_path.remove(Finder)
            if (spec := find_spec(name)) is not None and spec.loader is not None:
                execute = spec.loader.exec_module
                spec.loader.exec_module = lambda module: (execute(module), _watch_mlir(told))  # type: ignore
            return spec

    sys.meta_path.insert(0, Finder)


def _watch_mlir(told: Callable[[CompiledKernel], None]) -> None:
    from numba_cuda_mlir import descriptor, mlir_compiler, mlir_optimization
    from numba_cuda_mlir.numba_cuda.cudadrv.driver import driver

    driver.__init__()
    descriptor.MLIRCache = lambda *given: descriptor.NullCache()  # nothing would be told of a kernel on the disk
    compiled, optimised = mlir_compiler.compile_mlir, mlir_optimization.optimize

    def compile_with_lines(pyfunc: Any, return_type: Any, args: Any, targetoptions: dict[str, Any]) -> Any:
        return compiled(pyfunc, return_type, args, targetoptions | {"lineinfo": not targetoptions.get("debug")})

    def optimise(result: Any) -> None:
        optimised(result)
        name = result.fndesc.qualname.rpartition(".")[2]
        ptx, image = mlir_optimization.get_ptx(result), result.metadata["cubin"]
        arguments = arguments_of(result.fndesc.args, result.fndesc.argtypes, mlir=True)
        told(CompiledKernel(name, result.metadata["func_name"], ptx, image, *arguments))

    mlir_compiler.compile_mlir, mlir_optimization.optimize = compile_with_lines, optimise

"""Step 3: the CPU version of a kernel written down as a readable Python module.

The module has the kernel's constants and helpers, then

    _one_thread  the kernel's body, if it has no barriers; otherwise its pieces stand in
    _block       shared and saved memory, and the loops over the block's threads
    run          blocks _first … _last - 1 of the grid, compiled for the kernel's argument types

Every name that is not the kernel's begins with an underscore.
"""

from __future__ import annotations

import ast
import copy

from kernels.cpu.barriers import cut, names, thread_loop
from kernels.cpu.inference import infer_types
from kernels.cpu.vocabulary import AXES, Array, Lowered, Site, dotted, expression, lower_kernel, parse
from kernels.launch import Kernel

SIGNATURES = {"Floats": "float32[::1]", "Ints": "int32[::1]", "int": "int64", "float": "float32"}
GARBAGE = {
    "f": "np.nan",
    "i": "-2_000_000_011",
    "u": "4_000_000_007",
    "b": "True",
}  #: what checked mode fills memory with
THREAD = [f"threadIdx_{axis}" for axis in AXES]
BLOCK = [f"blockIdx_{axis}" for axis in AXES]
GRID = [f"gridDim_{axis}" for axis in AXES]


class KernelSource:
    """`text`: the module; `sites`: what the numbers in checked mode's reports stand for."""

    def __init__(self, kernel: Kernel, checked: bool = False) -> None:
        self.kernel, self.checked = kernel, checked
        self.lowered = lower_kernel(kernel)
        self.sites: list[Site] = self.lowered.sites
        self.constants: dict[str, str] = {}
        self._gather_constants(self.lowered)
        if checked:
            _check_indices(self.lowered, self.sites)
        else:
            _widen_indices(self.lowered)
        helpers = self._helpers()
        block = self._barrier_block(helpers) if self.lowered.has_barriers else self._direct_block()
        self.text = "\n".join([*self._head(), *helpers, "", *block, "", *self._run()]) + "\n"

    # ---- the parts -------------------------------------------------------------------------------------------------

    def _head(self) -> list[str]:
        where = f"kernels.{self.kernel.family}" if self.kernel.family != "__main__" else self.lowered.file
        mode = ", in checked mode" if self.checked else ""
        # Without reference counts: all memory is the caller's or on the stack, and counting hinders LLVM.
        counting = "" if self.checked else ', "_nrt": False'
        lines = [
            f'"""Kernel {self.kernel.name} of {where} for the CPU{mode}; written by kernels.cpu, not by hand."""',
            "",
            "import math",
            "",
            "import numpy as np",
            "from numba import njit",
            "",
            "from kernels.cpu.runtime import BLOCK_X, BLOCK_Y, BLOCK_Z, THREAD",
            "from kernels.cpu.runtime import agree as _agree",
            "from kernels.cpu.runtime import at as _at",
            "from kernels.cpu.runtime import stack as _stack",
            "",
            f'OPTIONS = {{"error_model": "numpy", "fastmath": {{"contract"}}{counting}}}',
        ]
        lines += [f"{name} = {value}" for name, value in self.constants.items() if name != value]
        return [*lines, ""]

    def _gather_constants(self, lowered: Lowered) -> None:
        for name, value in lowered.constants.items():
            if self.constants.setdefault(name, value) != value:
                raise TypeError(
                    f"kernel {self.kernel.name}: {name} means two things in it and in its helpers; rename one"
                )
        for helper in lowered.helpers.values():
            self._gather_constants(helper)

    def _helpers(self) -> list[str]:
        done: dict[str, list[str]] = {}

        def write(lowered: Lowered) -> None:
            for name, helper in lowered.helpers.items():
                write(helper)
                if name not in done:
                    report = ["_report"] if self.checked else []
                    local = [line for array in helper.local.values() for line in self._one_array(array)]
                    done[name] = _function(
                        name,
                        [*helper.parameters, *report],
                        [*parse("\n".join(local)), *helper.body],
                        "forceinline=True",
                    )

        write(self.lowered)
        return [line for lines in done.values() for line in ["", *lines]]

    def _direct_block(self) -> list[str]:
        lowered = self.lowered
        used = set().union(*(names(s) for s in lowered.body))
        indices = [name for name in [*THREAD, *BLOCK, *GRID] if name in used]
        extra = ["_report"] if self.checked else []
        parameters = [*indices, *lowered.shared, *lowered.parameters, *extra]
        local = [line for array in lowered.local.values() for line in self._one_array(array)]
        thread = _function("_one_thread", parameters, [*parse("\n".join(local)), *lowered.body], "forceinline=True")
        call = parse(f"_one_thread({', '.join(parameters)})")
        shared = [line for array in lowered.shared.values() for line in self._one_array(array)]
        loop = thread_loop(self.kernel.block, call, self.checked)
        return [*thread, "", *self._block([*parse("\n".join(shared)), *loop])]

    def _barrier_block(self, helpers: list[str]) -> list[str]:
        lowered = self.lowered
        types = infer_types(self.kernel, lowered, self._head() + helpers, self.checked)
        body = cut(lowered, self.kernel.block, self.checked)
        memory = [line for array in lowered.shared.values() for line in self._one_array(array)]
        threads = self.kernel.threads
        for name in body.kept:
            memory += self._one_array(Array(f"_{name}_of", (threads,), types[name]))
        for number in range(body.conditions):
            memory += self._one_array(Array(f"_condition{number}", (threads,), "int64"))
        for array in lowered.local.values():
            if not self.checked:
                memory += self._one_array(array)
            if self.checked or array.name not in body.private:
                memory += self._one_array(Array(f"_{array.name}_of", (threads, *array.shape), array.dtype))
        return self._block([*parse("\n".join(memory)), *body.statements])

    def _block(self, body: list[ast.stmt]) -> list[str]:
        extra = ["_order", "_report"] if self.checked else []
        return _function("_block", [*BLOCK, *GRID, *self.lowered.parameters, *extra], body)

    def _run(self) -> list[str]:
        parameters, kinds = self.lowered.parameters, self.kernel.parameters.values()
        extra = ["_order", "_report"] if self.checked else []
        types = ["int64"] * 5 + [SIGNATURES[kind] for kind in kinds] + ["int64[::1]"] * len(extra)
        report = ["_report[BLOCK_X] = blockIdx_x", "_report[BLOCK_Y] = blockIdx_y", "_report[BLOCK_Z] = blockIdx_z"]
        inside = "".join(f"\n                {line}" for line in report if self.checked)
        body = parse(
            f"""
            for _number in range(_first, _last):
                blockIdx_x = _number % gridDim_x
                blockIdx_y = _number // gridDim_x % gridDim_y
                blockIdx_z = _number // (gridDim_x * gridDim_y){inside}
                _block({", ".join([*BLOCK, *GRID, *parameters, *extra])})"""
        )
        decorator = f'"void({", ".join(types)})", nogil=True, cache=True'
        return _function("run", ["_first", "_last", *GRID, *parameters, *extra], body, decorator)

    def _one_array(self, array: Array) -> list[str]:
        """The statement that makes an array: on the stack, or in checked mode full of garbage."""
        if self.checked:
            garbage = GARBAGE["b" if array.dtype == "bool" else array.dtype[0]]
            dtype = "bool_" if array.dtype == "bool" else array.dtype
            return [f"{array.name} = np.full({array.shape}, {garbage}, np.{dtype})"]
        return [f"{array.name} = _stack({array.shape}, np.{array.dtype})"]


def _function(name: str, parameters: list[str], body: list[ast.stmt], options: str = "") -> list[str]:
    function = ast.FunctionDef(
        name, ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, []), body or [ast.Pass()], []
    )
    text = ast.unparse(ast.fix_missing_locations(ast.Module([function], [])))
    signature, options = (
        (options.split('", ')[0] + '", ', options.split('", ')[1]) if options.startswith('"') else ("", options)
    )
    return [f"@njit({signature}{options + ', ' if options else ''}**OPTIONS)", *text.splitlines()]


class _Indices(ast.NodeTransformer):
    """`a[i, j]` becomes `a[_at(i, a.shape[0], …), _at(j, a.shape[1], …)]`, and helpers are handed the report."""

    def __init__(self, lowered: Lowered, sites: list[Site]) -> None:
        self.lowered, self.sites = lowered, sites

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return node
        text = ast.unparse(node)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        checked: list[ast.expr] = []
        for axis, index in enumerate(indices):
            size = ast.Subscript(
                ast.Attribute(copy.deepcopy(node.value), "shape", ast.Load()), ast.Constant(axis), ast.Load()
            )
            self.sites.append(Site(node.lineno, text, axis))
            site = ast.Constant(len(self.sites) - 1)
            report = ast.Name("_report", ast.Load())
            checked.append(ast.Call(ast.Name("_at", ast.Load()), [self.visit(index), size, site, report], []))
        node.slice = ast.Tuple(checked, ast.Load()) if len(checked) > 1 else checked[0]
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self.lowered.helpers:
            node.args.append(ast.Name("_report", ast.Load()))
        return node


class _WideIndices(ast.NodeTransformer):
    """`a[np.uint32(i)]` becomes `a[np.uint64(i)]`.

    On a GPU 32 bits are cheaper; here cutting an index down to them hides from LLVM that neighbouring threads use
    neighbouring elements.  Both mean the same for every index that is inside (checked mode keeps the 32 bits).
    """

    def __init__(self, lowered: Lowered) -> None:
        self.casts = {"np.uint32", *(name for name, value in lowered.constants.items() if value == "np.uint32")}

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        for index in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            if isinstance(index, ast.Call) and dotted(index.func) in self.casts:
                index.func = expression("np.uint64")
        return node


def _widen_indices(lowered: Lowered) -> None:
    lowered.body = _WideIndices(lowered).visit(ast.Module(lowered.body, [])).body
    for helper in lowered.helpers.values():
        _widen_indices(helper)


def _check_indices(lowered: Lowered, sites: list[Site]) -> None:
    lowered.body = _Indices(lowered, sites).visit(ast.Module(lowered.body, [])).body
    for helper in lowered.helpers.values():
        _check_indices(helper, sites)

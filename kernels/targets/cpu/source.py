"""Step 3: the CPU version of a kernel written down as a readable Python module.

The module has the kernel's constants and helpers, then

    _one_thread  the kernel's body, if it has no barriers; otherwise its pieces are in
    _block       shared and saved memory, and the loops over the block's threads (in checked mode inside of `run`)
    run          the blocks of the grid from _first to before _end, compiled for the kernel's argument types

Every name that is not the kernel's begins with an underscore.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Set
from types import MappingProxyType

from kernels.targets.cpu.barriers import cut, names, thread_loop
from kernels.targets.cpu.inference import infer_types
from kernels.targets.cpu.lockstep import put_in_lockstep, rename
from kernels.targets.cpu.processor import lanes
from kernels.targets.cpu.vocabulary import (
    AXES,
    Array,
    Lowered,
    Site,
    UnsupportedKernel,
    dotted,
    expression,
    lower_kernel,
    parse,
    shadow_of,
)
from kernels.targets.declare import Kernel, Kind, kind_of

ELEMENTS = {"Floats": "float32", "Ints": "int32", "ints": "int64", "int": "int64", "float": "float32"}
GARBAGE = {
    "f": "np.nan",
    "i": "-2_000_000_011",
    "u": "4_000_000_007",
    "b": "True",
}  #: what checked mode fills memory with
THREAD = [f"threadIdx_{axis}" for axis in AXES]
BLOCK = [f"blockIdx_{axis}" for axis in AXES]
GRID = [f"gridDim_{axis}" for axis in AXES]


def signature_of(kind: Kind) -> str:
    """An argument's type, as Numba writes it."""
    if kind.is_array:
        return f"{ELEMENTS[kind.base]}[{', '.join([*(kind.axes - 1) * ':', '::1'])}]"
    return f"UniTuple(int64, {kind.axes})" if kind.base == "ints" else ELEMENTS[kind.base]


def read_from_work(kind: Kind, place: int) -> str:
    """An argument, read from what `threads.packed` puts together."""
    first, *others = (f"_work[{place + i}]" for i in range(kind.words))
    if kind.is_array:
        return f"_array_at({first}, ({', '.join(others)},), np.{ELEMENTS[kind.base]})"
    if kind.base == "ints":
        return f"({', '.join([first, *others])},)"
    return f"_float_in({first})" if kind.base == "float" else first


class KernelSource:
    """`text`: the module; `sites`: what the numbers in checked mode's reports stand for.

    `same`: names of arrays, each with the name of the array that it is in this launch (see `lockstep`).
    """

    def __init__(self, kernel: Kernel, checked: bool = False, same: Mapping[str, str] = MappingProxyType({})) -> None:
        self.kernel, self.checked = kernel, checked
        self.lowered = lower_kernel(kernel)
        self.sites: list[Site] = self.lowered.sites
        self.constants: dict[str, str] = {}
        self._gather_constants(self.lowered)
        # The checks change no type, and Numba takes far longer with them; so types are inferred before they are put in.
        before = [*self._head(), *self._helpers(checked=False)]
        rename(self.lowered, same)
        self.lockstep = not checked and put_in_lockstep(self.lowered, kernel.block)
        keeps = (
            self.lowered.has_barriers and cut(copy.deepcopy(self.lowered), kernel.block, checked, self.lockstep).kept
        )
        self.types = infer_types(kernel, self.lowered, before) if keeps else {}
        if checked:
            tuples = {name for name, kind in kernel.parameters.items() if kind_of(kind).base == "ints"}
            _put_checks(self.lowered, self.sites, list(self.lowered.shared), tuples)
        else:
            _widen_indices(self.lowered)
            _join_rows(self.lowered, {name for name, kind in kernel.parameters.items() if kind == "Floats"})
        thread, block = ([], self._barrier_block()) if self.lowered.has_barriers else self._direct_block()
        self.text = "\n".join([*self._head(), *self._helpers(checked), "", *thread, "", *self._run(block)]) + "\n"

    # ---- the parts -------------------------------------------------------------------------------------------------

    def _head(self) -> list[str]:
        where = self.kernel.function.__module__ if self.kernel.family != "__main__" else self.lowered.file
        mode = ", in checked mode" if self.checked else ""
        lines = [
            f'"""Kernel {self.kernel.name} of {where} for the CPU{mode}, written by kernels.targets.cpu."""',
            "",
            "import math",
            "",
            "import numpy as np",
            "from numba import cfunc, njit",
            "",
            "from kernels.targets.cpu.runtime import BLOCK_X, BLOCK_Y, BLOCK_Z, EPOCH, SHADOW, THREAD",
            "from kernels.targets.cpu.runtime import agree as _agree",
            "from kernels.targets.cpu.runtime import array_at as _array_at",
            "from kernels.targets.cpu.runtime import at as _at",
            "from kernels.targets.cpu.runtime import filled as _filled",
            "from kernels.targets.cpu.runtime import float_in as _float_in",
            "from kernels.targets.cpu.runtime import folded as _folded",
            "from kernels.targets.cpu.runtime import lanewise as _lanewise",
            "from kernels.targets.cpu.runtime import move as _move",
            "from kernels.targets.cpu.runtime import outer as _outer",
            "from kernels.targets.cpu.runtime import read as _read",
            "from kernels.targets.cpu.runtime import stack as _stack",
            "from kernels.targets.cpu.runtime import write as _write",
            "",
            # No reference counts (_nrt): all memory is the caller's or on the stack, and counting hinders LLVM.
            'OPTIONS = {"error_model": "numpy", "fastmath": {"contract"}, "no_cfunc_wrapper": True, "_nrt": False}',
            'INSIDE = {**OPTIONS, "no_cpython_wrapper": True}',  # Python calls nothing but `run`
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

    def _helpers(self, checked: bool) -> list[str]:
        done: dict[str, list[str]] = {}

        def write(lowered: Lowered) -> None:
            for name, helper in lowered.helpers.items():
                write(helper)
                if name not in done:
                    watched = [shadow_of(array) for array in _arrays(helper)]
                    extra = [*watched, "_report"] if checked else []
                    local = [line for array in helper.local.values() for line in self._one_array(array)]
                    done[name] = _function(
                        name,
                        [*helper.parameters, *extra],
                        [*parse("\n".join(local)), *helper.body],
                        "forceinline=True, **INSIDE",
                    )

        write(self.lowered)
        return [line for lines in done.values() for line in ["", *lines]]

    def _direct_block(self) -> tuple[list[str], list[ast.stmt]]:
        """`_one_thread`, and what a block does with it."""
        lowered = self.lowered
        used = set().union(*(names(s) for s in lowered.body))
        indices = [name for name in [*THREAD, *BLOCK, *GRID] if name in used]
        extra = ["_report"] if self.checked else []
        shadows = [shadow_of(name) for name in lowered.shared] if self.checked else []
        parameters = [*indices, *lowered.shared, *shadows, *lowered.parameters, *extra]
        local = [line for array in lowered.local.values() for line in self._one_array(array)]
        thread = _function(
            "_one_thread", parameters, [*parse("\n".join(local)), *lowered.body], "forceinline=True, **INSIDE"
        )
        call = parse(f"_one_thread({', '.join(parameters)})")
        shared = [line for array in lowered.shared.values() for line in self._shared_array(array)]
        loop = thread_loop(self.kernel.block, call, self.checked)
        return thread, [*parse("\n".join(shared)), *loop]

    def _barrier_block(self) -> list[ast.stmt]:
        lowered = self.lowered
        body = cut(lowered, self.kernel.block, self.checked, self.lockstep)
        memory = [line for array in lowered.shared.values() for line in self._shared_array(array)]
        threads = self.kernel.threads
        for name in body.kept:
            memory += self._one_array(Array(f"_{name}_of", (threads,), self.types[name]))
        for number in range(body.conditions):
            memory += self._one_array(Array(f"_condition{number}", (threads,), "int64"))
        for array in lowered.local.values():
            if not self.checked and array.name in body.private:
                memory += self._one_array(array)
            if self.lockstep:
                memory += self._one_array(Array(f"_{array.name}_of", (*array.shape, threads), array.dtype))
            elif self.checked or array.name not in body.private:
                memory += self._one_array(Array(f"_{array.name}_of", (threads, *array.shape), array.dtype))
        return [*parse("\n".join(memory)), *body.statements]

    def _run(self, block: list[ast.stmt]) -> list[str]:
        """`run`: its address is what `threads` calls.

        In checked mode Python calls it, because it may raise an error; and a block's code is inside it, because a
        function more is more to compile.
        """
        parameters, kinds = self.lowered.parameters, [kind_of(kind) for kind in self.kernel.parameters.values()]
        loop = parse(
            """
            for _number in range(_first, _end):
                blockIdx_x = _number % gridDim_x
                blockIdx_y = _number // gridDim_x % gridDim_y
                blockIdx_z = _number // (gridDim_x * gridDim_y)"""
        )
        body: list[ast.stmt] = loop[0].body  # type: ignore[attr-defined]
        if self.checked:
            report = [f"_report[BLOCK_{axis.upper()}] = blockIdx_{axis}" for axis in AXES]
            body += [*parse("\n".join([*report, "_report[EPOCH] = 1"])), *block]
            types = ["int64"] * 5 + [signature_of(kind) for kind in kinds] + ["int64[::1]"] * 2
            options = f'"void({", ".join(types)})", nogil=True, cache=True, **OPTIONS'
            return _function("run", ["_first", "_end", *GRID, *parameters, "_order", "_report"], loop, options)
        body += parse(f"_block({', '.join([*BLOCK, *GRID, *parameters])})")
        read, place = [], 3
        for name, kind in [*((name, kind_of("int")) for name in GRID), *zip(parameters, kinds, strict=True)]:
            read.append(f"{name} = {read_from_work(kind, place)}")
            place += kind.words
        arguments = [f"_work = _array_at(_address, ({place},), np.int64)", *read]
        options = '"void(int64, int64, int64)", cache=True, **OPTIONS'
        run = _function("run", ["_address", "_first", "_end"], [*parse("\n".join(arguments)), *loop], options, "cfunc")
        return [*_function("_block", [*BLOCK, *GRID, *parameters], block), "", *run]

    def _shared_array(self, array: Array) -> list[str]:
        """The statements that make a shared array and, in checked mode, its shadow: epoch 0, before all others."""
        shadow = [f"{shadow_of(array.name)} = _filled(({array.size},), SHADOW, 0)"] if self.checked else []
        return [*self._one_array(array), *shadow]

    def _one_array(self, array: Array) -> list[str]:
        """The statement that makes an array: on the stack, or in checked mode full of garbage."""
        if self.checked:
            garbage = GARBAGE["b" if array.dtype == "bool" else array.dtype[0]]
            dtype = "bool_" if array.dtype == "bool" else array.dtype
            return [f"{array.name} = _filled({array.shape}, np.{dtype}, {garbage})"]
        return [f"{array.name} = _stack({array.shape}, np.{array.dtype})"]


def _function(
    name: str, parameters: list[str], body: list[ast.stmt], options: str = "**INSIDE", decorator: str = "njit"
) -> list[str]:
    function = ast.FunctionDef(
        name, ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, []), body or [ast.Pass()], []
    )
    text = ast.unparse(ast.fix_missing_locations(ast.Module([function], [])))
    return [f"@{decorator}({options})", *text.splitlines()]


def _arrays(lowered: Lowered) -> list[str]:
    """The parameters of a helper that it indexes or hands to another helper that does: arrays, perhaps shared ones."""
    found = set()
    for s in lowered.body:
        for n in ast.walk(s):
            if isinstance(n, ast.Subscript):
                found.add(dotted(n.value))
            elif isinstance(n, ast.Call) and (helper := lowered.helpers.get(dotted(n.func))):
                found |= {dotted(value) for value in _handed_over(n, helper)}
    return [name for name in lowered.parameters if name in found]


def _handed_over(call: ast.Call, helper: Lowered) -> list[ast.expr]:
    """The arrays that a call gives to a helper, in the order of `_arrays(helper)`."""
    given = dict(zip(helper.parameters, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return [given[name] for name in _arrays(helper)]


class _Checks(ast.NodeTransformer):
    """Puts the checks into a body, and hands helpers what they need for theirs.

    a[i, j]         a[_at((i, j), a, …)]
    s[i] = s[j]     s[_write((i,), s, _s_shadow, …)] = s[_read((j,), s, _s_shadow, …)]    s is shared
    f(s, i)         f(s, i, _s_shadow, _report)        with None for an array that is not shared
    """

    def __init__(self, lowered: Lowered, sites: list[Site], watched: list[str], tuples: Set[str]) -> None:
        """`watched`: the shared arrays, or the parameters of a helper that may be some; `tuples`: of whole numbers."""
        self.lowered, self.sites, self.watched, self.tuples = lowered, sites, watched, tuples
        self.known = {*lowered.parameters, *lowered.shared, *lowered.local, *lowered.constants}

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return node
        text, name = ast.unparse(node), dotted(node.value)
        if name in self.tuples:
            return node
        if name not in self.known:
            raise self.second_name(node, text)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        place = f"({''.join(f'{ast.unparse(self.visit(index))}, ' for index in indices)}), {name}"
        touch, first = "_at", len(self.sites)
        self.sites += [Site(node.lineno, text, axis) for axis in range(len(indices))]
        if name in self.watched:
            touch = "_read" if isinstance(node.ctx, ast.Load) else "_write"
            place += f", {shadow_of(name)}"
            self.sites.append(Site(node.lineno, text))
        place = f"{touch}({place}, {first}, _report)"
        node.slice = expression(place)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        helper = self.lowered.helpers.get(dotted(node.func))
        handed_over = [dotted(value) for value in _handed_over(node, helper)] if helper else []
        self.generic_visit(node)
        if helper:
            shadows = [shadow_of(name) if name in self.watched else "None" for name in handed_over]
            extra = zip([shadow_of(name) for name in _arrays(helper)], shadows, strict=True)
            node.keywords += [ast.keyword(name, expression(shadow)) for name, shadow in extra]
            node.keywords.append(ast.keyword("_report", ast.Name("_report", ast.Load())))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.watched and isinstance(node.ctx, ast.Store):
            raise self.second_name(node, node.id)
        return node

    def second_name(self, node: ast.expr, text: str) -> UnsupportedKernel:
        where = f"{self.lowered.file}:{node.lineno}: {self.lowered.name}"
        return UnsupportedKernel(f"{where}: {text}: to be watched, an array must keep the one name that it has")


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


def uncast(index: ast.expr) -> ast.expr:
    """An index without the cast around it."""
    match index:
        case ast.Call(function, [inner], []) if dotted(function) in ("np.uint32", "np.uint64"):
            return inner
    return index


class _Rows(ast.NodeTransformer):
    """`for i in range(8): for j in range(16): total[i, j] += a[i] * b[j]` becomes `_outer(total, a, b, 8, 16)`.

    And `for j in range(16): total[i, j] += a[j] * b[k, j]`, rows of local arrays, becomes
    `_lanewise(total, a, b, i * 16, 0, k * 16, 16)`.

    `for j in range(16): a[k, j] = x[np.uint32(at + j)]`, from memory, becomes `_move(a, x, k * 16, at, 1, 16)`: of rows
    that overlap, LLVM would read each element once, and put the rows together from parts.

    Only where a row is exactly one vector register, and for no other loop: LLVM joins shorter rows by itself, and takes
    these apart.  And what folds a row, `for j in range(8): a[k, j] += a[k, j + 8]`, becomes `_folded(a, k * 16, 8)`:
    LLVM would gather the same column of all rows.
    """

    def __init__(self, lowered: Lowered, floats: Set[str]) -> None:
        """`floats`: the parameters that are arrays of them, as far as it is known."""
        self.constants = lowered.constants
        self.local = {name: array for name, array in lowered.local.items() if array.dtype == "float32"}
        self.tables = {name: array for name, array in lowered.shared.items() if array.dtype == "float32"} | self.local
        self.floats = {*floats, *(name for name, array in self.tables.items() if len(array.shape) == 1)}

    def row(self, node: ast.expr, j: str) -> tuple[str, str]:
        """The local array of `a[j]` or `a[i, j]`, and where the row begins in it; ("", "") for anything else."""
        match node:
            case ast.Subscript(ast.Name(name), ast.Name(last)) if name in self.local and last == j:
                return name, "0"
            case ast.Subscript(ast.Name(name), ast.Tuple([first, ast.Name(last)])) if name in self.local and last == j:
                return name, f"({ast.unparse(first)}) * {self.local[name].shape[-1]}"
        return "", ""

    def beyond(self, node: ast.expr, j: str) -> tuple[str, str]:
        """The array of `x[np.uint32(at + j)]` or `s[p, at + j]`, and where j is 0 in it; ("", "") for anything else."""
        match node:
            case ast.Subscript(ast.Name(name), ast.Tuple([first, last])) if name in self.tables:
                before = f"np.int64({ast.unparse(uncast(first))}) * {self.tables[name].shape[-1]} + "
            case ast.Subscript(ast.Name(name), last) if name in self.floats:
                before = ""
            case _:
                return "", ""
        match uncast(last):
            case ast.BinOp(at, ast.Add(), ast.Name(lane)) if lane == j and j not in names(at):
                return name, f"{before}{ast.unparse(at)}"
        return "", ""

    def length(self, node: ast.stmt) -> tuple[str, int]:
        """The variable of `for i in range(8)` and its 8; ("", 0) for anything else."""
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and len(node.body) == 1:
            match node.iter:
                case ast.Call(ast.Name("range"), [ast.Constant(int(count))]):
                    return node.target.id, count
                case ast.Call(ast.Name("range"), [ast.Name(name)]) if self.constants.get(name, "").isdecimal():
                    return node.target.id, int(self.constants[name])
        return "", 0

    def visit_For(self, node: ast.For) -> ast.stmt:
        lane, count = self.length(node)
        if count == lanes():
            match node.body[0]:
                case ast.AugAssign(target, ast.Add(), ast.BinOp(first, ast.Mult(), second)):
                    rows = [self.row(each, lane) for each in (target, first, second)]
                    if all(name for name, _ in rows):
                        arrays, starts = (", ".join(part) for part in zip(*rows, strict=True))
                        return ast.copy_location(parse(f"_lanewise({arrays}, {starts}, {count})")[0], node)
                case ast.Assign([target], value):
                    (to, start), (origin, at) = self.row(target, lane), self.beyond(value, lane)
                    if to and origin:
                        return ast.copy_location(parse(f"_move({to}, {origin}, {start}, {at}, 1, {count})")[0], node)
        elif 1 < count < lanes():
            match node.body[0]:
                case ast.AugAssign(target, ast.Add(), value):
                    name, start = self.row(target, lane)
                    upper = ast.unparse(target).replace(f", {lane}]", f", {lane} + {count}]")
                    if name and ast.unparse(value) == upper:
                        return ast.copy_location(parse(f"_folded({name}, {start}, {count})")[0], node)
        (i, height), (j, width) = (lane, count), self.length(node.body[0])
        if height and width == lanes():
            match node.body[0].body[0]:  # type: ignore[attr-defined]
                case ast.AugAssign(ast.Subscript(ast.Name(total), places), ast.Add(), ast.BinOp(
                    ast.Subscript(ast.Name(a), ast.Name(left)), ast.Mult(), ast.Subscript(ast.Name(b), ast.Name(right))
                )) if (ast.unparse(places), left, right) == (f"({i}, {j})", i, j):  # fmt: skip
                    return ast.copy_location(parse(f"_outer({total}, {a}, {b}, {height}, {width})")[0], node)
        return self.generic_visit(node)  # type: ignore[return-value]


def _join_rows(lowered: Lowered, floats: Set[str] = frozenset()) -> None:
    lowered.body = _Rows(lowered, floats).visit(ast.Module(lowered.body, [])).body
    for helper in lowered.helpers.values():
        _join_rows(helper)


def _put_checks(lowered: Lowered, sites: list[Site], watched: list[str], tuples: Set[str] = frozenset()) -> None:
    helpers = [(helper, _arrays(helper)) for helper in lowered.helpers.values()]
    lowered.body = _Checks(lowered, sites, watched, tuples).visit(ast.Module(lowered.body, [])).body
    for helper, arrays in helpers:
        _put_checks(helper, sites, arrays)

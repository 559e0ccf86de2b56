"""The types that Numba infers for a kernel's variables: a saved variable needs an array of its type."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from numba.core import compiler, typed_passes, types
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.typing.templates import AbstractTemplate, signature
from numba.np.numpy_support import as_dtype

from kernels.targets.cpu.vocabulary import AXES, Lowered, parse
from kernels.targets.declare import Kernel, Kind, kind_of

ELEMENTS = {
    "Floats": types.float32, "Ints": types.int32, "int": types.int64, "ints": types.int64, "float": types.float32,
}  # fmt: skip


def numba_type(kind: Kind) -> types.Type:
    """The type of an argument on the CPU."""
    element = ELEMENTS[kind.base]
    if kind.base == "ints":
        return types.containers.UniTuple(element, kind.axes)
    return types.Array(element, kind.axes, "C") if kind.is_array else element


class _WithoutBarriers(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return ast.Pass() if isinstance(node.value, ast.Yield) else node


def infer_types(kernel: Kernel, lowered: Lowered, preamble: list[str]) -> dict[str, str]:
    """Variable → NumPy type name, for the kernel with its barriers taken out."""
    arrays = [
        f"{array.name} = _stack({array.shape}, np.{array.dtype})"
        for array in [*lowered.shared.values(), *lowered.local.values()]
    ]
    body = [*parse("\n".join(arrays)), *(_WithoutBarriers().visit(copy.deepcopy(s)) for s in lowered.body)]
    indices = [f"{index}_{axis}" for index in ("threadIdx", "blockIdx", "gridDim") for axis in AXES]
    parameters = [ast.arg(name) for name in [*indices, *lowered.parameters]]
    probe = ast.FunctionDef("probe", ast.arguments([], parameters, None, [], [], None, []), body, [])
    text = "\n".join([*preamble, ast.unparse(ast.fix_missing_locations(ast.Module([probe], [])))])
    namespace: dict[str, Any] = {"__name__": __name__}  # Numba imports a function's module by its name
    exec(compile(text, f"<types of {kernel.name}>", "exec"), namespace)
    for name, helper in namespace.items():
        if isinstance(helper, Dispatcher) and helper.py_func.__module__ == __name__:
            namespace[name] = helper.py_func
            cpu_target.typing_context.insert_global(helper.py_func, types.Function(_helper(helper.py_func)))
    argument_types = [types.int64] * len(indices) + [numba_type(kind_of(kind)) for kind in kernel.parameters.values()]
    return {
        name: as_dtype(kind).name
        for name, kind in _typed(namespace["probe"], argument_types).typemap.items()
        if isinstance(kind, (types.Number, types.Boolean))
    }


def _typed(function: Callable[..., Any], argument_types: Sequence[Any]) -> Any:
    """The types of a function's variables and result; no code is made."""
    typing_context, target_context = cpu_target.typing_context, cpu_target.target_context
    typing_context.refresh()
    target_context.refresh()
    intermediate = compiler.run_frontend(function)
    return typed_passes.type_inference_stage(typing_context, target_context, intermediate, tuple(argument_types), None)


def _helper(function: Callable[..., Any]) -> Any:
    """What Numba asks for the type of a call: only types are inferred, where a dispatcher would compile the helper."""

    class Template(AbstractTemplate):
        key = function

        def generic(self, args: Any, kws: Any) -> Any:
            bound = inspect.signature(function).bind(*args, **kws)
            made = signature(_typed(function, bound.args).return_type, *bound.args)
            return made.replace(pysig=inspect.signature(function))

    return Template

"""The types that Numba infers for a kernel's variables: a saved variable needs an array of its type."""

from __future__ import annotations

import ast
import copy
from typing import Any

from numba.core import compiler, typed_passes, types
from numba.core.registry import cpu_target
from numba.np.numpy_support import as_dtype

from kernels.cpu.vocabulary import AXES, Lowered, parse
from kernels.declare import KINDS, Kernel

NUMBA = {"Floats": types.float32[::1], "Ints": types.int32[::1], "int": types.int64, "float": types.float32}
assert NUMBA.keys() == KINDS.keys()


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
    argument_types = [types.int64] * len(indices) + [NUMBA[kind] for kind in kernel.parameters.values()]

    typing_context, target_context = cpu_target.typing_context, cpu_target.target_context
    typing_context.refresh()
    target_context.refresh()
    intermediate = compiler.run_frontend(namespace["probe"])
    typed = typed_passes.type_inference_stage(typing_context, target_context, intermediate, tuple(argument_types), None)
    return {
        name: as_dtype(kind).name
        for name, kind in typed.typemap.items()
        if isinstance(kind, (types.Number, types.Boolean))
    }

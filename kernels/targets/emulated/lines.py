"""Work by the lines of a script: a finding says "line 226, `conv.backward_filter` on `compute`, reads `images`".

The driver asks before each copy, fill and launch, in the thread that gives it.  The answer is the line of the script
that this thread runs, and the variables of this line, by the addresses of their arrays and streams.
"""

from __future__ import annotations

import ast
import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernels.targets import emulated


@contextmanager
def work_named_by_line_of(path: str) -> Iterator[None]:
    """Inside, all work that this script gives is named by its lines."""
    lines = statements(Path(path).read_bytes())

    def answer() -> None:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != path:
            frame = frame.f_back
        statement = lines.get(frame.f_lineno) if frame else None
        label, names = "", "\n"
        if statement is not None:
            label = f"line {statement.lineno}{done(statement)}"
            for name in variables(statement):
                if place := address(frame.f_locals.get(name, frame.f_globals.get(name))):
                    names += f"{place:x} {name}\n"
        emulated.next_work(label)
        emulated._driver.emulated_names(names.encode())

    asked = ctypes.CFUNCTYPE(None)(answer)
    emulated._driver.emulated_ask_before_work(asked)
    try:
        yield
    finally:
        emulated._driver.emulated_ask_before_work(None)
        emulated.next_work("")
        emulated._driver.emulated_names(b"")


def statements(source: bytes) -> dict[int, ast.stmt]:
    """Line → the innermost statement there."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]  # outer ones come first
    return {line: node for node in found for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def done(statement: ast.stmt) -> str:
    """What a statement calls first: `conv.forward`, or the kernel of `double[1, 64, stream](x)`."""
    call = next((node for node in ast.walk(statement) if isinstance(node, ast.Call)), None)
    if call is None:
        return ""
    return f", `{ast.unparse(call.func.value if isinstance(call.func, ast.Subscript) else call.func)}`"


def variables(statement: ast.stmt) -> dict[str, None]:
    return {node.id: None for node in ast.walk(statement) if isinstance(node, ast.Name)}


def address(value: Any) -> int:
    """Where an array begins, or the handle of a stream; 0: it is neither."""
    for interface in ("__cuda_array_interface__", "__array_interface__"):
        if found := getattr(value, interface, None):
            return int(found["data"][0])
    handle = getattr(value, "handle", 0)
    try:
        return int(getattr(handle, "value", handle) or 0)
    except (TypeError, ValueError):
        return 0

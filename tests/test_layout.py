"""The rules that no single test would see broken: which room imports which, and how a kernel file opens."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHIM = "kernels/shim.py"

#: Imports point downwards only: a room may import from rooms of a lower floor and from itself.
FLOORS = (
    ("kernels", "refimpl.text"),
    ("refimpl.network",),
    ("refimpl.memory", "refimpl.machine"),
    ("refimpl.planner",),
    ("refimpl.vdnn", "refimpl.vdnnpp", "refimpl.superneurons", "refimpl.accudnn", "refimpl.backend"),
    ("refimpl.report",),
    ("refimpl.registry",),
    ("refimpl.bench", "refimpl.reproduce"),
    ("refimpl",),  # the public names; it imports everything when it is first asked for
    ("refimpl.cli",),
    ("refimpl.__main__",),
)


def sources(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every module of both packages: its path, and what it says."""
    for package in ("kernels", "refimpl"):
        for path in sorted((root / package).rglob("*.py")):
            yield path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Dotted names of everything that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name: str) -> str | None:
    """The room that a dotted name lies in; None for what is not ours."""
    rooms = [room for floor in FLOORS for room in floor if name == room or name.startswith(room + ".")]
    return max(rooms, key=len, default=None)


def floor(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def violations(root: Path) -> list[str]:
    """What breaks a rule, one line each."""
    found = []
    for path, tree in sources(root):
        here = room(path.removesuffix(".py").replace("/", "."))
        assert here is not None
        for name in imported(tree):
            there = room(name)
            if there is not None and there != here and floor(there) >= floor(here):
                found.append(f"{path} imports {name}, which is not below it")
            if path != SHIM and (name == "numba.cuda" or name.startswith("numba.cuda.")):
                found.append(f"{path} imports {name}; only {SHIM} may")
        if path.startswith("kernels/") and path != "kernels/__init__.py" and not ast.get_docstring(tree):
            found.append(f"{path} does not open with a docstring")
    return found


def test_the_tree_keeps_the_rules() -> None:
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("kernels/relu.py", '"""Doc."""\nfrom refimpl.bench.kernels import Case', "imports refimpl.bench.kernels.Case"),
        ("kernels/relu.py", '"""Doc."""\nfrom numba import cuda', "imports numba.cuda; only"),
        ("kernels/relu.py", '"""Doc."""\nimport numba.cuda', "imports numba.cuda; only"),
        ("kernels/relu.py", '"""Doc."""\nfrom numba.cuda import jit', "imports numba.cuda.jit; only"),
        ("kernels/relu.py", "import math", "does not open with a docstring"),
        ("refimpl/network/layers.py", "from refimpl.planner import loop", "imports refimpl.planner.loop"),
        ("refimpl/network/layers.py", "def late():\n    import refimpl.cli", "imports refimpl.cli"),
        ("refimpl/machine/model.py", "import refimpl.memory.pool", "imports refimpl.memory.pool"),
        ("refimpl/vdnn/policy.py", "from refimpl import vdnnpp", "imports refimpl.vdnnpp"),
        ("refimpl/vdnnpp/policy.py", "from refimpl.vdnn import offload", "imports refimpl.vdnn.offload"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, path: str, text: str, says: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    (problem,) = violations(tmp_path)
    assert problem.startswith(path) and says in problem


def test_imports_downwards_are_allowed(tmp_path: Path) -> None:
    for path, text in (
        ("kernels/shim.py", '"""Doc."""\nfrom numba import cuda'),
        ("kernels/conv/direct.py", '"""Doc."""\nfrom kernels.shim import cuda'),
        ("refimpl/vdnn/policy.py", "from refimpl.planner import slots\nfrom refimpl.vdnn import listing"),
        ("refimpl/cli.py", "from refimpl import bench, report\nfrom kernels import gemm"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert violations(tmp_path) == []


def test_every_kernel_says_what_it_does() -> None:
    for path in (ROOT / "kernels").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any("kernel(" in ast.unparse(d) for d in node.decorator_list):
                assert ast.get_docstring(node), f"{path.relative_to(ROOT)}: kernel {node.name} has no docstring"

"""The rules that no single test sees broken: which room imports which, no files in a circle, how a kernel opens."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHIM = "kernels/targets/shim.py"

#: Imports point downwards only: a room may import from rooms of a lower floor and from itself.
FLOORS = (
    ("kernels", "refimpl.text"),
    ("refimpl.torch",),  # what carries a plan out needs PyTorch alone
    ("refimpl.network",),
    ("refimpl.memory", "refimpl.machine"),
    ("refimpl.planner",),
    ("refimpl.vdnn", "refimpl.vdnnpp", "refimpl.superneurons", "refimpl.accudnn", "refimpl.backend"),
    ("refimpl.streams",),
    ("refimpl.executor",),
    ("refimpl.combined",),  # about combining the papers: it may import them all
    ("refimpl.report",),
    ("refimpl.names",),
    ("refimpl.fit",),
    ("refimpl.names.by_module",),
    ("refimpl",),  # the public names; it imports everything when it is first used
    ("refimpl.cli",),
    ("refimpl.studies",),  # what evaluates; the library, which is all that is below, never imports it
    ("refimpl.__main__",),
)

#: Files that may be in `refimpl/` itself; everything else is in a room.
LOOSE = {
    "refimpl/__init__.py", "refimpl/__main__.py", "refimpl/executor.py", "refimpl/streams.py", "refimpl/text.py",
}  # fmt: skip

#: Files that import each other in a circle, and why; a circle that is broken leaves this list.
CIRCLES = {
    "Network offers trained_by(), inference() and data_parallel() as methods, and what they make is a Network: meant": {
        "refimpl.network.derived", "refimpl.network.network",
    },
    "Program offers verify(), listing() and decisions() as methods, and all read a Program: meant": {
        "refimpl.planner.decisions", "refimpl.planner.listing", "refimpl.planner.program", "refimpl.planner.verify",
        "refimpl.planner.verify.check", "refimpl.planner.verify.proof",
    },
}  # fmt: skip

#: File names that several folders have by design, and why.  Every other name means one file.
SHARED_NAMES = {
    "__init__": "Python's: what a package is",
    "__main__": "Python's: what `python -m` runs",
    "conftest": "pytest's",
    "presets": "a paper's folder has its setups there, `names` has all of them",
    "offload": "a paper's folder has its module of the slot `offload` there",
    "prefetch": "a paper's folder has its module of the slot `prefetch` there",
    "modules": "a folder with modules of several slots has them there; `names` has all, and the tests draw from them",
    "command": "a study's subcommand of `refimpl`",
    "published": "a study's published figures, each with its source and mark",
    "figures": "the figures that tables and pictures show",
    "measured": "a study's figures that are measured, and not planned",
    "pictures": "a study's pictures",
    "copies": "between the device and the host: of the executor, and of the back ends",
    "run": "a command of `refimpl`; and what runs a plain kernel",
    "evaluation": "a study's parts, as tables and as pictures",
}

#: Folders where a file is named after the room that it is about.
NAMED_AFTER_ROOMS = ("tests/faults/",)
#: The folder where a file is named after the plain kernels that it is faster than.
RUNGS = ("kernels/fast/",)

#: Where the word *compress* is at home: vDNN++'s folder, what reproduces its figures, one file of the back ends, what
#: `run` says of such maps, and what names modules and presets.  Every other file sees streams, buffers, instructions.
COMPRESSES = (
    "refimpl/vdnnpp/", "refimpl/studies/reproduce/", "refimpl/backend/host_thread.py", "refimpl/cli/compressed.py",
    "refimpl/cli/lists.py", "refimpl/names/",
)  # fmt: skip
#: Another file → its words: names that a user's script may have, of fields of JSON and of an attribute.
COMPRESSED = {
    "refimpl/backend/trainer.py": {"compressed"},
    "refimpl/cli/run.py": {"compressed", "compressed_line", "compressed_table"},
    "refimpl/planner/instructions.py": {"compressed_bytes"},
    "refimpl/planner/store.py": {"compressed_bytes"},
    "refimpl/report/json.py": {"compressed_bytes"},
}
#: Another file → its words for what is no map: the members of an .npz file, and a page's data.
ZIPPED = {
    "refimpl/backend/npz.py": {"compress_size", "compress_type", "compressed"},
    "refimpl/report/page/document.py": {"compress"},
    "refimpl/report/page/model.js": {"DecompressionStream"},
    "refimpl/report/page/page.js": {"DecompressionStream"},
}


def sources(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every module of both packages: its path, and what it says."""
    for package in ("kernels", "refimpl"):
        for path in sorted((root / package).rglob("*.py")):
            yield path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Dotted names of everything that a module imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name: str) -> str | None:
    """The room that a dotted name is in; None for what is not ours."""
    rooms = [room for floor in FLOORS for room in floor if name == room or name.startswith(room + ".")]
    return max(rooms, key=len, default=None)


def floor(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def is_plain(path: str) -> bool:
    """Whether a file is directly in `kernels/`, as those of the plain kernels are."""
    return path.startswith("kernels/") and path.count("/") == 1


def may_import_cuda(path: str) -> bool:
    return path in (SHIM, "refimpl/executor.py") or is_plain(path)


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def circles(root: Path) -> list[set[str]]:
    """Modules that import each other, directly or through others; each circle once.

    Every import that is written counts, in a function or under TYPE_CHECKING too.  A package's `__init__` is a file
    like any other: importing a name from the package imports it.  What is not written does not count: to import
    `a.b`, Python executes `a/__init__.py` first, which may re-export `a.b`, and that is no circle.
    """
    trees = {module_name(path): tree for path, tree in sources(root)}
    imports: dict[str, set[str]] = {}
    for module, tree in trees.items():
        named = {name if name in trees else name.rpartition(".")[0] for name in imported(tree)}
        imports[module] = (named & trees.keys()) - {module}
    reached: dict[str, set[str]] = {}
    for module in trees:
        reached[module], waiting = set(), [module]
        while waiting:
            new = imports[waiting.pop()] - reached[module]
            reached[module] |= new
            waiting += new
    found = [{other for other in reached[module] if module in reached[other]} for module in trees]
    return [circle for i, circle in enumerate(found) if circle and circle not in found[:i]]


def violations(root: Path) -> list[str]:
    """What breaks a rule, one line each."""
    found = []
    for path, tree in sources(root):
        here = room(module_name(path))
        assert here is not None
        if path.startswith("refimpl/") and path.count("/") == 1 and path not in LOOSE:
            found.append(f"{path} is in no room")
        if here == "refimpl" and path.count("/") > 1:
            found.append(f"{path} is in a room that has no floor")
        if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
            found.append(f"{path} has a relative import; write the whole name")
        for name in imported(tree):
            there = room(name)
            above = there is not None and there != here and floor(there) >= floor(here)
            if above:
                found.append(f"{path} imports {name}, which is not below it")
            if not may_import_cuda(path) and (name == "numba.cuda" or name.startswith("numba.cuda.")):
                found.append(f"{path} imports {name}; only plain kernels, the executor and {SHIM} may")
        if path.startswith("kernels/") and path != "kernels/__init__.py" and not ast.get_docstring(tree):
            found.append(f"{path} does not open with a docstring")
    return found


@pytest.mark.slow
def test_the_tree_keeps_the_rules() -> None:
    assert violations(ROOT) == []


@pytest.mark.slow
def test_no_files_import_each_other_in_a_circle() -> None:
    found = circles(ROOT)
    assert [sorted(circle) for circle in found if circle not in CIRCLES.values()] == []
    assert [why for why, circle in CIRCLES.items() if circle not in found] == [], "broken: take it from the list"


def test_circles_are_found_also_where_an_import_is_late_or_for_types_alone(tmp_path: Path) -> None:
    for path, text in (
        ("kernels/a.py", "def late():\n    from kernels.b import f"),
        ("kernels/b.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kernels.c import T"),
        ("kernels/c.py", "import kernels.a"),
        ("kernels/outside.py", "from kernels import a"),
        ("refimpl/network/__init__.py", "from refimpl.network.layer import Layer"),  # re-exports: no circle
        ("refimpl/network/layer.py", "from refimpl.network.tensor import Tensor"),
        ("refimpl/network/tensor.py", ""),
        ("refimpl/machine/__init__.py", "from refimpl.machine.model import Machine"),
        ("refimpl/machine/model.py", "from refimpl.machine import Machine"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert circles(tmp_path) == [
        {"kernels.a", "kernels.b", "kernels.c"}, {"refimpl.machine", "refimpl.machine.model"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("kernels/fast/relu.py", '"""Doc."""\nimport refimpl.studies.bench.kernels', "imports refimpl.studies.bench"),
        ("kernels/fast/relu.py", '"""Doc."""\nfrom numba import cuda', "imports numba.cuda; only"),
        ("kernels/fast/relu.py", '"""Doc."""\nimport numba.cuda', "imports numba.cuda; only"),
        ("kernels/fast/relu.py", '"""Doc."""\nfrom numba.cuda import jit', "imports numba.cuda.jit; only"),
        ("kernels/fast/relu.py", "import math", "does not open with a docstring"),
        ("refimpl/network/layers.py", "from refimpl.planner import loop", "imports refimpl.planner.loop"),
        ("refimpl/network/layers.py", "def late():\n    import refimpl.cli", "imports refimpl.cli"),
        ("refimpl/cli/run.py", "from refimpl.studies.bench import cases", "imports refimpl.studies.bench.cases"),
        ("refimpl/machine/model.py", "import refimpl.memory.pool", "imports refimpl.memory.pool"),
        ("refimpl/vdnn/policy.py", "from refimpl import vdnnpp", "imports refimpl.vdnnpp"),
        ("refimpl/vdnn/policy.py", "from . import listing", "has a relative import"),
        ("refimpl/errors.py", "", "is in no room"),
        ("refimpl/attic/loop.py", "", "is in a room that has no floor"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, path: str, text: str, says: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    (problem,) = violations(tmp_path)
    assert problem.startswith(path) and says in problem


def given_twice(root: Path) -> dict[str, list[str]]:
    """Class name → the files that give it at their top level, where it is more than one."""
    found: dict[str, list[str]] = {}
    for path, tree in sources(root):
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_a_class_name_means_one_thing(tmp_path: Path) -> None:
    assert given_twice(ROOT) == {}
    for path in ("refimpl/memory/pool.py", "refimpl/planner/loop.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("class Row:\n    class Cell: ...\n")
    assert given_twice(tmp_path) == {"Row": ["refimpl/memory/pool.py", "refimpl/planner/loop.py"]}


def files_given_twice(root: Path) -> dict[str, list[str]]:
    """File name → the files that have it, where it is more than one; a test is named after the file that it tests."""
    found: dict[str, list[str]] = {}
    for folder in ("kernels", "refimpl", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not path.stem.startswith("test_") and not name.startswith((*NAMED_AFTER_ROOMS, *RUNGS)):
                found.setdefault(path.stem, []).append(name)
    return {stem: paths for stem, paths in found.items() if len(paths) > 1}


def test_a_file_name_means_one_file(tmp_path: Path) -> None:
    assert {stem: paths for stem, paths in files_given_twice(ROOT).items() if stem not in SHARED_NAMES} == {}
    assert SHARED_NAMES.keys() <= files_given_twice(ROOT).keys(), "no longer shared: take it from the list"
    for path in ("refimpl/memory/pool.py", "kernels/pool.py", "tests/memory/test_pool.py", "tests/faults/pool.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    assert files_given_twice(tmp_path) == {"pool": ["kernels/pool.py", "refimpl/memory/pool.py"]}


def compressing(root: Path) -> dict[str, set[str]]:
    """File of `refimpl/` → its words with *compress* in them, where it is not at home."""
    texts = [path for path in sorted((root / "refimpl").rglob("*")) if path.suffix in (".py", ".js", ".css", ".html")]
    named = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in texts}
    words = {name: set(re.findall(r"(?i)\w*compress\w*", text)) for name, text in named.items()}
    return {name: found for name, found in words.items() if found and not name.startswith(COMPRESSES)}


def test_that_a_host_thread_compresses_is_known_in_few_files(tmp_path: Path) -> None:
    assert compressing(ROOT) == COMPRESSED | ZIPPED
    assert [name for name in COMPRESSES if not (ROOT / name).exists()] == []
    for name in ("vdnnpp/compression.py", "planner/listing.py", "report/page/page.css"):
        path = tmp_path / "refimpl" / name
        path.parent.mkdir(parents=True)
        path.write_text("i.decompress {}")
    others = ("refimpl/planner/listing.py", "refimpl/report/page/page.css")
    assert compressing(tmp_path) == {name: {"decompress"} for name in others}


def test_imports_downwards_are_allowed(tmp_path: Path) -> None:
    for path, text in (
        ("kernels/targets/shim.py", '"""Doc."""\nfrom numba import cuda'),
        ("kernels/fast/conv/im2col.py", '"""Doc."""\nfrom kernels.targets.shim import cuda'),
        ("refimpl/vdnn/policy.py", "from refimpl.planner import slots\nfrom refimpl.vdnn import listing"),
        ("refimpl/studies/bench/command.py", "from refimpl import cli, report\nfrom kernels import gemm"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert violations(tmp_path) == []


def test_every_kernel_says_what_it_does() -> None:
    for path in (ROOT / "kernels").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any("kernel(" in ast.unparse(d) for d in node.decorator_list):
                assert ast.get_docstring(node), f"{path.relative_to(ROOT)}: kernel {node.name} has no docstring"

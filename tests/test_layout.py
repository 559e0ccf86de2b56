"""The rules that no single test sees broken: three storeys, no rooms or files in a circle, how a kernel opens."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house import LOADED, loaded

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)  #: which an import can be in
SHIM, PRIVATE = "kernels/targets/shim.py", "kernels/targets/private.py"
#: What Numba's CUDA targets do not promise: their modules, and what a compiled kernel has.
NOT_PUBLIC = re.compile(r"\._?codelibrary|get_asm_str|get_cubin|get_cufunc|_compile_pyfunc|llvm_strs|numba_cuda_mlir")

#: Storey → its rooms, folders or files.  What runs when a file is loaded imports nothing of a higher storey.
STOREYS = {
    "read first": (
        "kernels", "refimpl", "refimpl.text", "refimpl.files", "refimpl.memory", "refimpl.network", "refimpl.slots",
        "refimpl.vdnn", "refimpl.vdnnpp", "refimpl.superneurons", "refimpl.accudnn", "refimpl.executor",
        "refimpl.streams",
    ),
    "planned beforehand": (
        "kernels.checks", "kernels.targets", "kernels.fast", "kernels.fast.cpu", "refimpl.machine", "refimpl.planner",
        "refimpl.backend", "refimpl.combined",
    ),
    "around": (
        "refimpl.zoo", "refimpl.importing", "refimpl.torch", "refimpl.names", "refimpl.points", "refimpl.report",
        "refimpl.parallel", "refimpl.cli", "refimpl.studies", "refimpl.__main__",
    ),
}  # fmt: skip

#: Rooms of which some may not import others, beside the storeys: what they may import.
ALONE = {
    "kernels": ("kernels",),  # plain kernels: Numba, NumPy and each other
    "kernels.checks": ("kernels",), "kernels.targets": ("kernels",), "kernels.fast": ("kernels",),
    "kernels.fast.cpu": ("kernels",),
    "refimpl.torch": ("refimpl.text",),  # what carries a plan out needs PyTorch alone
}  # fmt: skip

#: Papers' folders: none imports another's.
PAPERS = ("refimpl.vdnn", "refimpl.vdnnpp", "refimpl.superneurons", "refimpl.accudnn")

#: Imports inside functions that go up a storey, at most eight.  `refimpl` itself imports what is asked of it by name.
UPWARDS = {
    ("kernels/run.py", "kernels.checks"),  # a wrong argument is one clear error
    ("kernels/run.py", "kernels.targets"),  # a plain kernel is compiled as the fast ones are
    ("refimpl/backend/trainer.py", "refimpl.importing"),  # trained weights go back into the file or module
    ("refimpl/slots/__init__.py", "refimpl.names"),  # all modules by name
    ("refimpl/vdnnpp/pool_search.py", "refimpl.planner"),  # one plan is read with every lag
    ("refimpl/vdnnpp/packing.py", "kernels.targets"),  # the host's threads pack with a compiled function
}

#: File names that several folders have by design, and why.  Every other name means one file.
SHARED_NAMES = {
    "__init__": "Python's: what a package is",
    "__main__": "Python's: what `python -m` runs",
    "conftest": "pytest's",
    "presets": "a paper's folder has its setups there, `names` has all of them",
    "offload": "a paper's folder has its module of the slot `offload` there",
    "prefetch": "a paper's folder has its module of the slot `prefetch` there",
    "modules": "a folder with modules of several slots has them there; `names` has all, and the tests draw from them",
    "carried_out": "modules that carry out what a search has decided",
    "search": "a search over setups: the slots' protocol, and the combined policy's",
    "seconds": "of calls on a machine; of tests",
    "command": "a study's subcommand of `refimpl`",
    "published": "a study's published figures, each with its source and mark",
    "figures": "the figures that tables and pictures show",
    "measured": "a study's figures that are measured, and not planned",
    "pictures": "a study's pictures",
    "private": "what is used of a library that is not public: of Numba, of PyTorch",
    "run": "a command of `refimpl`; and what runs a plain kernel",
}

#: Folders where a file is named after the room that it is about.
NAMED_AFTER_ROOMS = ("tests/faults/",)
#: The folder where a file is named after the plain kernels that it is faster than.
RUNGS = ("kernels/fast/",)


parsed = cache(ast.parse)


def sources(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every module of both packages: its path, and what it says."""
    for package in ("kernels", "refimpl"):
        for path in sorted((root / package).rglob("*.py")):
            yield path.relative_to(root).as_posix(), parsed(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST, late: bool = True) -> Iterator[str]:
    """Dotted names of everything that a module imports; without `late` only of what runs when it is loaded."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, STATEMENTS) and (late or not (isinstance(node, FUNCTIONS) or is_for_types(node))):
            yield from imported(node, late)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def late_imports(tree: ast.AST) -> set[str]:
    """What functions import, and nothing that is for types alone."""
    return {name for node in statements(tree) if isinstance(node, FUNCTIONS) for name in imported(node)}


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Those of a module or a definition, and what is within them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, STATEMENTS):
            yield node
            yield from statements(node)


@cache
def room(name: str) -> str | None:
    """The room that a dotted name is in; None for what is not ours."""
    rooms = [room for rooms in STOREYS.values() for room in rooms if name == room or name.startswith(room + ".")]
    return max(rooms, key=len, default=None)


def storey(room: str) -> int:
    return next(number for number, rooms in enumerate(STOREYS.values()) if room in rooms)


def is_plain(path: str) -> bool:
    """Whether a file is directly in `kernels/`, as those of the plain kernels are."""
    return path.startswith("kernels/") and path.count("/") == 1


def may_import_cuda(path: str) -> bool:
    return path in (SHIM, PRIVATE, "refimpl/executor.py") or is_plain(path)


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(root: Path) -> dict[str, set[str]]:
    """Module → the modules that it imports when it is loaded.

    A package's `__init__` is a file like any other: importing a name from the package imports it.  What is not written
    does not count: to import `a.b`, Python executes `a/__init__.py` first, which may re-export `a.b`.
    """
    trees = {module_name(path): tree for path, tree in sources(root)}
    found: dict[str, set[str]] = {}
    for module, tree in trees.items():
        named = {name if name in trees else name.rpartition(".")[0] for name in imported(tree, late=False)}
        found[module] = (named & trees.keys()) - {module}
    return found


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Modules, or rooms, that import each other, directly or through others; each circle once."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        reached[module], waiting = set(), [module]
        while waiting:
            new = imports.get(waiting.pop(), set()) - reached[module]
            reached[module] |= new
            waiting += new
    found = [{other for other in reached[module] if module in reached.get(other, ())} for module in imports]
    return [circle for i, circle in enumerate(found) if circle and circle not in found[:i]]


def of_rooms(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Room → the rooms that its files import."""
    found: dict[str, set[str]] = {}
    for module, others in imports.items():
        here = room(module)
        assert here is not None
        found.setdefault(here, set()).update({there for one in others if (there := room(one))} - {here})
    return found


def violations(root: Path) -> list[str]:
    """What breaks a rule, one line each."""
    found = []
    for path, tree in sources(root):
        here = room(module_name(path))
        assert here is not None
        if here == "refimpl" and path != "refimpl/__init__.py":
            found.append(f"{path} is in no room")
        if re.search(r"^\s*from \.", text := (root / path).read_text(encoding="utf-8"), re.MULTILINE):
            found.append(f"{path} has a relative import; write the whole name")
        for name in imported(tree, late=False):
            there = room(name)
            if there is not None and storey(there) > storey(here):
                found.append(f"{path} imports {name}, which is a storey up")
            elif there is not None and here in PAPERS and there in PAPERS and there != here:
                found.append(f"{path} imports {name}, another paper's")
            elif there is not None and here in ALONE and there != here and not there.startswith(ALONE[here]):
                found.append(f"{path} imports {name}, and its room stands alone")
        for name in imported(tree):
            if not may_import_cuda(path) and (name == "numba.cuda" or name.startswith("numba.cuda.")):
                found.append(f"{path} imports {name}; only plain kernels, the executor, {SHIM} and {PRIVATE} may")
        if path != PRIVATE and (used := NOT_PUBLIC.search(text)):
            found.append(f"{path} uses {used[0]} of Numba, which is not public; only {PRIVATE} may")
        if path.startswith("kernels/") and path != "kernels/__init__.py" and not ast.get_docstring(tree):
            found.append(f"{path} does not open with a docstring")
    return found


def upwards(root: Path) -> set[tuple[str, str]]:
    """Imports inside functions that go up a storey: the file, and what it imports."""
    found = set()
    for path, tree in sources(root):
        here = room(module_name(path))
        for name in late_imports(tree) if path != "refimpl/__init__.py" else ():
            there = room(name)
            if here is not None and there is not None and storey(there) > storey(here):
                found.add((path, there))
    return found


def test_the_tree_keeps_the_rules() -> None:
    assert violations(ROOT) == []


@pytest.mark.slow
def test_no_files_and_no_rooms_import_each_other_in_a_circle() -> None:
    imports = imports_of(ROOT)
    assert circles(imports) == []
    assert circles(of_rooms(imports)) == []


def test_imports_inside_functions_that_go_up_a_storey_are_few_and_known() -> None:
    assert upwards(ROOT) == UPWARDS
    assert len(UPWARDS) <= 8


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("kernels/fast/relu.py", '"""Doc."""\nimport refimpl.studies.bench.kernels', "imports refimpl.studies.bench"),
        ("kernels/fast/relu.py", '"""Doc."""\nfrom numba import cuda', "imports numba.cuda; only"),
        ("kernels/fast/relu.py", '"""Doc."""\nimport numba.cuda', "imports numba.cuda; only"),
        ("kernels/fast/relu.py", '"""Doc."""\nfrom numba.cuda import jit', "imports numba.cuda.jit; only"),
        ("kernels/fast/relu.py", "import math", "does not open with a docstring"),
        ("refimpl/network/layers.py", "from refimpl.planner import loop", "imports refimpl.planner.loop"),
        ("refimpl/backend/layers.py", "import refimpl.cli", "imports refimpl.cli"),
        ("refimpl/torch/planned.py", "from refimpl.names import presets", "its room stands alone"),
        ("refimpl/vdnn/policy.py", "from refimpl import vdnnpp", "imports refimpl.vdnnpp"),
        ("refimpl/vdnn/policy.py", "from . import listing", "has a relative import"),
        ("refimpl/errors.py", "", "is in no room"),
        ("refimpl/attic/loop.py", "", "is in no room"),
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


#: Names that say how something is, and not what it is: a reader would have to decode them.
UNCLEAR = {"told", "meant", "alike", "long", "called", "said", "dear", "says_nothing", "no_matter", "seen_as"}
BLAS = set("abcmnkxyw")  #: what mathematics calls so


def names(tree: ast.Module) -> Iterator[str]:
    """The names that a module gives: of its classes, functions and constants, and of its classes' fields."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from names(ast.Module(node.body, []))


def unclear(tree: ast.Module) -> set[str]:
    return {name for name in names(tree) if name.lower() in UNCLEAR or (len(name) == 1 and name not in BLAS)}


def test_no_name_has_to_be_decoded() -> None:
    found = {path: unclear(tree) for path, tree in sources(ROOT)}
    assert {path: names for path, names in found.items() if names} == {}
    assert unclear(ast.parse("SAYS_NOTHING = 1\nclass Map:\n    f: int\n    x: int\ndef told(): ...")) == {
        "SAYS_NOTHING", "f", "told",
    }  # fmt: skip


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


def test_every_kernel_says_what_it_does() -> None:
    for path, tree in sources(ROOT):
        for node in statements(tree) if path.startswith("kernels/") else ():
            if isinstance(node, ast.FunctionDef) and any("kernel(" in ast.unparse(d) for d in node.decorator_list):
                assert ast.get_docstring(node), f"{path}: kernel {node.name} has no docstring"


def test_little_is_loaded() -> None:
    for what, (code, without, most) in LOADED.items():
        assert 3_000 < loaded(code, without) <= most, what

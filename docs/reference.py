"""The functions and classes of every room, in their own words: a page a room."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

#: Page → its packages and modules, and what to say first.
ROOMS = {
    "network": (
        ("refimpl.network",),
        "What is trained: layers, calls, steps and routes, and the networks that have a name. See [](/networks.md).",
    ),
    "memory": (("refimpl.memory",), "Where a block of bytes goes. See [](/slots/allocator.md)."),
    "machine": (
        ("refimpl.machine", "refimpl.registry.machines"),
        "Models of GPUs, what was measured of one, and the simulator. See [](/simulate.md).",
    ),
    "planner": (
        (
            "refimpl.planner",
            "refimpl.registry.modules",
            "refimpl.registry.presets",
            "refimpl.registry.planning",
            "refimpl.registry.budgets",
            "refimpl.registry.fitting",
        ),
        "The loop, the slots' protocols, the program, its listing and its proof; presets and budgets. "
        "See [](/program.md), [](/verify.md) and [](/slots/index.md).",
    ),
    "backend": (
        ("refimpl.backend", "refimpl.backend.data"),
        "Programs really run, on the CPU or on a GPU, and what they are trained on. See [](/backends.md).",
    ),
    "papers": (
        ("refimpl.vdnn", "refimpl.vdnnpp", "refimpl.superneurons"),
        "A folder a paper, a module an algorithm. See [](/vdnn.md), [](/vdnnpp.md) and [](/superneurons.md).",
    ),
    "report": (("refimpl.report",), "Tables, pictures and traces. See [](/reports.md)."),
}


def modules_of(name: str) -> Iterator[ModuleType]:
    """The module of that name and, if it is a package, those below it."""
    module = importlib.import_module(name)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        yield from modules_of(found.name)


def public(module: ModuleType, kind: type) -> Iterator[tuple[str, Any]]:
    """The functions or classes that are written in this module and say what they do."""
    for name, value in vars(module).items():
        if isinstance(value, kind) and value.__module__ == module.__name__ and name[0] != "_" and own_words(value):
            yield name, value


def own_words(thing: Any) -> str:
    """Its docstring; none where it is inherited, or made by `dataclass`."""
    text = vars(thing).get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    made = isinstance(thing, type) and (text or "").startswith(f"{thing.__name__}(")
    return "" if made or not text else inspect.cleandoc(text)


def signature(thing: Callable[..., Any]) -> str:
    """The parameters; one a line where they are many."""
    given = inspect.signature(thing)
    if isinstance(thing, type):
        given = given.replace(return_annotation=inspect.Signature.empty)
    found = re.sub(r"<(?:class|factory|function)[^>]*?'?([\w.]*)'?(?: at 0x[0-9a-f]+)?>", r"\1", str(given))
    found = re.sub(r"(: |-> )'([^']*)'", r"\1\2", found)  # annotations are kept as text; defaults keep their quotes
    return found if len(found) < 80 else re.sub(r", (?=\*|\w+:)", ",\n    ", found).replace("(", "(\n    ", 1)


def index_page() -> str:
    """The rooms' pages."""
    return "# The rooms' functions and classes\n\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(ROOMS) + "\n```\n"


def room_page(title: str, names: tuple[str, ...], about: str) -> str:
    """Each module's own words, then its classes and functions."""
    parts = [f"# {title}\n", f"{about}\n"]
    for name in names:
        for module in modules_of(name):
            parts += [f"## {module.__name__.removeprefix('refimpl.')}\n", *text_block(inspect.getdoc(module) or "")]
            for known, value in public(module, type):
                parts += class_entry(known, value)
            for known, value in public(module, FunctionType):
                parts += entry(known, f"{known}{signature(value)}", own_words(value))
    return "\n".join(parts)


def entry(name: str, code: str, words: str) -> list[str]:
    return [f"### {name}\n", f"```python\n{code}\n```\n", *text_block(words)]


def class_entry(name: str, value: type) -> list[str]:
    """A class: how it is made, if not by hand of somebody else, what it is, and its public methods and properties."""
    made = (
        "__init__" in vars(value) and not issubclass(value, BaseException) and not getattr(value, "_is_protocol", False)
    )
    lines = entry(name, f"class {name}{signature(value) if made else ''}", own_words(value))
    members = []
    for known, member in vars(value).items():
        found = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        words = own_words(found.fget if isinstance(found, property) else found) if known[0] != "_" else ""
        if not words:
            continue
        if isinstance(found, property):
            members.append(f"`{known}`\n: {in_a_line(words)}\n")
        elif isinstance(found, FunctionType):
            given = re.sub(r"\s+", " ", signature(found)).replace("( ", "(")
            given = re.sub(r"\((?:self|cls)(?:, )?", "(", given)
            members.append(f"`{known}{given}`\n: {in_a_line(words)}\n")
    return [*lines, *members]


def in_a_line(words: str) -> str:
    """The first paragraph, as Markdown takes it."""
    text = " ".join(words.split("\n\n")[0].split())
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([*_<>\[\]$])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def text_block(words: str) -> list[str]:
    """Words as they stand: a paragraph, or a block where they have lists, tables or code in them."""
    if not words:
        return []
    if re.search(r"^ {2,}|^[|*-] |^\d\. ", words, re.MULTILINE):
        return [f"```text\n{words}\n```\n"]
    return [in_a_line(paragraph) + "\n" for paragraph in words.split("\n\n")]

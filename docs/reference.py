"""The API reference: a page a room, written by Sphinx's autodoc and napoleon from the docstrings.

The project's docstrings are plain text with a little Markdown: `code` between single backticks, tables with `|`, and
blocks indented by four spaces.  autodoc reads reStructuredText, so `to_rst` translates each docstring first.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from textwrap import indent
from types import ModuleType
from typing import Any

#: Page → its packages and files, and where to read on.
ROOMS = {
    "network": (
        ["refimpl.network", "refimpl.zoo"],
        "Layers, calls, steps and routes; networks by their builders. See [](/networks.md).",
    ),
    "importing": (["refimpl.importing"], "ONNX files and PyTorch modules. See [](/your-own-network.md)."),
    "slots": (["refimpl.slots"], "The questions of each slot, a setup, the baseline. See [](/slots/index.md)."),
    "executor": (["refimpl.executor", "refimpl.streams"], "Trains layer by layer. See [](/executor.md)."),
    "memory": (["refimpl.memory"], "Where a block of bytes goes. See [](/slots/allocator.md)."),
    "machine": (["refimpl.machine"], "Models of GPUs, profiles and the simulator. See [](/simulate.md)."),
    "planner": (
        ["refimpl.planner"],
        "The loop, the program and its proof. See [](/program.md) and [](/verify.md).",
    ),
    "papers": (
        ["refimpl.vdnn", "refimpl.vdnnpp", "refimpl.superneurons", "refimpl.accudnn"],
        "One folder a paper, one file an algorithm. "
        "See [](/vdnn.md), [](/vdnnpp.md), [](/superneurons.md) and [](/accudnn.md).",
    ),
    "combined": (["refimpl.combined"], "The papers together: fates of maps, and a search. See [](/combined.md)."),
    "backend": (
        ["refimpl.backend", "refimpl.parallel"],
        "Programs that run, on the CPU or a GPU, and their data. See [](/backends.md).",
    ),
    "torch": (["refimpl.torch"], "A plan carried out in PyTorch's own training. See [](/in_pytorch.md)."),
    "report": (["refimpl.report", "refimpl.text"], "Tables, pictures and traces. See [](/reports.md)."),
    "names": (
        ["refimpl.names", "refimpl.points"],
        "Names and the objects they mean, and what fits a budget. See [](/slots/index.md).",
    ),
    "optimum": (
        ["refimpl.studies.optimum", "refimpl.studies.fragmentation"],
        "A lower bound, exhaustive search and Rotor; the pool's holes. See [](/optimum.md).",
    ),
    "neighbours": (["refimpl.studies.neighbours"], "Policies of others in the papers' slots. See [](/neighbours.md)."),
    "transformers": (
        ["refimpl.studies.transformers"],
        "The policies on transformers, beside the checkpoints that users know. See [](/transformers.md).",
    ),
    "tune": (["refimpl.studies.tune"], "AccUDNN's tuner, applied. See [](/tune.md)."),
    "study": (
        ["refimpl.studies.grid"],
        "Many points of networks, setups and budgets: rows, tables, pictures. See [](/study.md).",
    ),
    "challenge": (
        ["refimpl.studies.challenge"],
        "A fixed set of points on which policies are compared. See [](/challenge.md).",
    ),
    "bench": (["refimpl.studies.bench"], "Kernels and the planner, timed. See [](/speed.md)."),
    "reproduce": (
        ["refimpl.studies.reproduce", "refimpl.studies.drawing"],
        "Each paper's published figures beside ours. "
        "See [](/vdnn-evidence.md), [](/vdnnpp-evidence.md), [](/superneurons-evidence.md) and "
        "[](/accudnn-evidence.md).",
    ),
    "kernels": (
        ["kernels"],
        "Every layer as Numba kernels, plain and fast. See [](/_generated/kernels.md) and [](/without-a-gpu.md).",
    ),
}

OPTIONS = {"members": True, "member-order": "bysource", "ignore-module-all": True}  #: autodoc's


def index_page() -> str:
    """The list of the rooms' pages, after the names that `refimpl` itself offers."""
    pages = "\n".join(ROOMS)
    return f"# API reference\n\n{_entry('refimpl')}\n```{{toctree}}\n:maxdepth: 1\n\n{pages}\n```\n"


def room_page(title: str) -> str:
    """One room: for each file its docstring, its classes and its functions."""
    names, about = ROOMS[title]
    parts = [f"# {title}\n", f"{about}\n"]
    for module in (found for name in names for found in modules_of(name)):
        if module.__name__ != names[0] or len(names) > 1:
            parts.append(f"## {module.__name__}\n")
        parts.append(_entry(module.__name__))
        if public := getattr(module, "__all__", ()):
            parts.append(f"To be imported from here: {', '.join(_link(module, name) for name in public)}.\n")
    return "\n".join(parts)


def modules_of(name: str) -> Iterator[ModuleType]:
    """The module and, if it is a package, those below it."""
    module = importlib.import_module(name)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        yield from modules_of(found.name)


def _entry(module: str) -> str:
    return f"```{{eval-rst}}\n.. automodule:: {module}\n```\n"


def _link(package: ModuleType, name: str) -> str:
    """A link to where the object is documented."""
    home = getattr(getattr(package, name, None), "__module__", None)
    return f"{{py:obj}}`{name} <{home}.{name}>`" if home else f"`{name}`"


# -- docstrings --------------------------------------------------------------------------------------------------------

GENERATED = re.compile(r"Alias for field number \d+|\w+\(.*\)")  #: docstrings that NamedTuple and dataclass make
EMPHASIS = re.compile(r"((?<![\w*])\*{1,2}(?=\S)[^*]*(?<=\S)\*{1,2}(?![\w*]))")
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):\n|[*-] |\d\. ")  #: napoleon's, or a list


def skip_imported(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """For Sphinx's event `autodoc-skip-member`: what a file imports is left out before autodoc reads its source."""
    from sphinx.pycode import ModuleAnalyzer

    if what != "module" or not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return None
    module = app.env.temp_data["autodoc:module"]
    imported = getattr(thing, "__module__", None) not in (None, module)
    return True if imported and ("", name) not in ModuleAnalyzer.for_module(module).attr_docs else None


def process_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """For Sphinx's event `autodoc-process-docstring`, before napoleon."""
    text = "\n".join(lines).strip()
    lines[:] = [] if GENERATED.fullmatch(text) else to_rst(text).split("\n")
    if what in ("attribute", "data", "property"):
        lines[:0] = ["\\ "]  # so that napoleon does not take words before a colon for a type


def drop_long_values(app: Any, domain: str, kind: str, content: Any) -> None:
    """For Sphinx's event `object-description-transform`: a table of the presets is no part of a signature."""
    from sphinx.addnodes import desc_annotation  # the tests of this file need no Sphinx

    for node in [*content.parent.findall(desc_annotation)]:
        if len(node.astext()) > 100:
            node.parent.remove(node)


def to_rst(text: str) -> str:
    """A docstring as reStructuredText: its tables and blocks first, then what is within a line."""
    return "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", text)))


def _paragraph(text: str) -> str:
    if text.startswith("| "):
        return _table(text)
    if text.startswith("    "):
        return f"::\n\n{text}"
    if "\n  " in text and not SECTION.match(text):
        return f"::\n\n{indent(text, '    ')}"
    return _inline(text)


def _table(text: str) -> str:
    """A Markdown table as a `list-table`."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.split("\n")]
    rows.pop(1)  # the line of hyphens
    cells = [f"{'     -' if i else '   * -'} {_inline(cell)}".rstrip() for row in rows for i, cell in enumerate(row)]
    return ".. list-table::\n   :header-rows: 1\n\n" + "\n".join(cells)


def _inline(text: str) -> str:
    """Literals get two backticks; outside them and outside *emphasis* special characters are escaped."""
    pieces = text.split("`")
    pieces[::2] = ["".join(map(_escaped, EMPHASIS.split(piece))) for piece in pieces[::2]]
    return "``".join(pieces)


def _escaped(text: str) -> str:
    return text if EMPHASIS.fullmatch(text) else re.sub(r"(?<!^)[*|]|_(?=\W|$)", r"\\\g<0>", text, flags=re.MULTILINE)

"""The pages that are made from the code: the kernels' table and the functions' reference."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import kernels
from refimpl.registry import kernels as listing
from refimpl.report.markdown import markdown_table

#: What is no family: shown behind them, or not at all.
MACHINERY = ("reference", "launch", "arguments", "cpu", "gpu", "machine_code")
INTERNAL = ("shim", "division")

KERNELS = """\
# The kernels

Every kernel there is, as `refimpl list kernels --markdown` prints it: for each file below `kernels/` what it computes,
then its kernels, each with the block of threads that it is always launched with.

"""

MEASUREMENTS = """\
# Measurements

Everything that `refimpl bench --write` has measured and kept, a page for each machine and day.

"""

API = """\
# The kernels' functions

Inputs come first, outputs after them, options as keywords. Outputs are given, never allocated; NumPy arrays run on
the CPU, device arrays on the GPU. What cannot be computed is refused with one `KernelError`, a `ValueError`, before
anything runs.

"""


def measurements_page(folder: Path) -> str:
    """A page that lists what `refimpl bench --write` has kept, the latest first."""
    names = sorted((path.stem for path in folder.glob("*.md")), key=lambda name: name[-10:], reverse=True)
    listed = "\n".join(f"/measurements/{name}" for name in names)
    return f"{MEASUREMENTS}```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n" if names else f"{MEASUREMENTS}None yet.\n"


def kernels_page() -> str:
    return KERNELS + markdown_table(*listing.table(list(listing.rows()))) + "\n"


def modules() -> Iterator[ModuleType]:
    """The kernels' families, in alphabetical order, then what carries them."""
    names = [found.name.removeprefix("kernels.") for found in pkgutil.iter_modules(kernels.__path__, "kernels.")]
    for name in (*(name for name in names if name not in (*MACHINERY, *INTERNAL)), *MACHINERY):
        yield importlib.import_module(f"kernels.{name}")


def functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions that are written in this module and say what they do."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__ and value.__doc__ and name[0] != "_":
            yield name, value


def signature(function: Callable[..., Any]) -> str:
    """The parameters; one a line where they are many."""
    found = re.sub(r"<class '([\w.]+)'>", r"\1", str(inspect.signature(function)))
    found = re.sub(r"(: |-> )'([^']*)'", r"\1\2", found)  # annotations are kept as text; defaults keep their quotes
    return found if len(found) < 80 else re.sub(r", (?=\*|\w+:)", ",\n    ", found).replace("(", "(\n    ", 1)


def api_page() -> str:
    """Each module's own words, then its functions: signature and docstring."""
    parts = [API]
    for module in modules():
        short = module.__name__.removeprefix("kernels.")
        parts += [f"## {short}\n", f"```text\n{inspect.getdoc(module) or ''}\n```\n"]
        for name, function in functions(module):
            parts += [f"### {short}.{name}\n", f"```python\n{short}.{name}{signature(function)}\n```\n"]
            parts += [f"{inspect.getdoc(function)}\n"]
    return "\n".join(parts)

"""Python code of a user's own: how it gets in, and which of its lines an error comes from.

A file of networks or kernels is executed, a module of slots is imported.  Their folders stay on Python's path, at its
end: code of one's own may import its neighbours at any time, and worker processes find what this one has found.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from refimpl.network.layer import NetworkError
from refimpl.text import RefimplError, one_line

PROJECT = Path(__file__).resolve().parents[2]
OURS = (PROJECT / "refimpl", PROJECT / "kernels")  #: folders whose lines are not the user's
INSTALLED = ("site-packages", "dist-packages")

#: What this command has executed or imported → the folder whose lines are the user's, or the file, if it is installed.
known: dict[str, Path] = {}


class OwnCodeError(RefimplError, ValueError):
    """An error of a user's own code in a worker process, as one line: the error itself may know no way back."""


def executed(path: str, changed: int) -> Any:
    """A Python file as a module, executed once for each time of its last change."""
    known[path] = Path(path).resolve().parent
    _reach(os.path.dirname(os.path.abspath(path)))
    return _executed(path, changed)


@lru_cache(maxsize=1)
def _executed(path: str, changed: int) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path, path)  # a name that no import has
    if specification is None or specification.loader is None:
        raise NetworkError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[path] = module  # where a data class looks for its module
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise NetworkError(f"{path} cannot be executed: {error_line(error)}") from None
    return module


def imported(name: str) -> ModuleType:
    """The Python module of that name, in the working directory or installed; whatever importing it raises."""
    here = os.path.realpath(os.getcwd())
    _reach(here)
    found = importlib.util.find_spec(name)
    if found and found.has_location and found.origin:
        file = Path(found.origin).resolve()
        folder = file.name == "__init__.py" or (file.is_relative_to(here) and not set(INSTALLED) & set(file.parts))
        known[name] = file.parent if folder else file
    return importlib.import_module(name)


def _reach(folder: str) -> None:
    """Let imports find what is in the folder, after everything else."""
    if folder not in sys.path:
        sys.path.append(folder)


def content(text: str) -> list[str]:
    """A hash of each file that a text names, as `my_nets.py:unet`, `offload=my_modules:BigMaps` and `box.toml` do."""
    found = []
    for word in re.split(r"[\s,=]+", text):
        name = word if os.path.isfile(word) else word.rpartition(":")[0]
        module = name.replace(".", "/")
        for file in (name, f"{module}.py", f"{module}/__init__.py") if name else ():
            if os.path.isfile(file):
                found.append(hashlib.sha256(Path(file).read_bytes()).hexdigest())
                break
    return found


def is_own(file: str) -> bool:
    """Whether a line of this file is the user's own, and neither ours nor of a package that is installed."""
    path = Path(file).resolve()
    if file.startswith("<") or any(path.is_relative_to(folder) for folder in OURS):
        return False
    inside = [path.relative_to(place) for place in known.values() if path.is_relative_to(place)]
    return any(not set(INSTALLED) & set(below.parts) for below in inside)


def line_of(error: BaseException) -> str | None:
    """The innermost of the user's own lines that an error went through, as in `my.py, line 3, in bind`, or None."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    if not frames:
        return None
    path = os.path.relpath(frames[-1].filename)
    path = frames[-1].filename if path.startswith("..") else path
    return f"{one_line(path)}, line {frames[-1].lineno}" + f", in {frames[-1].name}" * (frames[-1].name[0] != "<")


def raised(error: BaseException) -> bool:
    """Whether the user's own code raised an error, or called what did; what we refuse says so itself."""
    refused = type(error).__module__.startswith(("refimpl.", "kernels."))
    return not refused and line_of(error) is not None


def error_line(error: BaseException) -> str:
    """An error of the user's own code, with its line there."""
    text = one_line(" ".join(str(error).split()))
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    where = line_of(error)
    return f"{where}: {what}" if where else what


def suspected_error_line(error: BaseException) -> str:
    """One line for an error in a line of ours, where code of the user's own may have given us what we fail at."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.relpath(last.filename, PROJECT)}, line {last.lineno}"
    names = " or ".join(map(one_line, known))
    return f"{error_line(error)} ({place}): probably an answer of {names}; python -X dev -m refimpl shows the traceback"

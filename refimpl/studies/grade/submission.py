"""The confined process: it executes a student's file, plans every case with it, and hands the programs over.

Everything that is needed is imported before the limits hold: afterwards Python's own library may be out of reach.
Then the file is executed.  The first case is planned again at the end: a module that keeps something from one plan to
the next gives another program then.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from refimpl.importing import own_code
from refimpl.names.machines import named
from refimpl.names.networks import build
from refimpl.names.presets import PRESETS
from refimpl.planner import DoesNotFit, Setup, SetupError, plan
from refimpl.studies.grade.confined import CannotConfine, confine
from refimpl.studies.grade.lab_tasks import MACHINE, PLAIN, TASKS, LabTask
from refimpl.studies.program_file import document
from refimpl.text import one_line


def setup_of(module: ModuleType, task: LabTask) -> Setup:
    """The lab's setup with the submission's modules in its slots.

    Raises:
        SetupError: a name is missing, or is no module of its slot.
    """
    whole = getattr(module, "setup", None)
    if whole is not None and "setup" in task.names:
        if not isinstance(whole, Setup):
            raise SetupError(f"setup is {whole!r}, not a setup; write setup = refimpl.presets.vdnn_all()")
        return whole
    found = {name: getattr(module, name) for name in (*task.required, *task.names) if hasattr(module, name)}
    missing = [name for name in task.required if name not in found]
    if missing:
        raise SetupError(f"the file has no {' and no '.join(missing)}; write, as in the skeleton, {missing[0]} = …")
    return task.base.replace(name="submission", **found)


def planned(module: ModuleType, task: LabTask, case: Mapping[str, Any]) -> dict[str, Any]:
    """A case's program as plain values, or the reason why it does not fit."""
    network = build(case["network"], case["batch"])
    try:
        program = plan(network, setup_of(module, task), named(MACHINE).with_catalogue("own"), case["budget"])
    except DoesNotFit as error:
        return {"why": one_line(str(error))}
    return document(program)


def import_all() -> None:
    """Import whatever a plan needs, by making some, and what a submission may import."""
    for name in PLAIN:
        import_module(name)
    own_code.executed(str(Path(__file__).with_name("__init__.py")), 0)
    own_code.known.clear()
    for preset in ("superneurons", "vdnn-all", "vdnnpp-all", "accudnn"):
        document(plan(build("lenet", 2), PRESETS[preset].setup, named(MACHINE).with_catalogue("own"), 1 << 30))


def main(arguments: list[str]) -> int:
    """`python -m refimpl.studies.grade.submission FILE PIPE SECONDS BYTES`, with the request on standard input."""
    path, pipe, processor, memory = arguments[0], *map(int, arguments[1:])
    write, dumps = os.write, json.dumps

    def tell(**what: Any) -> None:
        line = dumps(what).encode() + b"\n"
        while line:
            line = line[write(pipe, line) :]

    request = json.loads(sys.stdin.read())
    task, cases = TASKS[request["task"]], request["cases"]
    import_all()
    sys.path[:] = [place for place in sys.path if place not in ("", "/")]
    try:
        confine(processor, memory, str(Path(path).parent), lambda what: tell(forbidden=what))
    except CannotConfine as error:
        tell(cannot=str(error))
        return 0
    try:
        module = own_code.executed(path, 0)
        for number in [*request["order"], request["order"][0]]:
            tell(case=number, program=planned(module, task, cases[number]))
        tell(done=True)
    except BaseException as error:  # whatever the submission raises: it is told, and graded
        folder = f"{Path(path).parent}/"
        tell(error=line_of(error).replace(folder, "").replace(folder[1:], ""))
    return 0


def line_of(error: BaseException) -> str:
    """An error of a submission in one line."""
    text = str(error) if type(error).__module__.startswith("refimpl.") else own_code.error_line(error)
    return one_line(" ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

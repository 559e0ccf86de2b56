"""What a lecturer may ask about: whose text a submission's text is like, and who decides as it does.

Neither is a gate: an honest A1 is nearly the project's own, and decides as layer-wise does.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import refimpl
from refimpl.names.modules import MODULES
from refimpl.text import RefimplError
from tutorials.labs.lab import LABS, Case, Lab

RUN = 12  #: kinds of nodes of a syntax tree that are compared together
SHARE = 0.6  #: of a text's runs, from which on it is like another
PAPERS = ("vdnn", "vdnnpp", "superneurons", "accudnn", "combined", "slots")
SOLUTIONS = LABS.parent / "solutions"  #: students do not have it


# -- texts -------------------------------------------------------------------------------------------------------------


def most_alike(mine: set[int], others: Mapping[str, set[int]]) -> str:
    """The other text that has most of a text's runs, if that is enough of them."""
    share, name = max(((len(mine & one) / len(mine), name) for name, one in others.items()), default=(0.0, ""))
    return f"{name} {share:.0%}" if share >= SHARE else ""


def texts_of_the_project(lab: str) -> dict[str, set[int]]:
    ours = Path(refimpl.__file__).parent
    paths = [path for paper in PAPERS for path in (ours / paper).glob("*.py")] + [*SOLUTIONS.glob(f"{lab}_*.py")]
    return {f"{path.parent.name}/{path.name}": shapes(path) for path in paths}


def shapes(path: Path) -> set[int]:
    """Runs of kinds of nodes in the functions of a file, without names and values; empty where it is not Python."""
    try:
        tree = ast.parse(path.read_bytes()) if path.is_file() else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[int] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        kinds = [
            type(one).__name__ for part in function.body for one in ast.walk(part) if not isinstance(one, ast.Load)
        ]
        found |= {hash((*kinds[at : at + RUN],)) for at in range(len(kinds) - RUN + 1)}
    return found


# -- decisions ---------------------------------------------------------------------------------------------------------


def decides_as(lab: Lab, seed: str, decided: Sequence[str]) -> str:
    """The modules that have a submission's program in each case of a seed.

    The smallest case is compared first, and a module is planned only as far as it has the same programs.
    """
    if lab.anything or not any(decided):
        return ""
    cases = sorted(zip(lab.cases(seed), decided, strict=False), key=lambda one: one[0].built.depth)
    return " and ".join(name for name in known(lab) if all(its(lab, name, case) == mine for case, mine in cases))


def digest(lab: Lab, program: Any) -> str:
    """A program's decisions; empty: there is no program."""
    return sha256(repr(lab.decided(program)).encode()).hexdigest()[:16] if program is not None else ""


@cache
def known(lab: Lab) -> dict[str, dict[str, Any]]:
    """What the project has for a lab's slots, by name, and the lab's solution if it is here."""
    found: dict[str, dict[str, Any]] = {}
    for names in product(*(MODULES.get(slot, ()) for slot in lab.slots)):
        modules = {slot: MODULES[slot][name] for slot, name in zip(lab.slots, names, strict=True)}
        with suppress(RefimplError):  # it does not go with the other slots
            for around in lab.around.values():
                around.replace(**modules)
            found[", ".join(names)] = modules
    for path in SOLUTIONS.glob(f"{lab.name}_*.py"):
        found["the solution"] = lab.modules(path)
    return found


@cache
def its(lab: Lab, name: str, case: Case) -> str:
    """What a known module decides in a case: planned once for a class."""
    try:
        return digest(lab, lab.reached(case, known(lab)[name])[1])
    except Exception:  # it fits no budget, or is of no use here
        return ""

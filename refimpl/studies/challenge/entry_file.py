"""A program that is entered as a file: written where it was found, read, proved, and timed on its point's machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from refimpl.files import replace_text
from refimpl.names.machines import named
from refimpl.planner import Program
from refimpl.planner.verify import Unsafe
from refimpl.studies.challenge.entry import EntryError, timed
from refimpl.studies.challenge.point_set import BestKnown, ChallengePoint
from refimpl.studies.grid.rows import GridPoint, fingerprint, network_of
from refimpl.studies.program_file import ProgramFileError, document, read
from refimpl.text import contents, one_line
from refimpl.vdnnpp import presets as vdnnpp

FORMAT = "refimpl challenge entry 1"


def prove(path: str | Path, cases: Sequence[ChallengePoint]) -> tuple[ChallengePoint, BestKnown]:
    """The point that a file is about, and what it is worth there; raises `EntryError`.

    Args:
        path: of a file as `refimpl study challenge --save` writes it.
        cases: the printed points.
    """
    try:
        found = json.loads(contents(path))
    except OSError as error:
        raise EntryError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise EntryError(f"{path} is not JSON; refimpl study challenge SETUP --save FOLDER writes entries") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise EntryError(f"{path} is not an entry; refimpl study challenge SETUP --save FOLDER writes them")
    case = next((case for case in cases if [*case[:4]] == found.get("point")), None)
    if case is None:
        raise EntryError(f"{path} is of a point that this set does not print")
    network, machine = network_of(case.network, case.batch), named(case.machine)
    try:
        program = read(found.get("program"), network, machine, vdnnpp.VDNNPP_ALL.pinned)
        if program.budget != case.budget:
            raise EntryError(f"{path} is a program for {program.budget} bytes; the point has {case.budget}")
        if program.network.whole:
            raise EntryError(f"{path} cuts steps at their seams; those of the challenge are whole")
        program = timed(program)
    except ProgramFileError as error:
        raise EntryError(f"{path}: {error}") from None
    except Unsafe as error:
        raise EntryError(f"{path}: the program is not safe: {error}") from None
    return case, BestKnown(program.planned_seconds, one_line(str(found.get("by", ""))), fingerprint(program))


def save(folder: Path, cases: dict[GridPoint, ChallengePoint], point: GridPoint, program: Program) -> None:
    """Write the program of a point into the folder, if it is faster than the best that is known of it."""
    case = cases[point]
    if case.best is None or not beats(program.planned_seconds, case.best.seconds):
        return
    name = f"{point.network.replace(':', '-')}-{point.batch}-{point.machine}-{point.budget}.json"
    try:
        made = {"format": FORMAT, "by": point.setup, "point": case[:4], "program": document(program)}
    except ProgramFileError:  # its setup can be entered instead
        return
    replace_text(folder / name, json.dumps(made) + "\n")


def beats(seconds: float, best: float) -> bool:
    """Whether a time is better by more than rounding."""
    return seconds < best * (1 - 1e-9)

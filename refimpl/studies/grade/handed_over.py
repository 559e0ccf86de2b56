"""A program as plain values: what a submission's process hands over to the grader.

Nothing of the submission's is executed or unpickled to read it: `refimpl.studies.program_file` checks every value.
Calls are places in the grader's own network, an algorithm is looked up in the grader's own machine, and a map's bytes
in the store are vDNN++'s count.  What is wrong in spite of that the grader's proof refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from refimpl.machine import Machine
from refimpl.network import Network
from refimpl.planner import Program
from refimpl.studies.program_file import ProgramFileError, outline, read
from refimpl.text import RefimplError
from refimpl.vdnnpp import presets as vdnnpp


class NotAProgram(RefimplError, ValueError):
    """What was handed over is no program of this network: one line."""

    exit_status = None


def program_of(values: Mapping[str, Any], network: Network, machine: Machine, budget: int) -> Program:
    """The program that was handed over, for the grader's own network, machine and budget; it is not proved yet.

    Raises:
        NotAProgram: says what is wrong.
    """
    if values.get("outline") != outline(network):
        raise NotAProgram("it plans another network than it was given: the submission has changed it")
    try:
        return replace(read(values, network, machine, vdnnpp.VDNNPP_ALL.pinned), budget=budget)
    except ProgramFileError as error:
        raise NotAProgram(f"it is no program of {network.name}: {error}") from None

"""A program's launches with everything bound: arrays, algorithms, workspaces, settings.

What never changes between iterations is looked up once.  What does change is a *setting*: the iteration (dropout), the
rate and its like (the optimiser).  A launch that takes one is bound again when it changes, and no other is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernels.rungs import RUNGS, function_of
from kernels.targets.launch import KernelLaunch as BoundLaunch
from kernels.targets.launch import bind
from refimpl.backend.run_errors import RunError
from refimpl.network import Setting, Tensor
from refimpl.planner import Launch, Program

#: (address in the device arena, shape, type) → the array there
View = Callable[[int, tuple[int, ...], Any], Any]
Settings = Mapping[str, float]

FLOATS = np.dtype(np.float32)
RUNNABLE = ("own", "plain")  #: catalogues of this project's kernels


def refuse_foreign(program: Program) -> None:
    """A network without kernels, or a program planned with a published library's algorithms, cannot be run."""
    if program.network.cannot_run:
        raise RunError(program.network.cannot_run)
    if program.machine.catalogue not in RUNNABLE:
        raise RunError(
            f"this program was planned for {program.machine.name} with the catalogue {program.machine.catalogue}, "
            "whose algorithms cannot be run; plan it again with the catalogue own"
        )


def rung_of(program: Program, asked: str | None = None) -> str:
    """The rung of `kernels` that runs a program: the one that is asked for (None: the one that it is planned for)."""
    planned = "plain" if program.machine.catalogue == "plain" else "fast"
    if asked is not None and asked not in RUNGS:
        raise RunError(f"there are no {asked} kernels; give {' or '.join(RUNGS)}")
    if (asked, planned) == ("fast", "plain"):
        raise RunError("this program was planned for plain kernels; for fast kernels plan it with the catalogue own")
    return asked or planned


def argument(value: Any, address: Mapping[Tensor, int], view: View, settings: Settings) -> Any:
    """One argument of a call as the kernel's function takes it."""
    if isinstance(value, Tensor):
        return view(address[value], value.shape, np.dtype(value.dtype))
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return tuple(argument(one, address, view, settings) for one in value)
    return settings[value.name] if isinstance(value, Setting) else value


def bind_launch(instruction: Launch, view: View, settings: Settings, rung: str) -> list[BoundLaunch]:
    """The launches that one instruction makes; an algorithm may take several."""
    call, choice = instruction.call, instruction.choice
    address = dict(zip(call.operands, instruction.addresses, strict=True))
    given = {name: argument(value, address, view, settings) for name, value in call.arguments.items()}
    if choice is not None:
        given["algorithm"] = choice.algorithm
        if instruction.workspace is not None:
            start, nbytes = instruction.workspace
            given["workspace"] = view(start, (nbytes // FLOATS.itemsize,), FLOATS)
    return bind(function_of(call.function, rung), **given)


class BoundProgram:
    """The launches of a program, by position; `set` binds again those whose settings have changed."""

    def __init__(self, program: Program, view: View, settings: Settings, rung: str) -> None:
        refuse_foreign(program)
        self._view, self._rung = view, rung
        self._settings = dict(settings)
        self.launches: dict[int, list[BoundLaunch]] = {}
        self._varying: list[tuple[int, Launch, set[str]]] = []  #: position, instruction, names of the settings it takes
        for position, instruction in enumerate(program.instructions):
            if isinstance(instruction, Launch) and not instruction.call.collective:  # a communicator makes those
                self.launches[position] = bind_launch(instruction, view, settings, rung)
                taken = {value.name for value in instruction.call.arguments.values() if isinstance(value, Setting)}
                if taken:
                    self._varying.append((position, instruction, taken))

    def set(self, settings: Settings) -> list[int]:
        """The positions that had to be bound again."""
        changed = {name for name, value in settings.items() if value != self._settings[name]}
        if not changed:
            return []
        affected = [(position, instruction) for position, instruction, taken in self._varying if taken & changed]
        again = [(at, bind_launch(instruction, self._view, settings, self._rung)) for at, instruction in affected]
        self.launches |= dict(again)  # only now: a setting that a kernel refuses changes nothing
        self._settings = dict(settings)
        return [position for position, _ in affected]

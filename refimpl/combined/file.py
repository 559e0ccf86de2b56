"""Fates in a file: one map a line, and the slots that differ from the baseline's: enough to plan the same again.

    # What follows a # is a comment.
    liveness=layer-wise
    prefetch=vdnn-window

    input  offload  # 147 MiB: an input of conv1
    conv1  keep     # 193.6 MiB

A map without a line is kept.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refimpl.combined.carried_out import Dropped, InTime, Offloaded
from refimpl.combined.fates import WORDS, Fates, Word
from refimpl.network import Tensor
from refimpl.planner import Context, CopyOut, Launch, Program, Setup, SetupError
from refimpl.slots.baseline import LayerWise, NoPrefetch
from refimpl.slots.setup import FIELDS
from refimpl.text import closest, contents, size

BASELINE = Setup("baseline")
FILLED = ("recompute", "offload", "prefetch")  #: the slots that fates fill


@dataclass(frozen=True)
class Saved:
    """A file's content: the fates, and the slots that differ from the baseline's, as `--set` takes them."""

    fates: Fates
    slots: Mapping[str, str]


def setup_with(fates: Fates, base: Setup = BASELINE, **modules: Any) -> Setup:
    """A setup that gives every map its fate.

    Args:
        fates: of the maps.
        base: what is in the other slots; where it does not prefetch, maps are fetched just in time.
        modules: other modules, by slot; `offload` may be an `Offloaded` that says when maps leave.
    """
    offload = modules.pop("offload", Offloaded())
    filled: dict[str, Any] = {"recompute": Dropped(fates), "offload": dataclasses.replace(offload, fates=fates)}
    if isinstance(base.prefetch, NoPrefetch):
        filled["prefetch"] = InTime()
    if "release" not in base.liveness.offers:
        filled["liveness"] = LayerWise()
    return base.replace(**filled | modules)


# -- writing -----------------------------------------------------------------------------------------------------------


def saved(program: Program) -> Saved:
    """The fates of a program's maps, whatever policy chose them, and the other slots of its setup."""
    setup = program.setup
    slots = {name: setup.shown(name) for name in FIELDS if getattr(setup, name) != getattr(BASELINE, name)}
    for name in FILLED[:2]:
        slots.pop(name, None)
    slots["prefetch"] = setup.shown("prefetch")
    if leaves_late(program):
        slots["offload"] = "fates:late=yes"
    return Saved(Fates.of(words(program)), slots)


def words(program: Program) -> dict[str, Word]:
    """Map → its fate, in forward order; a dropped map that is rebuilt more than once is not kept in between."""
    setup = program.setup
    if isinstance(setup.recompute, Dropped):
        return {tensor.name: setup.recompute.fates[tensor.name] for tensor in program.fates}
    runs = Counter(launch.call for launch in program.instructions if isinstance(launch, Launch) and launch.rebuild)
    made: Counter[Tensor] = Counter()
    for call, times in runs.items():
        for tensor in call.writes:
            made[tensor] = max(made[tensor], times)
    return {
        tensor.name: "again" if fate.name == "drop" and made[tensor] > 1 else fate.name
        for tensor, fate in program.fates.items()
    }


def leaves_late(program: Program) -> bool:
    """Whether some map leaves later than it could."""
    if isinstance(program.setup.offload, Offloaded):
        return program.setup.offload.late
    context = Context(program.network, program.machine)
    backward = program.network.depth + 1
    leaving = (it for it in program.instructions if isinstance(it, CopyOut) and it.why == "offload")
    return any(it.step > context.last_forward_write(it.tensor, backward) for it in leaving)


def text(program: Program) -> str:
    """A program's fates as the text of a file, with the bytes of every map and the reason of its fate."""
    network, found = program.network, saved(program)
    given = words(program)
    width = max(map(len, given), default=0)
    lines = [
        f"# What becomes of each map of {network.name}, batch {network.batch}, by {program.setup.name},",
        f"# planned for {program.machine.name} within {size(program.budget)}.  One map a line: "
        f"{', '.join(WORDS[:-1])} or {WORDS[-1]}.",
        *(f"{slot.replace('_', '-')}={module}" for slot, module in found.slots.items()),
        "",
    ]
    for tensor, fate in program.fates.items():
        reason = f": {fate.reason}" if fate.name != "keep" else ""
        lines.append(f"{tensor.name:{width}}  {given[tensor.name]:7}  # {size(tensor.nbytes)}{reason}")
    return "\n".join(lines) + "\n"


# -- reading -----------------------------------------------------------------------------------------------------------


def load(path: str | Path) -> Saved:
    """The fates in a file; raises `SetupError`, one line that says what is wrong."""
    try:
        given = contents(path)
    except OSError as error:
        raise SetupError(f"fates: {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SetupError(f"fates: {path} is no text; refimpl plan … --save-fates FILE writes one") from None
    try:
        return read(given)
    except SetupError as error:
        raise SetupError(f"fates: {path}, {error}") from None


def read(given: str) -> Saved:
    """The text of a file as fates; raises `SetupError`."""
    slots: dict[str, str] = {}
    fates: dict[str, Word] = {}
    for number, line in enumerate(given.splitlines(), 1):
        said = f" {line}".partition(" #")[0].split()
        if not said:
            continue
        slot, equals, module = said[0].partition("=")
        if len(said) == 1 and equals:
            if slot in slots:
                raise SetupError(f"line {number}: {slot} is set twice")
            slots[slot.replace("-", "_")] = module
            continue
        name, word = " ".join(said[:-1]), said[-1]
        if word not in WORDS or not name:
            near = closest(word, WORDS) if name else None
            raise SetupError(
                f"line {number}: {' '.join(said)!r} is no map and its fate ({', '.join(WORDS[:-1])} or {WORDS[-1]})"
                + (f"; did you mean {near}?" if near else "")
            )
        if name in fates:
            raise SetupError(f"line {number}: {name} has a fate already, {fates[name]}")
        fates[name] = word
    return Saved(Fates.of(fates), slots)

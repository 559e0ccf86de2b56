"""The program for people: layer by layer, what is allocated, launched, copied and freed, and why.

The full listing of a deep network would be a book.  Where the same steps repeat (the same calls, algorithms,
allocations, copies and reasons), they are shown once, and one line says how often they repeat and for which layers.
`listing(program, steps=...)` shows any of them in full.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from refimpl.machine import HOST
from refimpl.network import NetworkError, Tensor
from refimpl.planner.heading import heading
from refimpl.planner.instructions import (
    DEVICE,
    Allocate,
    Copy,
    Free,
    HostCopy,
    Instruction,
    Launch,
    Record,
    Region,
    ToStore,
    Transfer,
    Wait,
    Work,
)
from refimpl.planner.program import Program
from refimpl.slots.context import Fate
from refimpl.text import counted, duration, size

WIDTH = 100  #: columns
MOST_IN_FULL = 120  #: steps: a program with more is abridged
LONGEST_PERIOD = 64  #: steps that a repeated pattern may have
NAMES = 60  #: maps named in one line of fates
LABEL = 11  #: columns of the word that starts a line
ABRIDGED = (
    "Abridged: where steps are followed by others like them (the same calls, algorithms, allocations, copies and "
    "reasons; frees, waits and the host's work may fall differently), these are counted and not shown."
)
FUTURE = {"offload": "offloaded", "drop": "dropped"}


Selection = range | int | str | None


def listing(program: Program, steps: Selection = None, instructions: bool = False) -> str:
    """The program as text, at most 100 columns wide.

    Args:
        program: the program to show.
        steps: a range of step numbers, one number, or a layer's name (its forward and its backward step); None: all,
            after the setup, the totals and every map's fate.
        instructions: one line an instruction, with addresses.
    """
    lister = _Lister(program, detailed=steps is not None)
    write = lister.instructions if instructions else lister.step
    lines = [lister.title()]
    if steps is None:
        lines += [*lister.head(), "", *lister.fates(), "", *write(0)]
        abridged = len(program.network.steps) > MOST_IN_FULL and not instructions
        everything = range(1, len(program.network.steps) + 1)
        runs = list(lister.runs()) if abridged else [(everything, range(0))]
        if any(repeated for _, repeated in runs):
            lines += ["", *_wrapped("", ABRIDGED)]
        for shown, repeated in runs:
            for number in shown:
                lines += ["", *write(number)]
            if repeated:
                lines += ["", *_wrapped("  ⋮  ", lister.likeness(shown, repeated))]
    else:
        for number in selected(program, steps):
            lines += ["", *write(number)]
    return "\n".join(lines) + "\n"


def entries(program: Program) -> list[tuple[str, str]]:
    """Every instruction's word and text; what waits for other work says so, as in the listing."""
    lister = _Lister(program, detailed=True)
    awaited: dict[int, list[str]] = {}  # stream → what its next work waits for
    found: list[tuple[str, str]] = []
    for i in program.instructions:
        if isinstance(i, Wait):
            awaited.setdefault(i.stream, []).append(lister.awaited(i))
        if isinstance(i, Record | Wait):
            found.append((i.op, f"event {i.event}"))
            continue
        text = lister.items([i])[0]
        if isinstance(i, Work) and i.stream in awaited:
            text += f", waits for {' and '.join(awaited.pop(i.stream))}"
        found.append((lister.label(i), text))
    return found


def repetitions(program: Program) -> list[tuple[range, str]]:
    """Steps that are like those before them, and the line that the listing shows in their place."""
    if len(program.network.steps) <= MOST_IN_FULL:
        return []
    lister = _Lister(program, detailed=False)
    return [(repeated, lister.likeness(shown, repeated)) for shown, repeated in lister.runs() if repeated]


def selected(program: Program, steps: Selection) -> Sequence[int]:
    """The step numbers meant by a range, a number or a layer's name."""
    if isinstance(steps, str):
        layer = program.network.layer(steps)
        return [step.number for step in program.network.steps if step.layer is layer]
    numbers = [steps] if isinstance(steps, int) else list(steps or ())
    last = len(program.network.steps)
    for number in numbers:
        if not 1 <= number <= last:
            raise NetworkError(f"{program.network.name} has no step {number}; there are steps 1 to {last}")
    return numbers


class _Lister:
    """One program, and the names and positions that its instructions are described with."""

    def __init__(self, program: Program, detailed: bool) -> None:
        self.program, self.network, self.detailed = program, program.network, detailed
        self.by_step: list[list[tuple[int, Instruction]]] = [[] for _ in range(len(self.network.steps) + 1)]
        self.recorded: dict[int, tuple[int, Instruction]] = {}  # event → the instruction it is recorded after
        before: tuple[int, Instruction] | None = None
        for position, instruction in enumerate(program.instructions):
            self.by_step[instruction.step].append((position, instruction))
            if isinstance(instruction, Record):
                assert before is not None
                self.recorded[instruction.event] = before
            before = position, instruction
        self.step_of_call = {call: step for step in self.network.steps for call in step.calls}
        self.fullest = max(range(len(program.rows)), key=lambda i: program.rows[i].pool_bytes) + 1

    # -- the head ------------------------------------------------------------------------------------------------------

    def title(self) -> str:
        program, machine = self.program, self.program.machine
        return _shortened(
            f"{heading(self.network, machine)} · {program.setup.name} · {machine.name} "
            f"({machine.catalogue}) · budget {size(program.budget)}"
        )

    def head(self) -> Iterator[str]:
        program, counts, row = self.program, self.program.counts, self.program.peak
        average = sum(row.live_bytes for row in program.rows) / len(program.rows)
        spare = size(program.budget - program.peak_bytes)
        held = f"peak {size(program.peak_bytes)}, {spare} to spare"
        pool = [f"pool {size(program.pool_bytes)}"] * (program.pool_bytes < program.budget)
        states = sum(tensor.nbytes for tensor in self.network.on_host)
        home = [f"{size(states)} of the optimiser's states are on the host between iterations"] * bool(states)
        yield from _entry("fits", [held, *pool, f"resident {size(self.network.resident_bytes)}", *home])
        live = f"{size(row.live_bytes)} at most ({row.step.title}, step {row.step.number})"
        yield from _entry("live", [live, f"{size(round(average))} on average"])
        moved = {
            "offloaded": counts.offloaded_bytes,
            "prefetched": counts.prefetched_bytes,
            "on demand": counts.on_demand_bytes,
            "evicted": counts.evicted_bytes,
        }
        items = [f"{what} {size(nbytes)}" for what, nbytes in moved.items() if nbytes] or ["nothing but the batch"]
        if counts.skipped_prefetches:
            items.append(f"no hole for a prefetch {counted(counts.skipped_prefetches, 'time')}")
        tiers = [f"{name} tier {size(nbytes)}" for name, nbytes in program.tier_bytes.items()]
        yield from _entry("traffic", [*items, f"pinned memory {size(program.pinned_bytes)}", *tiers])
        if stored := [i for i in program.instructions if isinstance(i, ToStore)]:
            raw = size(sum(i.nbytes for i in stored))
            said = f"{raw} of maps to {size(counts.stored_bytes)}, by threads of the host"
            yield from _entry(stored[0].codec.packed, [said, f"room for {size(program.store_bytes)} at worst"])
        if counts.evictions:
            found = f"{counted(counts.hits, 'hit')} and {counts.misses} misses"
            yield from _entry("cache", [counted(counts.evictions, "eviction"), found])
        if counts.recomputed_layers:
            yield from _entry("rebuilt", [counted(counts.recomputed_layers, "forward step") + " run again"])
        length = f"{counted(len(program.instructions), 'instruction')}, {counted(counts.waits, 'wait')} among them"
        seconds = f"{duration(program.planned_seconds)} an iteration, by the model of {program.machine.name}"
        yield from _entry("time", [seconds, length])
        slots = [f"{slot} {module}" for slot, module in program.setup.slots.items()]
        constants = ["join"] * program.setup.join + ["seams"] * program.setup.seams
        yield from _entry("slots", [*slots, f"streams {', '.join(program.streams)}", *constants])

    def fates(self) -> Iterator[str]:
        """The fate of every map that backward reads, and the module that chose it."""
        groups: dict[Fate, list[Tensor]] = {}
        for tensor, fate in self.program.fates.items():
            groups.setdefault(fate, []).append(tensor)
        order = ("offload", "drop", "keep")
        yield f"Fates of the {counted(len(self.program.fates), 'map')} that backward reads"
        ranked = sorted(groups.items(), key=lambda group: order.index(group[0].name))
        for fate, tensors in ranked[:NAMES]:
            names = ", ".join(tensor.name for tensor in tensors[:NAMES])
            more = f" and {counted(len(tensors) - NAMES, 'map')} more" if len(tensors) > NAMES else ""
            total = f"{counted(len(tensors), 'map')}, {size(sum(tensor.nbytes for tensor in tensors))}"
            said = fate.reason if fate.module == "none" else f"{fate.module}: {fate.reason}"
            yield from _entry(fate.name, [f"{said} · {total}: {names}{more}"])
        if len(ranked) > NAMES:
            left = counted(sum(len(tensors) for _, tensors in ranked[NAMES:]), "map")
            yield from _entry("", [f"and {left} more, for {counted(len(ranked) - NAMES, 'other reason')}"])

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, number: int) -> Iterator[str]:
        """One step: a line that names it, then one line for each kind of event."""
        yield self._heading(number)
        waits: list[Wait] = []
        if number == 0:
            found = list(self.program.resident)
            yield from _entry("resident", [f"{counted(len(found), 'tensor')}, {size(self.network.resident_bytes)}"])
        groups = groupby((i for _, i in self.by_step[number] if not isinstance(i, Record)), key=self.label)
        for label, group in groups:
            if label == "wait":
                waits += [i for i in group if isinstance(i, Wait)]
                continue
            equal: list[Instruction] = list(group)
            work = equal[0]
            own = [wait for wait in waits if isinstance(work, Work) and wait.stream == work.stream]
            yield from self._join([wait for wait in waits if wait not in own])
            awaited = [f"waits for {' and '.join(map(self.awaited, own))}"] if own else []
            yield from _entry(label, [*self.items(equal), *awaited])
            waits = []
        yield from self._join(waits)

    def _heading(self, number: int) -> str:
        if number == 0:
            return "Before the first step"
        step, row = self.network.steps[number - 1], self.program.rows[number - 1]
        marks = ["most live"] * (row is self.program.peak) + ["fullest"] * (number == self.fullest)
        figures = f"live {size(row.live_bytes):>10}   pool {size(row.pool_bytes):>10}"
        mark = f"   ← {'peak' if len(marks) == 2 else marks[0]}" if marks else ""
        return _shortened(f"{f'Step {number}  {step.title}':<42} {figures}{mark}")

    def label(self, instruction: Instruction) -> str:
        if isinstance(instruction, Launch):
            return "rebuild" if instruction.rebuild else "run"
        return instruction.op

    def items(self, group: Sequence[Instruction]) -> list[str]:
        """The items of the line about instructions of one kind."""
        if isinstance(group[0], Launch):
            calls = [self._launch(i) for i in group if isinstance(i, Launch)]
            runs = [(said, len(list(same))) for said, same in groupby(calls)]
            return [said if times == 1 else f"{said} ×{times}" for said, times in runs]
        return [self._item(instruction) for instruction in group]

    def _item(self, i: Instruction) -> str:
        if isinstance(i, Allocate):
            fate = self.program.fates.get(i.tensor)
            if fate is None or fate.name == "keep" or i.step > self.network.depth:
                return f"{i.tensor} {size(i.nbytes)}"
            why = f" ({fate.module}: {fate.reason})" if self.detailed else ""
            future = "uploaded again" if i.tensor.kind == "input" else FUTURE[fate.name]
            return f"{i.tensor} {size(i.nbytes)}, to be {future}{why}"
        if isinstance(i, Free):
            drained = f", let go in step {i.released}" if i.released < i.step else ""
            return f"{i.tensor} {size(i.nbytes)}{drained}"
        if isinstance(i, HostCopy):
            return f"{i.tensor} {size(i.nbytes)}, {size(i.planned)} {i.codec.packed}"
        assert isinstance(i, Copy)
        return f"{i.tensor} {size(i.nbytes)}, {i.why}"

    def _launch(self, launch: Launch) -> str:
        said = launch.call.function
        if launch.rebuild:
            said = f"{self.step_of_call[launch.call].layer}: {said}"
        if launch.choice is None:
            return said
        space = f", {size(launch.choice.workspace_bytes)}" if launch.choice.workspace_bytes else ""
        return f"{said} ({launch.choice.algorithm}{space})"

    def _join(self, waits: Sequence[Wait]) -> Iterator[str]:
        """Waits that no instruction of the step follows on their streams."""
        if waits:
            streams = self.program.streams
            yield from _entry("join", [f"{streams[w.stream]} waits for {self.awaited(w)}" for w in waits])

    def awaited(self, wait: Wait) -> str:
        """`copy out of conv1 in step 3`"""
        _, awaited = self.recorded[wait.event]
        where = "" if awaited.step == wait.step else f" in step {awaited.step}" if awaited.step else " at the start"
        return f"{self._named(awaited)}{where}"

    def _named(self, instruction: Instruction) -> str:
        if isinstance(instruction, Launch):
            step = self.step_of_call[instruction.call]
            return f"{instruction.call.function} of {step.layer}" + (" again" if instruction.rebuild else "")
        assert isinstance(instruction, Transfer)
        return f"{instruction.op} of {instruction.tensor}"

    # -- instructions --------------------------------------------------------------------------------------------------

    def instructions(self, number: int) -> Iterator[str]:
        """One step, one line an instruction: its position, its stream, what it does to which bytes."""
        yield self._heading(number)
        widest = max(9, *(len(i.op) for i in self.program.instructions))  # columns of the word for what it does
        if number == 0:
            for tensor, address in self.program.resident.items():
                yield from _wrapped(
                    f"{'':6} {'':8} {'resident':<{widest}} ", f"{address:#x} {tensor} {size(tensor.nbytes)}"
                )
        for position, i in self.by_step[number]:
            stream = "" if isinstance(i, (Allocate, Free)) else self.program.streams[i.stream]
            yield from _wrapped(f"{position:>6} {stream:<8} {i.op:<{widest}} ", self._in_full(i))

    def _in_full(self, i: Instruction) -> str:
        if isinstance(i, (Allocate, Free)):
            return f"{i.address:#x} {self._item(i)}"
        if isinstance(i, Transfer):
            return f"{_place(i.source)} → {_place(i.target)} {self._item(i)}"
        if isinstance(i, Record):
            return f"event {i.event}"
        if isinstance(i, Wait):
            position, awaited = self.recorded[i.event]
            return f"event {i.event}: waits for {self._named(awaited)}, instruction {position}"
        at = dict(zip(i.call.operands, i.addresses, strict=True))
        given = " ".join(f"{tensor}@{at[tensor]:#x}" for tensor in (*i.call.reads, *i.call.updates))
        filled = " ".join(f"{tensor}@{at[tensor]:#x}" for tensor in i.call.writes)
        space = f", workspace@{i.workspace[0]:#x}" if i.workspace else ""
        return f"{self._launch(i)}{' again' if i.rebuild else ''}: {given} → {filled or 'in place'}{space}"

    # -- what repeats --------------------------------------------------------------------------------------------------

    def runs(self) -> Iterator[tuple[range, range]]:
        """Steps to show, and the steps after them that repeat the last few of those shown (often none)."""
        signs = self._signatures()
        count = len(signs)
        equal = {period: _repeated(signs, period) for period in range(1, min(LONGEST_PERIOD, count // 3) + 1)}
        start = shown_from = 0
        while start < count:
            hidden, period = 0, 1
            for candidate, run in equal.items():
                repeats = run[start] // candidate * candidate
                if repeats > 1.25 * hidden and repeats >= 2 * candidate:  # of about the same use, the shortest period
                    hidden, period = repeats, candidate
            if hidden < 4:
                start += 1
                continue
            if shown_from < start:
                yield range(shown_from + 1, start + 1), range(0)
            yield range(start + 1, start + period + 1), range(start + period + 1, start + period + hidden + 1)
            start = shown_from = start + period + hidden
        if shown_from < count:
            yield range(shown_from + 1, count + 1), range(0)

    def _signatures(self) -> list[int]:
        """One number a step; steps that are alike have the same.

        Frees, waits and the host's work do not count: when a copy is done, and its bytes are free, drifts from one
        unit to the next.
        """
        known: dict[tuple[object, ...], int] = {}
        clockwork = (Free, Record, Wait, HostCopy)
        return [
            known.setdefault(tuple(self._signature(i) for _, i in found if not isinstance(i, clockwork)), len(known))
            for found in self.by_step[1:]
        ]

    def _signature(self, i: Instruction) -> tuple[object, ...]:
        if isinstance(i, Launch):
            return i.call.function, i.choice, i.rebuild, tuple(tensor.nbytes for tensor in i.call.operands)
        if isinstance(i, Allocate):
            fate = self.program.fates.get(i.tensor)
            return i.op, i.nbytes, i.tensor.kind, fate and fate.name
        assert isinstance(i, Copy)
        return i.op, i.nbytes, i.why

    def likeness(self, shown: range, repeated: range) -> str:
        """The heading of `repeated` steps that are like those `shown` before them."""
        period = len(shown)
        first, last = (self.network.steps[number - 1].layer for number in (repeated[0], repeated[-1]))
        live = [self.program.rows[number - 1].live_bytes for number in repeated]
        same = "step" if period == 1 else f"{period} steps"
        return (
            f"steps {repeated[0]} to {repeated[-1]} are like the last {same}, "
            f"{counted(len(repeated) // period, 'time')} more: layers {first} to {last}, "
            f"live {size(min(live))} to {size(max(live))}"
        )


def _repeated(signs: Sequence[int], period: int) -> list[int]:
    """For every step, how many steps in a row, itself the first, are like the step `period` later."""
    run = [0] * (len(signs) + 1)
    for start in range(len(signs) - period - 1, -1, -1):
        run[start] = run[start + 1] + 1 if signs[start] == signs[start + period] else 0
    return run


def _place(region: Region) -> str:
    """An address, and the memory where it is not the device's."""
    memory = {DEVICE: "", HOST: "pinned "}.get(region.memory, f"{region.memory} ")
    return f"{memory}{region.address:#x}"


def _entry(label: str, items: Iterable[str]) -> Iterator[str]:
    """A labelled line, wrapped under its text."""
    return _wrapped(f"    {label:<{LABEL}}", " · ".join(items))


def _wrapped(prefix: str, text: str) -> Iterator[str]:
    lines = textwrap.wrap(text, WIDTH - len(prefix), break_on_hyphens=False) or [""]
    yield (prefix + lines[0]).rstrip()
    for line in lines[1:]:
        yield " " * len(prefix) + line


def _shortened(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"

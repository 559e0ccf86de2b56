"""The result of a check: a proof with its figures, or the one thing that is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.network import Tensor
from refimpl.planner.instructions import Instruction, Launch, Record, Wait
from refimpl.planner.program import Program
from refimpl.text import RefimplError, counted, noun

#: Number → the rule's name.  The rules themselves are in this folder's docstring.
RULES = {1: "order", 2: "lifetime", 3: "values", 4: "release", 5: "budget"}


@dataclass(frozen=True)
class Proof:
    """The program is right.  Counts are of one iteration, unless they say otherwise."""

    instructions: int
    launches: int
    copies: int
    waits: int
    events: int
    accesses: int  #: accesses to a block's bytes, each ordered after all it conflicts with, in both iterations
    peak_bytes: int  #: the most that was held, resident tensors and rounding included
    warnings: tuple[str, ...]  #: what is safe but of no use: a line each

    def __str__(self) -> str:
        warned = f"; {counted(len(self.warnings), 'warning')}" if self.warnings else ""
        counts = (
            (self.instructions, "instruction"), (self.launches, "launch"), (self.copies, "copy"), (self.waits, "wait"),
            (self.events, "event"), (self.accesses, "access"), (self.peak_bytes, "byte"),
        )  # fmt: skip
        instructions, launches, copies, waits, events, accesses, peak = (f"{n} {noun(n, what)}" for n, what in counts)
        return (
            f"right: {instructions} ({launches}, {copies}, {waits}, {events}), {accesses} in order, peak {peak}{warned}"
        )


@dataclass(eq=False)
class Unsafe(RefimplError):
    """The program is wrong: which rule it breaks, and where."""

    exit_status = None

    rule: int
    message: str  #: one line
    second: Instruction | None = None  #: the instruction that goes wrong; None where a step is missing
    first: Instruction | None = None  #: an earlier one that it clashes with
    tensor: Tensor | None = None
    layer: str = ""  #: of the step that `second` belongs to
    missing: tuple[str, str] | None = None  #: of a missing order: the stream that has to wait, and that it waits for

    def __str__(self) -> str:
        return f"rule {self.rule} ({RULES[self.rule]}): {self.message}"


def layer_of(program: Program, instruction: Instruction) -> str:
    """The layer of the instruction's step; of a rebuild, of the step that wants it.  Empty before the first step."""
    steps = program.network.steps
    return steps[instruction.step - 1].layer.name if 0 < instruction.step <= len(steps) else ""


def describe(program: Program, index: int, later: bool = False) -> str:
    """An instruction for people; `later`: the one of the second iteration."""
    it = program.instructions[index]
    if isinstance(it, Launch):
        what = f"{'rebuild' if it.rebuild else 'launch'} of {it.call}"
    elif isinstance(it, (Record, Wait)):
        what = f"{it.op} of event {it.event}"
    else:
        what = f"{it.op} of {it.tensor}"
    stream = f" on {stream_name(program, it.stream)}" if hasattr(it, "stream") else ""
    layer = layer_of(program, it)
    step = f"step {it.step}, {layer}" if layer else "before the first step"
    return f"instruction {index}{' of the second iteration' if later else ''} ({what}{stream}; {step})"


def stream_name(program: Program, stream: int) -> str:
    return program.streams[stream] if 0 <= stream < len(program.streams) else f"stream {stream}"

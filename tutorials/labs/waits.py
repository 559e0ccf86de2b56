"""Lab A2's script: its records and waits put into the programs of several batches, and what no wait orders there.

The submission is read and not executed.  `python -m tutorials.labs.waits mine.py 47` lists, for one batch, every two
accesses that no wait orders, in the lines and names of the script; where there are none, how long an iteration takes.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from refimpl.backend.script import identifier, written_out
from refimpl.memory import UNLIMITED
from refimpl.names.presets import vdnn_all
from refimpl.network import Tensor
from refimpl.planner import Allocate, Copy, CopyOut, Launch, Program, Record, Wait, plan
from refimpl.planner.instructions import Instruction
from refimpl.planner.verify.check import Check
from refimpl.planner.verify.happens_before import HappensBefore, Unordered
from refimpl.planner.verify.lifetimes import CheckedBlock
from refimpl.text import RefimplError, one_line
from tutorials.labs.lab import Case, Lab, Refused, machine, network_of

NETWORK, BATCH = "lenet", 32  #: of the script
FUNCTION = "train_step"
ONLY = "only records and waits may change"
Body = Sequence[ast.stmt]  #: the statements of `train_step`


class NotTheScript(RefimplError):
    """The submission is not the lab's script: one line."""

    exit_status = 1


class Mark(NamedTuple):
    """A record or a wait of a script."""

    kind: str
    event: str
    stream: str


# -- the script --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def own(batch: int) -> Program:
    """vDNN's own program, with a join after every layer that moves something."""
    return plan(network_of(NETWORK, batch), vdnn_all.setup, machine(), UNLIMITED >> 20)


def exported() -> str:
    return written_out(own(BATCH), "refimpl export lenet --policy vdnn-all")


def statements(source: str) -> Body:
    """Those of `train_step`."""
    try:
        found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError) as error:
        raise NotTheScript(f"the file is not Python: {one_line(str(error))}") from None
    body = next((node.body for node in found if node.name == FUNCTION), None)
    if body is None:
        raise NotTheScript(f"the file has no function {FUNCTION}; {ONLY}")
    return body


def mark_of(node: ast.stmt) -> Mark | None:
    """`event["name"].wait(stream)`, if it is that."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Subscript(ast.Name("event"), name), kind), [ast.Name(stream)], [])):
            return Mark(kind, ast.unparse(name), stream) if kind in ("record", "wait") else None
    return None


def waits_of(body: Body) -> list[ast.stmt]:
    return [node for node in body if (mark := mark_of(node)) and mark.kind == "wait"]


def script_of(source: str) -> Body:
    """The statements of a submission.  `NotTheScript`: something else than records and waits has changed."""
    body = statements(source)
    mine, theirs = (
        [(node, ast.unparse(node)) for node in one if not mark_of(node)] for one in (body, statements(exported()))
    )
    for (node, said), (_, wanted) in zip(mine, theirs, strict=False):
        if said != wanted:
            said, wanted = one_line(said), one_line(wanted)
            raise NotTheScript(f"line {node.lineno}, `{said}`: {ONLY}, and here the script has `{wanted}`")
    if len(mine) != len(theirs):
        raise NotTheScript(f"{FUNCTION} has {len(mine)} other lines and had {len(theirs)}; {ONLY}")
    return body


def with_marks(program: Program, body: Body) -> tuple[Program, dict[Instruction, ast.stmt]]:
    """The program with a script's records and waits, and none of its own; and the statement of each launch and copy."""
    streams = {identifier(name): number for number, name in enumerate(program.streams)}
    rest = iter([it for it in program.instructions if not isinstance(it, Record | Wait)])
    made: list[Instruction] = []
    events: dict[str, int] = {}
    said: dict[Instruction, ast.stmt] = {}
    for node in body:
        if mark := mark_of(node):
            if mark.stream not in streams:
                raise NotTheScript(f"line {node.lineno}: there is no stream {mark.stream}, but {' and '.join(streams)}")
            if mark.kind == "record":
                events[mark.event] = sum(isinstance(it, Record) for it in made)
            elif mark.event not in events:
                raise NotTheScript(
                    f"line {node.lineno}: {mark.stream} waits for {mark.event}, which no line above records"
                )
            kind = Record if mark.kind == "record" else Wait
            made.append(kind(made[-1].step if made else 0, streams[mark.stream], events[mark.event]))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            for it in rest:
                made.append(it)
                if isinstance(it, Launch | Copy):
                    said[it] = node
                    break
    return replace(program, instructions=[*made, *rest]), said


# -- what no wait orders -----------------------------------------------------------------------------------------------


class Access(NamedTuple):
    """A launch or a copy that reads or writes a variable of the script."""

    work: Launch | Copy
    line: int
    called: str
    stream: str
    writes: bool
    variable: str

    def __str__(self) -> str:
        does = "writes" if self.writes else "reads"
        return f"line {self.line}, `{self.called}` on `{self.stream}`, {does} `{self.variable}`"


class Clash(NamedTuple):
    """Two accesses to the same bytes that no wait orders; the first one may be of the iteration before."""

    second: Access
    first: Access
    before: bool

    def __str__(self) -> str:
        first = str(self.first).replace(",", " of the iteration before,", 1) if self.before else self.first
        shared = "" if self.first.variable == self.second.variable else "they share bytes, and "
        return f"{self.second}; {first}; {shared}no wait orders them"

    def said(self) -> str:
        """With what is missing."""
        where = "at the end of an iteration" if self.before else f"before line {self.second.line}"
        return f"{self}: {where} `{self.second.stream}` has to wait for line {self.first.line}"


class EveryClash(HappensBefore):
    """Goes on after an access that is not ordered."""

    def __init__(self, streams: int) -> None:
        super().__init__(streams)
        self.found: list[tuple[int, Unordered]] = []

    def read(self, block: CheckedBlock) -> None:
        try:
            super().read(block)
        except Unordered as clash:
            self.found.append((self._position, clash))
            block.read_at[self._stream] = self._position

    def write(self, block: CheckedBlock) -> None:
        try:
            super().write(block)
        except Unordered as clash:
            self.found.append((self._position, clash))
            block.written_at, block.write_stream, block.read_at = self._position, self._stream, {}


def clashes(batch: int, body: Body) -> list[Clash]:
    """Everything that no wait orders in two iterations of a batch, each once."""
    program, said = with_marks(own(batch), body)
    check = Check(program)
    check.order = order = EveryClash(len(program.streams))
    check.run()
    found: dict[Clash, None] = {}
    for position, clash in order.found:
        iterations, works = zip(
            *(divmod(at, len(program.instructions)) for at in (position, clash.earlier)), strict=True
        )
        second, first = (program.instructions[at] for at in works)
        assert isinstance(second, Launch | Copy) and isinstance(first, Launch | Copy)
        later = access(program, said, second, clash.block)
        found[Clash(later, access(program, said, first, clash.block), iterations[0] != iterations[1])] = None
    return list(found)


def access(program: Program, said: Mapping[Instruction, ast.stmt], work: Launch | Copy, block: CheckedBlock) -> Access:
    """What a launch or a copy does with the bytes of a block; it may have had them for another tensor."""
    if isinstance(work, Copy):
        touched = {work.tensor: work.address}
        written: Sequence[Tensor] = () if isinstance(work, CopyOut) else (work.tensor,)
    else:
        touched = dict(zip(work.call.operands, work.addresses, strict=True))
        written = (*work.call.writes, *work.call.updates)
    inside = [one for one, at in touched.items() if at < block.end and block.address < at + one.nbytes]
    tensor = next((one for one in inside if one in written), inside[0])
    node: Any = said[work]
    called, stream = ast.unparse(node.value.func), identifier(program.streams[work.stream])
    return Access(work, node.lineno, called, stream, tensor in written, variables().get(tensor.name, tensor.name))


@lru_cache(maxsize=1)
def variables() -> dict[str, str]:
    """Tensor → its name in the script: each allocation is a line `name = at(…)`."""
    bound = [node.targets[0] for node in statements(exported()) if isinstance(node, ast.Assign)]
    allocated = [it.tensor.name for it in own(BATCH).instructions if isinstance(it, Allocate)]
    return {tensor: ast.unparse(name) for tensor, name in zip(allocated, bound, strict=True)}


def needless(batches: Sequence[int], body: Body) -> list[ast.stmt]:
    """The waits of a safe script without each of which it is safe in all batches."""
    return [
        one
        for one in waits_of(body)
        if not any(clashes(batch, [node for node in body if node is not one]) for batch in batches)
    ]


# -- the lab -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScriptLab(Lab):
    """A lab whose submission is a script: what is judged is the number of its waits."""

    def modules(self, path: Path) -> dict[str, Any]:
        body = script_of(path.read_text(encoding="utf-8", errors="replace"))
        with_marks(own(BATCH), body)  # whether there are its streams and events
        return {FUNCTION: body}

    def figure_of(self, case: Case, modules: Mapping[str, Any]) -> tuple[float, Program | None]:
        body = modules[FUNCTION]
        if found := clashes(case.batch, body):
            raise Refused(1, str(found[0]))
        return len(waits_of(body)), with_marks(own(case.batch), body)[0]

    def command(self, case: Case, path: Path) -> str:
        return f"python -m tutorials.labs.waits {path} {case.batch}"


def main(path: str, batch: str = str(BATCH)) -> None:
    body = script_of(Path(path).read_text(encoding="utf-8"))
    if found := clashes(int(batch), body):
        print(*found, sep="\n")
        return
    milliseconds = 1000 * with_marks(own(int(batch)), body)[0].simulate().seconds
    spare = len(needless([int(batch)], body))
    print(f"{NETWORK}({batch}): safe with {len(waits_of(body))} waits, of which {spare} can go, each by itself")
    print(f"an iteration takes {milliseconds:.3f} ms on the model's clock")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RefimplError, OSError, TypeError, ValueError) as error:
        sys.exit(f"{error}; give a file and a batch, as in mine.py 47")

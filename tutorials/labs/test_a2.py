"""Lab A2, waits: pytest tutorials/labs/test_a2.py --submission my_waits.py

The submission is a script, which is read and not executed: its records and waits are put into programs of three
batches, and these are proved.
"""

from __future__ import annotations

import ast
import random
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from refimpl.backend.script import identifier, written_out
from refimpl.memory import UNLIMITED
from refimpl.names.presets import vdnn_all
from refimpl.planner import Copy, Launch, Program, Record, Wait, plan
from refimpl.planner.instructions import Instruction
from refimpl.planner.verify import Unsafe
from refimpl.text import one_line
from tutorials.labs.lab import machine, network_of

BATCH = 32  #: of the script
DRAWN, LEAST, MOST = 2, 16, 96  #: other batches of its network: how many, from and to
FUNCTION = "train_step"
FEWEST = 9  #: waits with which every batch is safe, if they may be anywhere
EACH = 1 / 6  #: of the points, for a wait too many


class NotTheScript(ValueError):
    """The submission is not the lab's script: one line."""


class Mark(NamedTuple):
    """A record or a wait of a script."""

    kind: str
    event: str
    stream: str


def statements(source: str) -> list[ast.stmt]:
    """Those of `train_step`."""
    try:
        found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError as error:
        raise NotTheScript(f"the file is not Python: {one_line(str(error))}") from None
    body = next((node.body for node in found if node.name == FUNCTION), None)
    if body is None:
        raise NotTheScript(f"the file has no function {FUNCTION}")
    return body


def mark_of(node: ast.stmt) -> Mark | None:
    """`event["name"].wait(stream)`, if it is that."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Subscript(ast.Name("event"), name), kind), [ast.Name(stream)], [])):
            return Mark(kind, ast.unparse(name), stream) if kind in ("record", "wait") else None
    return None


@lru_cache(maxsize=8)
def planned(batch: int) -> Program:
    """vDNN's own program, with a join after every layer that moves something."""
    return plan(network_of("lenet", batch), vdnn_all.setup, machine(), UNLIMITED >> 20)


def script(program: Program) -> str:
    return written_out(program, "refimpl export lenet --policy vdnn-all")


def with_marks(program: Program, body: list[ast.stmt]) -> Program:
    """The program with a script's records and waits, and none of its own: each call is a launch or a copy."""
    streams = {identifier(name): number for number, name in enumerate(program.streams)}
    rest = iter([it for it in program.instructions if not isinstance(it, Record | Wait)])
    made: list[Instruction] = []
    events: dict[str, int] = {}
    step = 0
    for node in body:
        if mark := mark_of(node):
            if mark.stream not in streams:
                raise NotTheScript(f"there is no stream {mark.stream}; the script has {', '.join(streams)}")
            if mark.kind == "record":
                events[mark.event] = sum(isinstance(it, Record) for it in made)
            elif mark.event not in events:
                raise NotTheScript(f"{mark.stream} waits for {mark.event}, which nothing has recorded before")
            kind = Record if mark.kind == "record" else Wait
            made.append(kind(step, streams[mark.stream], events[mark.event]))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            for it in rest:
                made.append(it)
                if isinstance(it, Launch | Copy):
                    step = it.step
                    break
    return replace(program, instructions=[*made, *rest])


def unsafe(body: list[ast.stmt], seed: int) -> str:
    """What is wrong with a script's waits in one of the batches; empty: they are proved."""
    for batch in (BATCH, *random.Random(f"A2 {seed}").sample(range(LEAST, MOST), DRAWN)):
        try:
            with_marks(planned(batch), body).verify()
        except (Unsafe, NotTheScript) as error:
            return f"lenet({batch}): {one_line(str(error))}"
    return ""


# -- the tests ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def body(submission: Path) -> list[ast.stmt]:
    """The submission's statements, if they are the script's but for records and waits."""
    try:
        found = statements(submission.read_text(encoding="utf-8"))
    except NotTheScript as error:
        pytest.fail(str(error), pytrace=False)
    mine, theirs = (
        [ast.unparse(node) for node in one if not mark_of(node)] for one in (found, statements(script(planned(BATCH))))
    )
    if mine != theirs:
        changed = next((one for one, other in zip(mine, theirs, strict=False) if one != other), "its length")
        pytest.fail(f"only records and waits may change, and this did: {one_line(changed)}", pytrace=False)
    return found


@pytest.fixture(scope="module")
def wrong(body: list[ast.stmt], seed: int) -> str:
    return unsafe(body, seed)


@pytest.mark.points(10)
def test_script(body: list[ast.stmt], award: Any) -> None:
    award(1, "the lab's script, with records and waits of its own")


@pytest.mark.points(60)
def test_proved(wrong: str, award: Any) -> None:
    award(not wrong, wrong or f"{1 + DRAWN} batches, two iterations of each")


@pytest.mark.points(30)
def test_fewest(body: list[ast.stmt], wrong: str, award: Any) -> None:
    waits = sum(mark.kind == "wait" for mark in map(mark_of, body) if mark)
    why = "no proof" if wrong else f"{waits} waits; {FEWEST}, at the right places, are enough"
    award(0 if wrong else max(0, 1 - EACH * (waits - FEWEST)), why)

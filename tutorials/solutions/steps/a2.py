"""A2, waits: what is handed in after each step."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any

from tutorials.labs.lab import LABS, Case
from tutorials.labs.test_a2 import LAB as LAB
from tutorials.labs.waits import BATCH, FUNCTION, NETWORK, Body, exported, mark_of, needless, statements

SOLUTION = Path(__file__).parents[1] / "a2_waits.py"
PARTS = {"the script's": (BATCH, BATCH), "fewer images": (16, 31), "more images": (33, 96)}
DRAWS, NEED = 4, 0.0
MISSING = (
    "images copied in",
    "relu1 forward",
    "conv1 copied out",
    "pool1 copied in",
    "conv2 backward",
    "relu1 backward",
)


def draw(part: str, numbers: random.Random) -> Case:
    return Case(part, NETWORK, numbers.randint(*PARTS[part]))


def alone() -> Body:
    """Beside a copy nothing runs."""
    body: list[ast.stmt] = []
    for node in statements(exported()):
        if mark_of(node):
            continue
        copies = ".copy_to_" in ast.unparse(node)
        body += marks("compute", "memory") * copies + [node] + marks("memory", "compute") * copies
    return body


def marks(done: str, waits: str) -> list[ast.stmt]:
    return ast.parse(f'event["{done} so far"].record({done}); event["{done} so far"].wait({waits})').body


def mended() -> Body:
    """The skeleton with its missing waits, as vDNN has them."""
    skeleton = {ast.unparse(node) for node in statements((LABS / "a2_waits.py").read_text(encoding="utf-8"))}
    missing = {f"event[{event!r}]" for event in MISSING}
    return [
        node
        for node in statements(exported())
        if ast.unparse(node) in skeleton or ast.unparse(node).partition(".")[0] in missing
    ]


def thinned() -> Body:
    """Without the waits that can go, one after another."""
    body = mended()
    while found := needless([BATCH, 16, 96], body):
        body = [node for node in body if node is not found[0]]
    return body


def script(body: Body) -> dict[str, Any]:
    return {FUNCTION: body}


ZERO = script(alone())
STEPS = {"every missing wait": script(mended()), "no wait that can go": script(thinned())}
FULL = LAB.modules(SOLUTION)

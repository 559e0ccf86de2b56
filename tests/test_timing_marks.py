"""A test that compares seconds is marked `timing` and reads a processor's clock, so that no busy machine fails it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
OF_THE_PROCESSOR = {"process_time", "thread_time"}
OF_THE_WALL = {"perf_counter", "monotonic", "time"}

#: Read the wall's clock, and why.
MAY = {
    "test_a_rank_that_fails_while_it_prepares_stops_the_others_at_once": "a rank that waits takes no processor time",
    "test_calls_that_may_last_let_other_threads_run": "a call that waits takes no processor time",
    "test_a_study_killed_twenty_times_ends_with_the_rows_of_one_that_was_not": "it draws when to kill",
}


def clocks(node: ast.AST) -> set[str]:
    """The clocks that are read, deadlines of loops aside: `while monotonic() < until`, `until = monotonic() + 60`."""
    if isinstance(node, ast.While):
        return set().union(*map(clocks, node.body))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return set()
    found = set().union(*map(clocks, ast.iter_child_nodes(node)))
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).removeprefix("time.")
        found |= {name} & (OF_THE_PROCESSOR | OF_THE_WALL)
    return found


def marks(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(each).removeprefix("pytest.mark.") for each in function.decorator_list}


def at_fault(text: str) -> Iterator[str]:
    """The tests of a file that read a clock and are not marked, or that read the wall's."""
    if "import time\n" not in text and "from time import" not in text:
        return
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    for name, function in functions.items():
        if not name.startswith("test_") or name in MAY:
            continue
        called = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)} & functions.keys()
        found = set().union(*(clocks(functions[each]) for each in {name, *called}))
        if found and "timing" not in marks(function):
            yield f"{name} is not marked timing"
        if wall := sorted(found & OF_THE_WALL):
            yield f"{name} reads {', '.join(wall)}"


def test_what_compares_seconds_is_marked_and_reads_the_processors_clock() -> None:
    files = [*ROOT.rglob("test_*.py"), *(ROOT / "host").glob("*.py")]
    assert [f"{path.name}: {fault}" for path in files for fault in at_fault(path.read_text(encoding="utf-8"))] == []


def test_a_test_that_compares_seconds_is_found() -> None:
    text = """
import time

def helper():
    return time.process_time()

def test_a():
    assert helper() < 3

@pytest.mark.timing
def test_b():
    assert helper() < 3

@pytest.mark.timing
def test_c():
    begun = time.perf_counter()
    assert time.perf_counter() - begun < 3

def test_d():
    until = time.monotonic() + 60
    while not done() and time.monotonic() < until:
        pass
"""
    assert [*at_fault(text)] == ["test_a is not marked timing", "test_c reads perf_counter"]

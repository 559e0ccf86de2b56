"""Labs A0, a kernel, and A2, a script: what is counted and what is found, in whose words."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.targets.declare import REGISTRY, Kernel
from refimpl.importing import own_code
from refimpl.planner import Allocate, Free
from tests.matrix import more
from tests.messages import lacks
from tutorials.labs import counted_threads, test_a0, test_a2, waits
from tutorials.labs.counted_threads import counted
from tutorials.labs.lab import Case, Refused
from tutorials.labs.test_a0 import Shape
from tutorials.labs.waits import BATCH, Body, clashes, exported, mark_of, script_of, statements, with_marks
from tutorials.solutions.steps import a0, a2

ROOT = Path(__file__).resolve().parents[1]
SKELETON = ROOT / "tutorials" / "labs" / "a2_waits.py"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


@pytest.fixture(autouse=True)
def no_own_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a submission's folder joins it
    REGISTRY.pop("tiled", None)
    yield
    own_code.known.clear()
    REGISTRY.pop("tiled", None)


# -- A0 ----------------------------------------------------------------------------------------------------------------

HEAD = """
import numpy as np
from kernels.targets.launch import Floats, kernel
from kernels.targets.shim import cuda


@kernel(block=(16, 2))
def tiled(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    column, row = cuda.grid(2)
    x = cuda.threadIdx.x
"""


@pytest.mark.parametrize(
    ("body", "sectors", "conflicts"),
    [
        ("C[row * n + x] = A[0]", 4 + 1, 0),  # 32 threads write 2 rows of 16 elements: four sectors
        ("C[x * 2 + row] = B[x * 3 + row]", 4 + 6, 0),
        ("s = cuda.shared.array((16, 2), np.float32)\n    s[x, row] = A[0]", 1, 0),
        ("s = cuda.shared.array((16, 32), np.float32)\n    s[x, row] = A[0]", 1, 15),  # 16 threads in one bank
    ],
)  # fmt: skip
def test_sectors_and_conflicts_of_an_access(body: str, sectors: int, conflicts: int, mine: Path) -> None:
    mine.write_text(f"{HEAD}    {body}\n")
    kernel: Kernel = own_code.executed(str(mine), 0).tiled
    shape = Shape(2, 16, 3)
    lines = counted(kernel, shape.grid(kernel), shape.matrices, shape)
    assert (sum(one.sectors for one in lines), sum(one.turns for one in lines)) == (sectors, conflicts)
    assert {one.line for one in lines} == {11 + body.count("\n")}


def test_each_step_of_a0_asks_for_what_is_missing() -> None:
    """Neighbours, tiles, barriers, banks: what the kernel of each step of the handout still lacks."""
    tests = (
        test_a0.test_a_warp_reads_neighbours,
        test_a0.test_a_tile_is_read_once_by_a_block,
        test_a0.test_no_barrier_is_missing,
        test_a0.test_shared_memory_has_no_bank_conflicts,
    )
    passed = []
    for kernels in (a0.ZERO, *a0.STEPS.values(), a0.FULL):
        lines = test_a0.LAB.touched(kernels[test_a0.NAME], test_a0.SEVERAL)
        passed.append("".join(".F"[fails(test, lambda shape, lines=lines: lines)] for test in tests))
    assert passed == ["FFFF", ".FFF", ".F..", "...F", "...."]


def fails(test: Any, given: Any) -> bool:
    try:
        test(given)
    except (AssertionError, pytest.fail.Exception):
        return True
    return False


BARRIER = "        cuda.syncthreads()\n"
SOLUTION = (ROOT / "tutorials" / "solutions" / "a0_tiled_kernel.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("row * n + column] = total", "row * n + column + 1] = total", "line 33: C[row * n + column + 1]: index"),
        more(BARRIER, "", "with no barrier between them"),
        ("    total = np", "    if row >= m:\n        return\n    total = np", "guard with `if` instead"),
        more("total += a_tile", "total -= a_tile", "256 elements, the first C[0, 0], not the product"),
    ],
)
def test_what_is_wrong_with_a_kernel_is_a_sentence(old: str, new: str, says: str, mine: Path) -> None:
    assert old in SOLUTION
    mine.write_text(SOLUTION.replace(old, new), encoding="utf-8")
    case = Case("", "16x16x16", 0, zero=2, full=1)
    measured = test_a0.LAB.measured(case, test_a0.LAB.modules(mine), mine)
    assert says in measured.unsafe and "\n" not in measured.unsafe and "Refused" not in measured.unsafe


def test_a_kernel_of_another_file_is_not_ones_own(mine: Path) -> None:
    mine.write_text("from tutorials.solutions.steps.a0 import along_a_row as tiled\n")
    with pytest.raises(Refused, match=r"tiled is .*steps/a0.py's along_a_row; write yours"):
        test_a0.LAB.modules(mine)


def right_product(kernel: Kernel, shape: Shape) -> np.ndarray:
    """Without the checked mode, which compiles for a second."""
    a, b, _ = shape.matrices.values()
    return a.reshape(shape.m, shape.k) @ b.reshape(shape.k, shape.n)


def test_the_command_of_a_kernel_s_case_shows_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(test_a0, "product", right_product)
    counted_threads.main(str(ROOT / "tutorials" / "solutions" / "a0_tiled_kernel.py"), "5x6x7")
    assert re.search(r"line  25  A  +\d+ accesses +\d+ sectors\n", capsys.readouterr().out)


# -- A2 ----------------------------------------------------------------------------------------------------------------


def without_marks(body: Body) -> list[str]:
    return [ast.unparse(node) for node in body if not mark_of(node)]


def without(body: Body, event: str) -> Body:
    """The body without its waits for an event."""
    return [node for node in body if not ast.unparse(node).startswith(f"event['{event}'].wait")]


def test_the_lab_s_files_are_what_export_writes_but_for_records_and_waits() -> None:
    theirs = statements(exported())
    for path in (SKELETON, a2.SOLUTION):
        assert without_marks(script_of(path.read_text(encoding="utf-8"))) == without_marks(theirs)
    program = waits.own(BATCH)
    streams = [
        [re.sub(r"step=\d+", "", repr(it)) for it in one.instructions if not isinstance(it, Allocate | Free)]
        for one in (program, with_marks(program, theirs)[0])
    ]
    assert streams[0] == streams[1]
    assert with_marks(program, theirs)[0].verify()


#: The tests that ask for the waits which the skeleton lacks, in their order.
ASKING = [value for name, value in vars(test_a2).items() if name.startswith("test_")][: len(a2.MISSING)]


def failing(body: Body) -> list[object]:
    found = clashes(BATCH, body)
    return [test for test in ASKING if fails(test, found)]


def test_each_step_of_a2_asks_for_one_of_the_missing_waits() -> None:
    mended = a2.mended()
    assert failing(mended) == [] and failing(statements(SKELETON.read_text(encoding="utf-8"))) == ASKING
    for event, test in zip(a2.MISSING, ASKING, strict=True):
        assert failing(without(mended, event)) == [test]


@pytest.mark.parametrize("batch", [BATCH, 47])
def test_a_finding_has_the_lines_and_names_of_the_script_in_every_batch(batch: int) -> None:
    source = exported()
    (clash,) = clashes(batch, without(statements(source), "relu1 forward"))
    late, early = (
        next(n for n, line in enumerate(source.splitlines(), 1) if line.strip().startswith(code))
        for code in ("conv1_out.copy_to_host", "relu.forward(conv1_out")
    )
    assert str(clash) == (
        f"line {late}, `conv1_out.copy_to_host` on `memory`, reads `conv1_out`; "
        f"line {early}, `relu.forward` on `compute`, writes `conv1_out`; no wait orders them"
    )
    assert clash.said().endswith(f": before line {late} `memory` has to wait for line {early}")


def test_the_next_iteration_s_finding_says_so() -> None:
    (clash,) = clashes(BATCH, without(a2.mended(), "relu1 backward"))
    assert not lacks(str(clash), "of the iteration before, `pool.backward`", "they share bytes")
    assert "at the end of an iteration `memory`" in clash.said()


RELU = "relu.forward(conv1_out, conv1_out, stream=compute)"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("def train_step", "def other", "no function train_step"),
        (f"    {RELU}\n", "", f"only records and waits may change, and here the script has `{RELU}`"),
        (
            "stream=memory)  # result",
            "stream=compute)",
            "line 203, `losses.copy_to_host(losses_pinned, stream=compute)`: only records",
        ),
        (RELU, f"{RELU})", "not Python"),
    ],
)
def test_another_script_is_refused_with_its_line(old: str, new: str, says: str) -> None:
    with pytest.raises(waits.NotTheScript) as refused:
        script_of(SKELETON.read_text(encoding="utf-8").replace(old, new))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("line", "says"), [('event["b"].wait(compute)', "'b'"), ('event["a"].record(nowhere)', "nowhere")]
)
def test_a_wait_for_nothing_is_refused(line: str, says: str) -> None:
    with pytest.raises(waits.NotTheScript, match=says):
        clashes(BATCH, [*ast.parse(line).body, *statements(exported())])


def test_a_wait_that_can_go_is_named() -> None:
    body = statements(exported())
    found = [ast.unparse(node) for node in waits.needless([BATCH], body)]
    assert len(found) == 9 and "event['pool1 copied out'].wait(compute)" in found
    best = statements(a2.SOLUTION.read_text(encoding="utf-8"))
    assert waits.needless([BATCH, 16, 96], best) == [] and len(waits.waits_of(best)) == test_a2.FEWEST


def test_the_command_of_a_case_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    waits.main(str(SKELETON), "20")
    assert len(capsys.readouterr().out.splitlines()) == len(ASKING)
    waits.main(str(a2.SOLUTION))
    assert capsys.readouterr().out.startswith("lenet(32): safe with 9 waits, of which 0 can go")


@pytest.mark.matrix
@pytest.mark.emulated
def test_the_emulated_gpu_says_what_the_proof_says(tmp_path: Path) -> None:
    text = SKELETON.read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "kernels.targets.emulated", "mine.py", "--steps", "1"]
    found = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600
    )
    said = {str(clash) for clash in clashes(BATCH, statements(text)) if not clash.before}
    assert found.returncode == 1 and len([one for one in said if one in found.stderr]) >= len(said) - 1, found.stderr


@pytest.mark.parametrize("tests", [test_a0, test_a2])
def test_a_handout_has_every_step_and_a_command_that_runs_it_alone(tests: Any) -> None:
    names = {name for name in vars(tests) if name.startswith("test_")}
    text = (ROOT / "tutorials" / "handouts" / f"{tests.LAB.name}.md").read_text(encoding="utf-8")
    commands = dict(re.findall(r"`(test_\w+)`(?: \| | \()`-k (\w+)`", text))
    assert commands.keys() == names
    for name, word in commands.items():
        assert [one for one in names if word in one] == [name]

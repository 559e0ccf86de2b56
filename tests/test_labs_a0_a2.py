"""Labs A0, a kernel, and A2, a script: what is counted and what is found, in whose words."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.targets.declare import REGISTRY, Kernel
from refimpl.importing import own_code
from refimpl.planner import Allocate, Free
from tests.messages import lacks
from tutorials.labs import test_a2, waits
from tutorials.labs.counted_threads import counted
from tutorials.labs.test_a0 import Shape
from tutorials.labs.waits import BATCH, Body, clashes, exported, mark_of, script_of, statements, with_marks
from tutorials.solutions.steps import a2

ROOT = Path(__file__).resolve().parents[1]
SKELETON = ROOT / "tutorials" / "labs" / "a2_waits.py"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


@pytest.fixture(autouse=True)
def no_own_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a submission's folder joins it
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
    found, shared = counted(kernel, shape.grid(kernel), shape.matrices, shape)
    assert (found, sum(one.conflicts() for one in shared)) == (sectors, conflicts)


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


#: Each wait that the skeleton lacks, and the test that asks for it.
ASKED = dict(
    zip(
        a2.MISSING,
        (
            test_a2.test_forward_reads_the_batch_after_it_is_copied_in,
            test_a2.test_a_map_is_copied_out_after_its_last_writer,
            test_a2.test_no_kernel_overwrites_a_map_while_it_is_copied_out,
            test_a2.test_backward_reads_a_map_after_it_is_copied_in,
            test_a2.test_nothing_is_copied_in_over_bytes_that_a_kernel_uses,
            test_a2.test_the_next_iteration_waits_too,
        ),
        strict=True,
    )
)


def failing(body: Body) -> list[object]:
    found: list[object] = []
    for test in ASKED.values():
        try:
            test(clashes(BATCH, body))
        except pytest.fail.Exception:
            found.append(test)
    return found


def test_each_step_of_a2_asks_for_one_of_the_missing_waits() -> None:
    mended = a2.mended()
    assert failing(mended) == [] and failing(statements(SKELETON.read_text(encoding="utf-8"))) == [*ASKED.values()]
    for event, test in ASKED.items():
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
        (f"    {RELU}\n", "", f"line 82 has to be `{RELU}`; only records and waits may change"),
        ("stream=memory)  # result", "stream=compute)", "line 203 has to be `losses.copy_to_host"),
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
    assert len(capsys.readouterr().out.splitlines()) == len(ASKED)
    waits.main(str(a2.SOLUTION))
    assert capsys.readouterr().out.startswith("lenet(32): 9 waits")


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

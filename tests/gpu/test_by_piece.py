"""The script of `make gpu-quick` and `make gpu`, on the emulated GPU with small sizes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import gpu_device
from tests.gpu import by_piece, quick
from tests.messages import lacks


def run(part: str, folder: Path, only: str = "") -> int:
    return by_piece.main([part, "--device", "emulated", "--rows", str(folder), "--only", only])


def rows(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.glob("gpu-emulated-*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.emulated
def test_a_run_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def piece(name: str, *errors: BaseException) -> Callable[[], dict[str, Any]]:
        left = [*errors]

        def act() -> dict[str, Any]:
            ran.append(name)
            if left:
                raise left.pop()
            return {"ms": 1.5}

        return act

    made = {
        "wrong": piece("wrong", ValueError("off by\n one")), "right": piece("right"),
        "long": piece("long", KeyboardInterrupt()), "last": piece("last"),
    }  # fmt: skip
    monkeypatch.setattr(quick, "pieces", lambda device, tested: made)
    with pytest.raises(KeyboardInterrupt):
        run("quick", tmp_path)
    assert [(row["piece"], row["failed"]) for row in rows(tmp_path)] == [
        ("wrong", "ValueError: off by one"), ("right", None),
    ]  # fmt: skip
    with next(tmp_path.iterdir()).open("a") as file:
        file.write('{"part": "quick", "pie')  # killed while it wrote
    ran.clear()
    assert run("quick", tmp_path) == 0
    assert ran == ["long", "last", "wrong"]  # what went well is not run again, what failed comes last
    assert lacks(capsys.readouterr().out, "4 of 4 pieces went well", "ms 1.5") == []
    monkeypatch.setattr(by_piece, "CODE", ("tests/messages.py",))
    assert run("quick", tmp_path) == 0 and ran[3:] == ["wrong", "right", "long", "last"]  # other code


QUICK = {"copies": "copies", "relu": "plain kernels: relu", "bits": "bits: vdnnpp", "network": "lenet", "gemm": "gemm"}


@pytest.mark.emulated
@pytest.mark.slow
@pytest.mark.parametrize("piece", [*QUICK, "bench", "papers"])
def test_each_part_runs(piece: str, tmp_path: Path) -> None:
    part, only = ("quick", QUICK[piece]) if piece in QUICK else (piece, {"bench": "gemm", "papers": "vdnnpp"}[piece])
    assert run(part, tmp_path, only) == 0
    found = rows(tmp_path)
    assert found and all(row["part"] == part and row["failed"] is None for row in found)


@pytest.mark.emulated
@pytest.mark.slow
def test_a_row_a_test(tmp_path: Path) -> None:
    """pytest inside of pytest, so in a process of its own."""
    import subprocess

    command = [sys.executable, "-m", "tests.gpu.by_piece", "tests", "--device", "emulated", "--rows", str(tmp_path)]
    done = subprocess.run([*command, "--only", "an_event_orders"], capture_output=True, text=True, check=True)
    assert lacks(done.stdout, "stored already: 0", "1 of 1 pieces went well") == []
    assert len(rows(tmp_path)) == 1


def test_what_is_missing_is_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("torch", "pytest", "hypothesis"):
        monkeypatch.setitem(sys.modules, name, None)
    found = [*by_piece.lacking("quick")]
    assert [needed for needed, _ in found] == [False] * len(found)
    assert lacks("\n".join(line for _, line in found), "no pytest, so", "no hypothesis", "no PyTorch with CUDA") == []
    for name in ("numba_cuda", "rich"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(gpu_device, "start", None)  # nothing starts
    assert run("tests", tmp_path) == 2
    said = capsys.readouterr().out
    assert lacks(said, "no numba-cuda: pip install numba-cuda", "no rich", "no pytest: pip") == []
    assert "torch" not in said
    monkeypatch.setitem(by_piece.LIBRARIES, "NVVM", ("nvvm", "not_there"))
    assert any(needed and line.startswith("no NVVM (AttributeError)") for needed, line in by_piece.lacking("papers"))

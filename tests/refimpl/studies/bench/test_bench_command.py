"""`refimpl bench`: what each option measures and for how long, what is said around the tables, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.report.tables import Table
from refimpl.studies.bench import command, kernels, pytorch
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong


class Measured(SimpleNamespace):
    """A report of one number."""

    def tables(self) -> list[Table]:
        return [Table("one table", ["what", "figure"], [["number", "7"]], wraps=("what",))]

    def json(self) -> str:
        return json.dumps({"number": 7})

    def write(self, root: Path) -> Iterator[Path]:
        yield root / "docs" / "speed.md"


REPORT = Measured(name="a machine", seconds=6.6, how="In brackets.", disturbed="It was busy.")


@pytest.mark.parametrize("option", [f"--{name}" for name in command.OTHERS])
def test_each_option_measures_its_own(option: str, refimpl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def run(quick: bool, watch: Any) -> Measured:
        asked.append(quick)
        return REPORT

    monkeypatch.setattr(pytorch, "at_hand", lambda: True)
    monkeypatch.setattr(f"refimpl.studies.bench.{command.OTHERS[option[2:]]}.run", run)
    quick, whole = refimpl("bench", option, "--quick"), refimpl("bench", option)
    assert asked == [True, False] and quick.status == 0 and quick.out == whole.out
    lines = whole.out.splitlines()
    assert "one table" in lines and ["number", "7"] in [line.split() for line in lines]
    assert lines[-2:] == ["a machine. In brackets.", "It was busy."]
    assert json.loads(refimpl("bench", option, "--json").out) == {"number": 7}
    assert f"written: {command.ROOT}/docs/speed.md" in refimpl("bench", option, "--write").err


def test_the_kernels_of_a_family_or_all(refimpl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(device: Any, cases: Any, budget: float, quick: bool, watch: Any, with_launch_cost: bool) -> Measured:
        asked.append((device.kind, {case.family for case in cases}, budget, quick, with_launch_cost))
        return REPORT

    monkeypatch.setattr(kernels, "run", run)
    said = refimpl("bench", "--device", "cpu", "--family", "sgd")
    assert said.out.splitlines()[-2:] == ["a machine. 7 seconds. In brackets.", "It was busy."]
    refimpl("bench", "--device", "cpu", "--family", "launch", "--quick")
    assert asked == [("cpu", {"sgd"}, 0.6, False, False), ("cpu", set(), 0.1, True, True)]
    refimpl("bench", "--device", "cpu")
    assert len(asked[-1][1]) > 20 and asked[-1][2:] == (0.6, False, True)


def test_without_pytorch(refimpl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytorch, "at_hand", lambda: False)
    said = refimpl("bench", "--attention")
    assert said.status == 4 and said.out == "" and "pip install torch" in said.err


def test_only_what_is_whole_is_written(wrong: Wrong) -> None:
    assert lacks(wrong("bench", "--write", "--quick"), "--write", "--quick") == []
    assert lacks(wrong("bench", "--all-reduce", "tiny-vgg"), "mpiexec -n 2 refimpl bench --all-reduce tiny-vgg") == []

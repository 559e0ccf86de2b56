"""Commands with a module of one's own in a slot: it works everywhere, and what it gets wrong is one line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.matrix import diagonal
from tests.messages import lacks
from tests.refimpl.cli.said import Command

PAGE = Path(__file__).parents[3] / "docs" / "slots" / "index.md"
MINE = ("--set", "liveness=layer-wise", "--set", "offload={}:BigMaps:least=256KiB")
COMPARE = ("compare", "tiny-vgg", "lenet", "--batch", 4, "--machine", "titan-x", "--with", "baseline")


def documented() -> str:
    """The module that the page about slots shows."""
    (module,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return module


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The documented module, in the working directory, under a name that no other test uses."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"mine_{abs(hash(tmp_path))}.py"
    path.write_text(documented())
    return path


def using(path: Path) -> list[str]:
    return [word.format(path.stem) for word in MINE]


def broken(path: Path, before: str, after: str) -> int:
    """Put a mistake into the module; the number of its line."""
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    return text[: text.index(before)].count("\n") + 1 + after[: after.index("1 // 0")].count("\n")


COMMANDS: dict[str, tuple[object, ...]] = {"plan": (), "compare": ("--with", "baseline"), "run": ("--steps", 1)}


#: Function → what it has, and what it has in its place.
MISTAKES = {
    "bind": ("return Leaving(context, self.least)", "return 1 // 0"),
    "offloads": ('return dict.fromkeys(self.at, "a large map")', "return {\n            1 // 0: 2}"),
    "leaves": ("[x for x, number in self.at.items() if number == step.number]", "[1 // 0]"),
}


@pytest.mark.parametrize(("command", "where"), diagonal(COMMANDS, MISTAKES))
def test_an_error_in_a_module_is_one_line_with_its_own_line(
    refimpl: Command, mine: Path, command: str, where: str
) -> None:
    line = broken(mine, *MISTAKES[where])
    said = refimpl(command, "tiny-vgg", "--batch", 4, "--machine", "titan-x", *using(mine), *COMMANDS[command])
    assert said.status == 2 and said.out == ""
    wanted = f"refimpl {command}: {mine.name}, line {line}, in {where}: ZeroDivisionError: "
    assert said.err.startswith(wanted) and said.err.count("\n") == 1, said.err


@pytest.mark.slow
def test_an_error_in_a_workers_module_is_the_same_line(refimpl: Command, mine: Path) -> None:
    line = broken(mine, *MISTAKES["bind"])
    said = refimpl(*COMPARE, *using(mine), "--jobs", 2)
    assert said.status == 2 and said.err.count("\n") == 1, said.err
    assert lacks(said.err, "refimpl compare", mine.name, line, "bind", "ZeroDivisionError") == []


def test_a_wrong_answer_is_one_line_with_what_is_right(refimpl: Command, mine: Path) -> None:
    mine.write_text(mine.read_text().replace('dict.fromkeys(self.at, "a large map")', "[x.name for x in self.at]"))
    said = refimpl("plan", "tiny-vgg", "--batch", 16, "--machine", "titan-x", *using(mine))
    assert said.status == 2 and said.out == "" and said.err.count("\n") == 1
    assert lacks(said.err, "refimpl plan: big-maps: offloads()", "the name 'conv1_1'", "{tensor: 'why'}") == []


def test_a_module_that_exits_does_not_end_the_command_in_silence(refimpl: Command, mine: Path) -> None:
    mine.write_text(mine.read_text().replace("return Leaving(context, self.least)", "raise SystemExit(0)"))
    said = refimpl("plan", "tiny-vgg", "--batch", 4, "--machine", "titan-x", *using(mine))
    assert said.status == 2 and f"{mine.name}, line " in said.err and "SystemExit: 0" in said.err


def test_a_function_of_ones_own_may_import_its_neighbours_late(
    refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder that is not the working directory, when the function is called and not before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "networks"
    folder.mkdir()
    name = f"neighbour_{abs(hash(tmp_path))}"
    (folder / f"{name}.py").write_text("from refimpl.names.networks import lenet\n")
    (folder / "own.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n\n\n"
        "@dataclass\nclass Sizes:\n    name: ClassVar[str] = 'x'\n    width: int = 3\n\n\n"
        f"def make(batch):\n    from {name} import lenet\n    return lenet(batch=batch)\n\n\n"
        "def fails(batch):\n    return {}['x']\n"
    )
    said = refimpl("summary", f"{folder / 'own.py'}:make", "--batch", 3)
    assert said.status == 0, said.err
    said = refimpl("summary", f"{folder / 'own.py'}:fails")
    assert said.status == 2 and lacks(said.err, 18, "fails", "KeyError", "'x'") == [] and "own.py" in said.err

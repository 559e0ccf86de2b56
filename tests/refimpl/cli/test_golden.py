"""What the commands print, word for word: `golden/` has a file a command, and `wrong-use.txt` for slips of the finger.

A file is blocks of a line `$ refimpl …` and what that prints; `[3]` at the end is an exit status other than 0.  After a
message has been reworded, `python -m tests.refimpl.cli.test_golden` rewrites the files: read the difference before
you commit it.  Other tests look at figures and exit statuses, not at words.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from refimpl.cli import main

GOLDEN = Path(__file__).parent / "golden"
ROOT = GOLDEN.parents[3]
COLUMNS = 100
BLOCK = re.compile(r"^\$ (refimpl[^\n]*)\n(.*?)(?=^\$ |\Z)", re.MULTILINE | re.DOTALL)
FILES = sorted(GOLDEN.glob("*.txt"))


def run(command: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(shlex.split(command)[1:])
        except SystemExit as left:  # argparse leaves by itself
            status = int(left.code or 0)
    return status, out.getvalue(), err.getvalue()


def printed(command: str) -> str:
    """As a block shows it: without blanks at the ends of lines, with a status that is not 0."""
    status, out, err = run(command)
    lines = [line.rstrip() for line in (out + err).replace(str(ROOT), "…").strip("\n").splitlines()]
    return "\n".join([*lines, *([f"[{status}]"] if status else [])]) + "\n"


def rewritten(text: str) -> str:
    """A golden file with what its commands print today."""
    return "\n".join(f"$ {command}\n{printed(command)}" for command, _ in BLOCK.findall(text))


def blocks() -> list[tuple[str, str, str]]:
    """File, command and what it printed."""
    return [
        (path.stem, command, text.strip("\n"))
        for path in FILES
        for command, text in BLOCK.findall(path.read_text(encoding="utf-8"))
    ]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


#: Commands that take longer than a moment, by their beginnings.
LONG = "refimpl compare lenet", "refimpl list kernels", "refimpl reproduce superneurons", "refimpl bench --"
GIVEN = [
    pytest.param(*one, marks=[pytest.mark.slow] * one[1].startswith(LONG), id=one[1][:60] or one[0]) for one in blocks()
]


@pytest.mark.parametrize(("name", "command", "text"), GIVEN)
def test_a_command_prints_what_it_printed(name: str, command: str, text: str) -> None:
    assert printed(command) == text + "\n", "run: python -m tests.refimpl.cli.test_golden"


def test_wrong_use_is_one_line_and_status_2() -> None:
    texts = [text for name, _, text in blocks() if name == "wrong-use"]
    assert len(texts) > 40
    assert all(text.endswith("\n[2]") and text.count("\n") == 1 and text.startswith("refimpl") for text in texts)


def test_standard_output_is_within_100_columns() -> None:
    lines = [line for _, _, text in blocks() if "\n[" not in text for line in text.splitlines()]
    assert len(lines) > 100 and max(map(len, lines)) <= COLUMNS


if __name__ == "__main__":
    os.environ["COLUMNS"] = str(COLUMNS)
    os.chdir(ROOT)
    for path in FILES:
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{len(FILES)} files written\n")

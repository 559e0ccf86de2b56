"""A study of small networks, whole: what it prints, as rows and for people, and what its pictures hold.

`commands/study.txt` has blocks of a line `$ refimpl …`, its output, and its picture.  After a change that is meant to
change them, `python -m tests.refimpl.studies.test_small_commands` rewrites it: read the difference before you commit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from matplotlib.figure import Figure

import refimpl
from refimpl.report import style
from refimpl.studies.grid import rows as grid_rows
from tests.refimpl.cli.test_golden import COLUMNS, printed
from tests.refimpl.report.drawn import held

STORED = Path(__file__).parent / "commands" / "study.txt"
LONG = re.compile(r"\d+\.\d{6,}(e-?\d+)?")
COMMANDS = (
    "refimpl study grid.toml --jobs 1 --out rows.jsonl",
    "refimpl study rows.jsonl --draw heat-map --picture map.png",
    "refimpl study rows.jsonl --draw slow-down --picture map.png",
    "refimpl study rows.jsonl --draw profile --picture map.png",
    "refimpl study rows.jsonl --draw memory --picture map.png",
    "refimpl study rows.jsonl --csv",
)
GRID = """
networks = ["lenet", "tiny-resnet"]
setups = ["vdnn-all", "superneurons", "baseline"]
machines = ["titan-x"]
budgets = [0.4, "", 1.0]
batches = [64]
least = true
"""


@contextmanager
def small(folder: Path) -> Iterator[list[str]]:
    """In a folder of its own, with what takes long in place of itself; the pictures as text."""
    drawn: list[str] = []

    def save(figure: Figure, path: Any) -> None:
        drawn.append(held(figure))

    here = Path.cwd()
    os.chdir(folder)
    Path("grid.toml").write_text(GRID, encoding="utf-8")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(COLUMNS))
            patch.setattr(style, "save", save)
            patch.setattr(refimpl, "__version__", "0")  # rows have it
            patch.setattr(grid_rows, "process_time", partial(next, count(0, 0.25)))  # a clock that goes on when read
            yield drawn
    finally:
        os.chdir(here)


def text_of(folder: Path) -> str:
    """All commands, with what they print and draw."""
    blocks = []
    with small(folder) as drawn:
        for command in COMMANDS:
            said = printed(command).replace(str(folder), "…")
            blocks += [f"$ {command}\n", LONG.sub(lambda found: f"{float(found[0]):.6g}", said), *drawn]
            drawn.clear()
    return "\n".join(blocks)


def test_a_study_prints_and_draws_the_same(tmp_path: Path) -> None:
    assert text_of(tmp_path) == STORED.read_text(encoding="utf-8")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        STORED.write_text(text_of(Path(folder)), encoding="utf-8")

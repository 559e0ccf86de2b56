"""The studies' commands on small networks: what they print, as JSON and for people, and what their pictures hold.

`commands/` has a file a study: blocks of a line `$ refimpl …`, its output, the end of its status where that is not 0,
and its picture.  After a change that is meant to change them, `python -m tests.refimpl.studies.test_small_commands`
rewrites the files: read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import sys
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
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.report import style
from refimpl.studies.challenge import command as challenge
from refimpl.studies.challenge.point_set import ChallengePoint
from refimpl.studies.challenge.point_set import printed as printed_points
from refimpl.studies.grid import rows as grid_rows
from refimpl.studies.pareto.points import BOUND, ParetoCase, Task
from refimpl.studies.transformers import command as transformers
from refimpl.studies.transformers.outcomes import Outcome
from refimpl.studies.transformers.pictures import RULES, block_fates, largest_batches
from refimpl.studies.transformers.written_page import STORED as OUTCOMES
from tests.refimpl.cli.test_golden import COLUMNS, ROOT, printed
from tests.refimpl.report.drawn import held
from tests.refimpl.studies.transformers.test_outcomes import read_outcomes

STORED = Path(__file__).parent / "commands"
LONG = re.compile(r"\d+\.\d{6,}(e-?\d+)?")
MEASURED = re.compile(r'("solver_seconds": )[0-9.e-]+')

PARETO = (
    "refimpl pareto lenet --batch 64 --machine titan-x --with vdnn-dyn --with superneurons --with baseline --jobs 1"
)
#: Study → its commands.
COMMANDS = {
    "optimum": (
        "refimpl optimum lenet --batch 64 --machine titan-x --budget 0.9 --effort 6 --enumerate 2",
        "refimpl optimum lenet --batch 64 --machine titan-x --budget 0.9 --effort 3 --enumerate 1 --json",
        "refimpl optimum lenet --batch 1024 --machine titan-x --budget 3MiB",
    ),
    "pareto": (
        f"{PARETO} --picture pareto.png",
        f"{PARETO} --json",
        f"{PARETO} --no-bound --points 3 --json",
        f"{PARETO} --no-bound --budget 30%,1.3 --out points",
        f"{PARETO} --no-bound --budget 30%,1.3 --out points",
        "refimpl pareto lenet --set algorithms=memory --no-bound",
    ),
    "challenge": (
        "refimpl challenge vdnn-all 'vdnn-conv allocator=first-fit' --jobs 1 --out rows.jsonl",
        "refimpl challenge superneurons --jobs 1 --seed 2",
        "refimpl challenge superneurons --jobs 1 --json",
    ),
    "fragmentation": (
        "refimpl fragmentation alexnet:vdnnpp --batch 16 --policy conv --policy none --picture map.png",
        "refimpl fragmentation tiny-vgg --batch 16 --own-order --picture bars.png --draw bars",
        "refimpl fragmentation tiny-vgg --batch 16 --policy alternate-conv --json",
    ),
    "transformers": (
        "refimpl transformers --network bert-base --machine rtx-3060 --machine a100-80g --picture over.png",
        "refimpl transformers --network bert-base --json",
        "refimpl transformers --all --network gpt2",
        "refimpl transformers --write",
        "refimpl transformers --maps --all",
        "refimpl transformers --maps --write --network gpt2",
    ),
    "study": (
        "refimpl study grid.toml --jobs 1 --out rows.jsonl",
        "refimpl study rows.jsonl --draw heat-map --picture map.png",
        "refimpl study rows.jsonl --draw slow-down --picture map.png",
        "refimpl study rows.jsonl --draw profile --picture map.png",
        "refimpl study rows.jsonl --draw pareto --picture map.png",
        "refimpl study rows.jsonl --csv",
    ),
}
GRID = """
networks = ["lenet", "tiny-resnet"]
setups = ["vdnn-all", "superneurons", "baseline"]
machines = ["titan-x"]
budgets = [0.4, "", 1.0]
batches = [64]
least = true
"""


def stored_outcomes(options: Any, networks: dict[str, int], machines: list[str]) -> list[Outcome]:
    """Those that docs/transformers.md was made from."""
    return [one for one in read_outcomes(ROOT / OUTCOMES) if one.network in networks and one.machine in machines]


def few_points() -> list[ChallengePoint]:
    """Of two small networks, with a reference and without."""
    return [one for one in printed_points() if one.network in ("tiny-resnet", "lenet")][:6:2]


def by_hand(case: ParetoCase, network: Network, task: Task) -> float | None:
    """In place of planning: each curve fits from a budget of its own, and falls with the budget for the most part."""
    place = 1 + sum(map(ord, task.curve)) % 7
    least = (21 + place) << 18
    if task.budget is None:
        return least
    bound = 1e-3 * (1 + 1e6 / task.budget)
    return (
        bound
        if task.curve == BOUND
        else None
        if task.budget < least
        else bound * (1 + place / 10 + task.budget % 3 / 5)
    )


def of_transformers() -> list[Figure]:
    """The two pictures of docs/transformers.md that no command draws alone."""
    found = [one for one in read_outcomes(ROOT / OUTCOMES) if one.machine in ("rtx-3060", "h100")]
    return [largest_batches(found), block_fates(build("tiny-gpt", 2), "titan-x", RULES)]


FIGURES = {"transformers": of_transformers}


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
            patch.setattr(transformers, "planned", stored_outcomes)
            patch.setattr(ParetoCase, "solve", by_hand)
            patch.setattr(grid_rows, "process_time", partial(next, count(0, 0.25)))  # a clock that goes on when read
            patch.setattr(challenge, "printed", few_points)
            patch.setattr(challenge, "drawn", lambda seed: few_points()[seed:])
            yield drawn
    finally:
        os.chdir(here)


def text_of(study: str, folder: Path) -> str:
    """All commands of a study, with what they print and draw."""
    blocks = []
    with small(folder) as drawn:
        for command in COMMANDS[study]:
            said = MEASURED.sub(r"\1…", printed(command).replace(str(folder), "…"))
            blocks += [f"$ {command}\n", LONG.sub(lambda found: f"{float(found[0]):.6g}", said), *drawn]
            drawn.clear()
        for figure in FIGURES.get(study, list)():
            blocks.append(held(figure))
    return "\n".join(blocks)


@pytest.mark.parametrize("study", COMMANDS)
def test_a_study_prints_and_draws_the_same(study: str, tmp_path: Path) -> None:
    assert text_of(study, tmp_path) == (STORED / f"{study}.txt").read_text(encoding="utf-8")


def written() -> None:
    """Write all files."""
    STORED.mkdir(exist_ok=True)
    for study in COMMANDS:
        with TemporaryDirectory() as folder:
            (STORED / f"{study}.txt").write_text(text_of(study, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    written()
    sys.stdout.write(f"{len(COMMANDS)} files written\n")

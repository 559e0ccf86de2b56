"""Every part of every paper's evaluation: which published figures are met, and that it is shown, drawn and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refimpl.studies.reproduce import PAPERS
from refimpl.studies.reproduce.evaluation import Part, published_table, reproduced_json
from refimpl.studies.reproduce.published import Found

#: Paper and part → of how many published figures how many are met; a change of these has to be told to the reader.
QUICK = {
    ("vdnn", "memory"): (11, 20), ("vdnn", "performance"): (7, 11), ("vdnn", "reuse"): (1, 2),
    ("vdnnpp", "pinned"): (0, 4), ("vdnnpp", "fragmentation"): (0, 0),
    ("superneurons", "curve"): (11, 13), ("superneurons", "cache"): (5, 18), ("superneurons", "workspaces"): (2, 5),
    ("superneurons", "largest-memory"): (0, 6),
}  # fmt: skip
SLOW = {("superneurons", "total"): (8, 21), ("superneurons", "types"): (33, 70)}
MATRIX = {("vdnn", "ranges"): (1, 9), ("vdnn", "deep"): (1, 5), ("superneurons", "recompute"): (14, 18)}
CAMPAIGN = {
    ("vdnnpp", "speed"): (0, 6), ("superneurons", "cache-speed"): (1, 12), ("superneurons", "pool"): (3, 19),
    ("superneurons", "speed-by-batch"): (0, 18), ("superneurons", "largest"): (2, 9), ("accudnn", "memory"): (7, 12),
    ("accudnn", "batch"): (0, 6), ("accudnn", "cluster"): (2, 18), ("accudnn", "together"): (1, 12),
    ("accudnn", "accuracy"): (1, 1), ("accudnn", "prefetch"): (0, 0),
}  # fmt: skip
EXPECTED = {"": QUICK, "slow": SLOW, "matrix": MATRIX, "campaign": CAMPAIGN}  #: by the mark of a test


@pytest.mark.parametrize(
    ("paper", "name", "met", "figures"),
    [
        pytest.param(*part, *counts, marks=[getattr(pytest.mark, name) for name in (part[0], mark) if name])
        for mark, parts in EXPECTED.items()
        for part, counts in parts.items()
    ],
)
def test_what_is_met_stays_met(paper: str, name: str, met: int, figures: int) -> None:
    part, heard = PAPERS[paper].parts()[name], list[str]()
    made = shown(part, heard)
    assert part.beside == bool(made.figures) and len(heard) == part.rounds, "progress is told as often as was said"
    assert (sum(figure.met for figure in made.figures), len(made.figures)) == (met, figures)


def shown(part: Part, heard: list[str]) -> Found:
    """What a part makes, after all that the command shows of it was made, too."""
    made = part.find(heard.append)
    tables = [published_table(part.name, made.figures, part.units)] if made.figures else []
    tables += part.tables(made.rows) if part.tables else []
    for table in tables:
        assert table.rows and max(map(len, table.text().splitlines())) <= 100
    if part.picture:
        drawn = part.picture(made.rows)
        assert any(axes.patches or axes.lines for axes in drawn.axes) and drawn.legends
    rows = [part.document(row) for row in made.rows]
    assert json.loads(json.dumps([rows, *map(reproduced_json, made.figures)], allow_nan=False))
    return made


def test_no_part_is_left_out() -> None:
    parts = [(name, part) for name, paper in PAPERS.items() for part in paper.parts()]
    assert sorted(part for counts in EXPECTED.values() for part in counts) == sorted(parts)


def test_the_summary_of_the_documentation_has_these_counts() -> None:
    """After a change that is meant: `refimpl reproduce all --write`."""
    text = (Path(__file__).parents[4] / "docs" / "fidelity.md").read_text(encoding="utf-8")
    table = text.partition("<!-- begin reproduce all -->")[2].partition("<!-- end reproduce all -->")[0]
    counts = {part: met for parts in EXPECTED.values() for part, met in parts.items()}
    papers = {paper.title: {name} for name, paper in PAPERS.items()} | {"all": set(PAPERS)}
    for title, names in papers.items():
        met, figures = (sum(found[i] for (name, _), found in counts.items() if name in names) for i in (0, 1))
        assert f"| {title} | {figures} | {met} | {figures - met} |" in table

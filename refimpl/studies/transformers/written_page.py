"""docs/transformers.md's tables and pictures, and the outcomes that they are made from, as a file beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import refimpl
from refimpl.files import replace_text
from refimpl.report.markdown import markdown_table, paragraph, put_between
from refimpl.report.style import save
from refimpl.report.tables import Table
from refimpl.studies.grid.rows import network_of
from refimpl.studies.transformers.outcome_tables import (
    block_table,
    fastest_table,
    largest_table,
    mean_table,
    probabilities_table,
    traffic_table,
)
from refimpl.studies.transformers.outcomes import Outcome, written
from refimpl.studies.transformers.probability_maps import SHOWN as SHOWN_AS_MAPS
from refimpl.studies.transformers.probability_maps import TwoPlans, maps_table

PAGE = "docs/transformers.md"
STORED = "docs/measurements/transformers.csv"
SHOWN, ON, SHARE = "gpt2", "rtx-4090", 0.2  #: of the block's table and picture; and of what is moved


def tables(found: Sequence[Outcome], networks: Mapping[str, int]) -> dict[str, Table]:
    """Marker → the table between its two comments."""
    return {
        "block": block_table(network_of(SHOWN, networks[SHOWN])),
        "probabilities": probabilities_table([network_of(*one) for one in networks.items()], ON),
        "mean slow-down": mean_table(found),
        "fastest": fastest_table(found),
        "largest batch": largest_table(found),
        "moved": traffic_table(found, ON, SHARE),
    }


def with_tables(text: str, made: Mapping[str, Table]) -> str:
    """The page with these tables."""
    for name, table in made.items():
        note = "\n".join(map(paragraph, table.note.split("\n")))
        text = put_between(text, name, f"{markdown_table(table.head, table.rows)}\n\n{note}".rstrip())
    return text


def write_maps(found: Sequence[TwoPlans], root: Path | None = None) -> Path:
    """Write the page's table of probabilities as maps; its path."""
    page = (root or Path(refimpl.__file__).resolve().parent.parent) / PAGE
    made = {"probability maps": maps_table(found, *SHOWN_AS_MAPS)}
    replace_text(page, with_tables(page.read_text(encoding="utf-8"), made))
    return page


def write(found: Sequence[Outcome], networks: Mapping[str, int], root: Path | None = None) -> Iterator[Path]:
    """Write the page, the pictures and the outcomes; their paths, one after another."""
    from refimpl.studies.transformers.pictures import RULES, block_fates, largest_batches, over_budget

    root = root or Path(refimpl.__file__).resolve().parent.parent
    page, stored = root / PAGE, root / STORED
    replace_text(stored, written(found))
    yield stored
    replace_text(page, with_tables(page.read_text(encoding="utf-8"), tables(found, networks)))
    yield page
    drawn = {
        "transformers-over-budget": over_budget(found),
        "transformers-largest": largest_batches(found),
        "transformers-block": block_fates(network_of(SHOWN, networks[SHOWN]), ON, RULES),
    }
    for name, figure in drawn.items():
        path = root / "docs" / "pictures" / f"{name}.png"
        save(figure, path)
        yield path

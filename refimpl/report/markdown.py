"""Tables as Markdown, the text between two markers of a page, and the two files of a measurement."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from refimpl.files import replace_text


def escaped(cell: str) -> str:
    """A cell as Markdown: an indented name stays indented, and nothing outside backticks is markup."""
    name = cell.strip()
    if cell.startswith(" "):
        return f"&nbsp;&nbsp;`{name}`"
    pieces = name.split("`")
    pieces[::2] = [re.sub(r"([*_<>\[\]])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces).replace("|", "\\|") or " "


def markdown_table(head: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *table]
    return "\n".join("| " + " | ".join(escaped(cell) for cell in line) + " |" for line in lines)


def paragraph(text: str) -> str:
    """A paragraph in lines that who reads the file sees whole."""
    return fill(text, 120, break_long_words=False, break_on_hyphens=False)


def put_between(text: str, name: str, content: str) -> str:
    """`text` with everything between the two markers `name` replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the markers {begin} and {end} are not there exactly once each, in this order")
    before, after = text.split(begin)[0], text.split(end)[1]
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def json_by_rows(document: Mapping[str, Any]) -> str:
    """JSON with a line for each field; a list of objects or lists has a line for each of them."""
    fields = []
    for name, value in document.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list | tuple) and any(isinstance(row, dict | list | tuple) for row in value):
            rows = (f"  {json.dumps(row, ensure_ascii=False)}" for row in value)
            text = "[\n" + ",\n".join(rows) + "\n ]"
        fields.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}"


def write_measurement(root: Path, stem: str, page: str, document: Mapping[str, Any]) -> Iterator[Path]:
    """Write a measurement's page and its JSON into docs/measurements below `root`; both paths, one after another."""
    folder = root / "docs" / "measurements"
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in ((".md", page), (".json", json_by_rows(document))):
        path = folder / (stem + suffix)
        replace_text(path, text.rstrip() + "\n")
        yield path

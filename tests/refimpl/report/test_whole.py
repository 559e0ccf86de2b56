"""Every report of one small program, whole: nothing in it may differ.

`evicting.txt` has its tables, its document for programs, its page's data and its traces.  After a change that is meant
to change them, `python -m tests.refimpl.report.test_whole` rewrites the file: read the difference before you commit it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from refimpl.report.attribution import attributions
from refimpl.report.comparison import compared
from refimpl.report.exports import chrome_trace, torch_snapshot
from refimpl.report.json import plan_json
from refimpl.report.page.document import document
from refimpl.report.tables import plan_table, steps_table
from tests.refimpl.report.programs import evicting, timeline

STORED = Path(__file__).parent / "evicting.txt"
FEW = 12  #: numbers that are written one by one
LONG = 240  #: characters beyond which words are cut


def number(value: float) -> str:
    return f"{float(value) + 0.0:.6g}"


def numbers(values: Iterable[Any]) -> str:
    """All of a few; of more the first ones, the last one, how many, and their sum weighted by place."""
    found = np.asarray([float(value) for value in values])
    if len(found) <= FEW:
        return " ".join(number(value) for value in found)
    known = np.nan_to_num(found)
    first, second, third, last, whole, weighted = (
        number(value) for value in (*found[:3], found[-1], known.sum(), known @ np.arange(len(known)))
    )
    return f"{first} {second} {third} … {last} ({len(found)}: {whole}, {weighted})"


def shortened(text: str) -> str:
    """A long text's beginning, its length and its checksum."""
    return text if len(text) <= LONG else f"{text[: LONG // 2]} … ({len(text)}, {crc32(text.encode()):08x})"


def columns(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Field → what the rows have in it: numbers as in a picture, and each word once."""
    known = list(rows)
    for name in dict.fromkeys(name for row in known for name in row):
        values = [row[name] for row in known if row.get(name) is not None]
        if all(isinstance(value, int | float) for value in values):
            yield name, numbers(values) + (f" of {len(known)}" if len(values) < len(known) else "")
        elif all(isinstance(value, dict) for value in values):
            yield from ((f"{name}.{inner}", text) for inner, text in columns(values))
        else:
            yield name, shortened(", ".join(dict.fromkeys(map(str, values))))


def facts(value: Any, name: str = "") -> Iterator[str]:
    """A line a field of a document for programs; of many numbers as in a picture."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from facts(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and value and all(isinstance(one, int | float) for one in value):
        yield f"{name}: {numbers(value)}\n"
    elif isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) for one in value):
        yield f"{name}: {len(value)}\n"
        yield from (f"{name}.{key}: {text}\n" for key, text in columns(value))
    elif isinstance(value, list | tuple) and value and all(isinstance(one, list | tuple) for one in value):
        yield from facts([one for inner in value for one in inner], name)
    else:
        yield f"{name}: {number(value) if isinstance(value, float) else shortened(str(value))}\n"


def whole() -> str:
    """Every report of the program."""
    program, when = evicting(), timeline(evicting)
    tables = [plan_table(program, when, 0.75 * when.seconds), steps_table(program, when)]
    documents = {
        "plan": plan_json(program, when, 0.5 * when.seconds), "page": document(program, when),
        "chrome": chrome_trace(program, when), "torch": torch_snapshot(program, when),
        "attribution": attributions([("this", compared("this", program, when).attribution), ("none", None)]),
    }  # fmt: skip
    return "\n".join([*(table.text() for table in tables), *("".join(facts(*one[::-1])) for one in documents.items())])


def test_it_is_the_same() -> None:
    assert whole() == STORED.read_text(encoding="utf-8"), "run: python -m tests.refimpl.report.test_whole"


if __name__ == "__main__":
    STORED.write_text(whole(), encoding="utf-8")
    sys.stdout.write("1 file written\n")

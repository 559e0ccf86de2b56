"""A page to look at a program: one HTML file that needs no network, with linked views of one program or of two.

    how much    the bytes that the pool holds, stacked by kind       where    every block over addresses and time
    when        every stream's work, and its waits                   beside   the listing, and one tensor's life

`document.py` makes the data, `model.js` unpacks it, `panels.js` draws the views on canvases, `page.js` holds the page's
state and its keys, `gestures.js` the mouse and the fingers, `aside.js` the listing, a tensor's life and the differences
of two programs.  No library and no build step: the files are put into `page.html` as they are.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

from refimpl.files import replace_text
from refimpl.machine import Timeline
from refimpl.planner import Program
from refimpl.report.page.document import document, how, packed

HERE = Path(__file__).parent
SCRIPTS = ("text.js", "model.js", "panels.js", "page.js", "gestures.js", "aside.js")


def page_of(documents: Sequence[dict[str, object]]) -> str:
    """The page's HTML, for the documents of one program or of two."""
    title = " | ".join(f"{doc['network']}, batch {doc['batch']} · {doc['label']}" for doc in documents)
    parts = {
        "<!--TITLE-->": html.escape(title),
        "/*STYLE*/": _read("page.css"),
        "/*SCRIPT*/": "\n".join(map(_read, SCRIPTS)),
        "/*DATA*/": json.dumps([packed(doc) for doc in documents]),
    }
    text = _read("page.html")
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


def write_page(
    path: str | Path, program: Program, timeline: Timeline | None = None, against: Program | None = None
) -> None:
    """Write the page of a program.

    Args:
        path: the HTML file.
        program: the program to show.
        timeline: when it ran; where it was run, the page shows the planned times beside it.  Default: simulated.
        against: another program to show beside it.
    """
    planned = program.simulate()
    if timeline is not None and how(timeline) != "simulated":
        documents = [document(program, planned, "planned"), document(program, timeline, f"run, {how(timeline)}")]
    else:
        documents = [document(program, timeline or planned)]
    if against is not None:
        documents = [documents[-1], document(against, against.simulate())]
    replace_text(path, page_of(documents))


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8").strip()

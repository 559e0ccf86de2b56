"""Every report of one small program, whole: nothing in it may differ.

`evicting.txt` has its tables, its document for programs, its page's data and its traces.  After a change that is meant
to change them, `python -m tests.refimpl.report.test_whole` rewrites the file: read the difference before you commit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from refimpl.report.attribution import attributions
from refimpl.report.comparison import compared
from refimpl.report.exports import chrome_trace, torch_snapshot
from refimpl.report.json import plan_json
from refimpl.report.page.document import document
from refimpl.report.tables import plan_table, steps_table
from tests.refimpl.report.drawn import facts
from tests.refimpl.report.programs import evicting, timeline

STORED = Path(__file__).parent / "evicting.txt"


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

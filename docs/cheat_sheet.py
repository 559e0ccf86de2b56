"""The cheat sheet, made from the code: `python docs/cheat_sheet.py` rewrites docs/cheat-sheet.md."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import commands  # noqa: E402

from refimpl.names.modules import ABOUT_SWITCHES, MODULES, SWITCHES  # noqa: E402
from refimpl.names.presets import PRESETS  # noqa: E402
from refimpl.planner import instructions  # noqa: E402
from refimpl.report.markdown import markdown_table  # noqa: E402

PAGE = ROOT / "docs" / "cheat-sheet.md"
PAPERS = {"vDNN": "vdnn-all", "vDNN++": "vdnnpp-all", "SuperNeurons": "superneurons", "AccUDNN": "accudnn"}

#: A map's life: what happens to it, and the instructions that do it.
LIFE = (
    ("is written", "allocate · launch"),
    ("is read last in forward", "launch · record"),
    ("keep: it stays", "–"),
    ("offload: it leaves, and its bytes drain", "wait · copy out · record · free"),
    ("drop: it is forgotten", "free"),
    ("compressed, by threads of the host", "to store … from store"),
    ("comes back, ahead (prefetch) or on demand", "allocate · copy in · record · wait"),
    ("or is rebuilt from a checkpoint", "allocate · launch"),
    ("is read last in backward", "launch · free"),
)

TEXT = """\
# Cheat sheet

`python docs/cheat_sheet.py` makes this page from the code.

## Slots, and what the papers put there

{slots}

The presets are `vdnn-all`, `vdnnpp-all`, `superneurons` (whose other half is `superneurons-offload`) and `accudnn`.
*searched*: several are tried, and one is adopted. `refimpl list modules` says what each one is.

## Words of `--set`

{words}

| switch | values | meaning |
| --- | --- | --- |
{switches}

A module's parameters follow a colon: `superneurons-ahead:5`. One of your own: `--set offload=my_modules.py:BigMaps`.

## The nine instructions

{nine}

## A map's life

{life}
"""


def kinds() -> list[type]:
    """Every kind of instruction, in the order of their file."""
    found = [leaf for kind in get_args(instructions.Instruction) for leaf in kind.__subclasses__() or [kind]]
    return sorted(found, key=lambda kind: inspect.getsourcelines(kind)[1])


def of_papers(slot: str) -> list[str]:
    """What each paper's preset has in a slot."""
    found = []
    for preset in PAPERS.values():
        name = PRESETS[preset].setup.slots[slot]
        found.append("–" if name == "none" else name if name == "searched" else f"`{name}`")
    return found


def meaning(kind: type) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split())
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0]


def page() -> str:
    """The whole page."""
    slots = [[f"`{slot}`", commands.QUESTIONS[slot], *of_papers(slot)] for slot in MODULES]
    words = [[f"`{slot}=`", " ".join(f"`{name}`" for name in found)] for slot, found in MODULES.items()]
    switches = [f"| `{name}=` | {', '.join(SWITCHES[name])} | {about} |" for name, about in ABOUT_SWITCHES.items()]
    nine = [[f"`{re.sub('(?<!^)(?=[A-Z])', ' ', kind.__name__).lower()}`", meaning(kind)] for kind in kinds()]
    return TEXT.format(
        slots=markdown_table(["slot", "question", *PAPERS], slots),
        words=markdown_table(["slot", "names"], words),
        switches="\n".join(switches),
        nine=markdown_table(["instruction", "meaning"], nine),
        life=markdown_table(["a map …", "instructions"], [list(row) for row in LIFE]),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

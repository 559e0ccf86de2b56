"""What README and the pages of docs/ show, rewritten: `python docs/readme.py [PAGE …]`, all pages without a name.

- A block `console` is a line `$ refimpl …` and what it prints.
- A block `python run`, or a comment that begins with the word `run`, is run in its page's folder, after those before
  it; what it prints is the block `text` after it.  With the word `measured` numbers depend on the machine, and the old
  text stays while its words are the same.
- Between markers `<!-- begin NAME -->` is a table of `TABLES`.

A test compares README's commands and all tables; `make matrix` compares the other pages.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]

import commands  # noqa: E402
import generate  # noqa: E402

from refimpl import cli  # noqa: E402
from refimpl.planner import SLOTS  # noqa: E402
from refimpl.report.markdown import put_between  # noqa: E402
from tutorials.solutions import figures  # noqa: E402

BLOCK = re.compile(r"^```console\n\$ (refimpl [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = re.compile(
    r"^(?P<start>```python run|<!-- run)(?P<measured> measured)?\n(?P<code>.*?)^(?P<end>```|-->)\n"
    r"(?:\n```text\n(?P<old>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"\d[\d,.]*(e[-+]?\d+)?")
TABLES: dict[str, Callable[[], str]] = {
    "networks": commands.networks_table,
    "layers": commands.layers_table,
    "operators": commands.operators_table,
    "machines": commands.machines_table,
    "presets": commands.presets_table,
    "json": commands.json_table,
    "quantities": commands.quantities_table,
    "fields of a row": commands.fields_table,
    "slots": commands.slots_table,
    **{f"modules {slot}": lambda slot=slot: commands.modules_table(slot) for slot in SLOTS},
    "labs": lambda: figures.markdown(),
    "reading-path": lambda: generate.reading_path(ROOT),
}


def printing(action: Callable[[], Any], errors: bool = False) -> str:
    """What it prints, without blanks at the ends of lines."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out if errors else sys.stderr):
        action()
    lines = [line.rstrip() for line in out.getvalue().strip("\n").splitlines()]
    return "\n".join(lines) + "\n" if lines else ""


def printed(command: str) -> str:
    """The command's output."""
    return printing(lambda: cli.main(shlex.split(command)[1:]), errors=True)


def rewritten(text: str) -> str:
    """The text with what its commands print today."""
    return BLOCK.sub(lambda found: f"```console\n$ {found[1]}\n{printed(found[1])}```", text)


def with_tables(text: str) -> str:
    """The text with its tables as the project has them today."""
    for name in re.findall(r"<!-- begin (.*?) -->", text):
        if name in TABLES:
            text = put_between(text, name, TABLES[name]().strip())
    return text


def with_runs(text: str) -> str:
    """The text with what its blocks of Python print today."""
    sys.modules["page"] = ModuleType("page")  # where dataclasses look for the names of annotations
    names = vars(sys.modules["page"])

    def one(found: re.Match[str]) -> str:
        said = printing(lambda: exec(compile(found["code"], "page", "exec"), names))
        if found["measured"] and NUMBER.sub("#", said) == NUMBER.sub("#", found["old"] or ""):
            said = found["old"]
        return found[0].partition("\n\n```text\n")[0].rstrip("\n") + "\n" + (f"\n```text\n{said}```\n" if said else "")

    return RUN.sub(one, text)


def in_palette(path: Path) -> None:
    """A PNG with 256 colours."""
    from PIL import Image

    with Image.open(path) as picture:
        if picture.mode != "P":
            picture.convert("RGB").quantize(256).save(path, optimize=True)


def pages() -> list[Path]:
    """Those that have something to rewrite."""
    found = [ROOT / "README.md", *sorted(HERE.rglob("*.md"))]
    found = [page for page in found if not {"_build", "_generated"} & {*page.parts}]
    parts = (BLOCK, RUN, re.compile("|".join(f"<!-- begin {name} -->" for name in TABLES)))
    return [page for page in found if any(part.search(page.read_text(encoding="utf-8")) for part in parts)]


def write(page: Path) -> None:
    sys.path.insert(0, str(page.parent))
    text = with_tables(rewritten(page.read_text(encoding="utf-8")))
    os.chdir(page.parent)
    page.write_text(with_runs(text), encoding="utf-8")
    for picture in re.findall(r"\]\((pictures/[\w-]+\.png)\)", text):
        in_palette(Path(picture))


if __name__ == "__main__":
    os.environ["REFIMPL_CALIBRATE"] = "0"  # the same plans on every machine
    if len(sys.argv) == 2:
        write(Path(sys.argv[1]).resolve())
    else:
        for page in map(Path, sys.argv[1:]) if sys.argv[1:] else pages():
            subprocess.run([sys.executable, __file__, str(page)], check=True)

"""What README and tour show, rewritten by its commands: `python docs/readme.py`.

A block of the language `console` is a line `$ refimpl …` and what it prints.  A test compares README's.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from refimpl import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("will-it-fit", "tour", "your-own-network")))
BLOCK = re.compile(r"^```console\n\$ (refimpl [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def printed(command: str) -> str:
    """The command's output, without blanks at the ends of lines."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        cli.main(shlex.split(command)[1:])
    lines = [line.rstrip() for line in out.getvalue().strip("\n").splitlines()]
    return "\n".join(lines) + "\n"


def rewritten(text: str) -> str:
    """The text with what its commands print today."""
    return BLOCK.sub(lambda found: f"```console\n$ {found[1]}\n{printed(found[1])}```", text)


if __name__ == "__main__":
    os.environ["REFIMPL_CALIBRATE"] = "0"  # the same plans on every machine
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")

"""The contest of lab A6, every preset a submission: `python docs/contest.py` rewrites its table in docs/course.md."""

from __future__ import annotations

import io
import re
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from refimpl import cli
from refimpl.names.presets import PRESETS

PAGE = Path(__file__).resolve().parent / "course.md"
TABLE = re.compile(r"(?<=<!-- begin contest -->\n).*?(?=<!-- end contest -->)", re.DOTALL)
SECONDS = 120  #: of the processor for each submission: a search takes more than a student's module


def submissions(folder: Path) -> None:
    """A file for each preset, as a student would write it."""
    for name in PRESETS:
        text = f"from refimpl import presets\n\nsetup = presets.{name.replace('-', '_')}.setup\n"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


def ranking() -> str:
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(out):
        submissions(Path(folder))
        cli.main(["grade", "--contest", folder, "--seconds", str(SECONDS)])
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines()) + "\n"


if __name__ == "__main__":
    block = f"\n```text\n{ranking()}```\n\n"
    PAGE.write_text(TABLE.sub(lambda _: block, PAGE.read_text(encoding="utf-8")), encoding="utf-8")

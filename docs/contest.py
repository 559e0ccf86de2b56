"""The contest of lab A6, every preset a submission: `python docs/contest.py` rewrites its table in docs/course.md."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from refimpl.names.presets import PRESETS

ROOT = Path(__file__).resolve().parent.parent
TABLE = re.compile(r"(?<=<!-- begin contest -->\n).*?(?=<!-- end contest -->)", re.DOTALL)


def ranking() -> str:
    """The table, of a file for each preset, as a student would write it."""
    with tempfile.TemporaryDirectory() as folder:
        for name in PRESETS:
            text = f"from refimpl import presets\n\nsetup = presets.{name.replace('-', '_')}.setup\n"
            Path(folder, f"{name}.py").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "tutorials.labs.contest", folder]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    page = ROOT / "docs" / "course.md"
    rows = "\n".join(line.rstrip() for line in ranking().strip().splitlines())
    page.write_text(TABLE.sub(lambda _: f"\n```text\n{rows}\n```\n\n", page.read_text("utf-8")), encoding="utf-8")

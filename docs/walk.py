"""A walk through week 2 of the course with a stopwatch: `python docs/walk.py` writes its table into docs/course.md.

Reading is estimated, by words and lines; running is measured, in seconds of the processor and by the clock.
`python docs/walk.py --hours` estimates the hours of notebooks that no reader has timed, from those that one has.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORDS, LINES = 150, 12  #: a minute, of prose and of code
BEGIN, END = "<!-- begin walk -->", "<!-- end walk -->"
PATH = (
    "tutorials/11_streams_events_pinned_memory.ipynb", "tutorials/03_vdnn.ipynb", "refimpl/vdnn/offload.py",
    "refimpl/slots/window.py", "refimpl/planner/order.py", "refimpl/planner/verify/happens_before.py",
    "tests/refimpl/vdnn/test_pitfalls.py", "tests/refimpl/vdnn/test_prefetch.py", "tutorials/labs/a2_waits.py",
    "tutorials/labs/a5_offload_and_prefetch.py",
)  # fmt: skip
EXECUTE = (
    "import sys, nbformat, nbclient; nbclient.NotebookClient(nbformat.read(sys.argv[1], 4), timeout=900).execute()"
)


class Amount(NamedTuple):
    """Of one file: words of prose and lines of code."""

    words: int
    lines: int

    @property
    def minutes(self) -> float:
        return self.words / WORDS + self.lines / LINES


def amount(path: Path) -> Amount:
    """What there is to read."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        prose = " ".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    else:
        code = path.read_text(encoding="utf-8")
        prose = " ".join(re.findall(r'"""(.*?)"""', code, re.DOTALL))
        code = re.sub(r'""".*?"""', "", code, flags=re.DOTALL)
    return Amount(len(prose.split()), sum(bool(line.strip()) for line in code.splitlines()))


def command(path: Path) -> list[str] | None:
    """What a reader runs of it, with the lab's solution in the place of one's own."""
    if path.suffix == ".ipynb":
        return [sys.executable, "-c", EXECUTE, str(path)]
    if path.parent.name == "labs":
        solution = ROOT / "tutorials" / "solutions" / path.name
        return [sys.executable, "-m", "refimpl", "grade", str(solution), "--task", path.name[:2]]
    if path.name.startswith("test_"):
        return [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(path)]
    return None


def measured(path: Path) -> str:
    """Seconds of a run."""
    if (run := command(path)) is None:
        return "| –"
    used, began = os.times(), time.perf_counter()
    cwd = path.parent if path.suffix == ".ipynb" else ROOT
    subprocess.run(run, cwd=cwd, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})
    now = os.times()
    spent = now.children_user + now.children_system - used.children_user - used.children_system
    return f"{spent:.0f} s | {time.perf_counter() - began:.0f} s"


def table() -> str:
    rows, minutes = [], 0.0
    for name in PATH:
        of = amount(ROOT / name)
        minutes += of.minutes
        run = measured(ROOT / name) if command(ROOT / name) else "– | –"
        rows.append(f"| `{name}` | {of.words:,} | {of.lines:,} | {of.minutes:.0f} min | {run} |")
        print(rows[-1], flush=True)
    load = os.getloadavg()[0]
    head = f"On {date.today()}, {os.cpu_count()} cores, load {load:.0f}. Reading in all: {minutes / 60:.1f} hours."
    return "\n".join(
        [head, "", "| file | words | lines of code | reading | processor | clock |", "| --- " * 6 + "|", *rows]
    )


def hours() -> str:
    """Hours of each notebook: a reader's, or reading times the median of theirs over reading."""
    course = (ROOT / "tutorials" / "README.md").read_text(encoding="utf-8")
    timed = {number: float(of) for number, of in re.findall(r"^\| \[(\d\d)\].*\| ([\d.]+) \|$", course, re.MULTILINE)}
    reading = {path.name[:2]: amount(path).minutes / 60 for path in sorted((ROOT / "tutorials").glob("[0-9]*.ipynb"))}
    factor = median(of / reading[number] for number, of in timed.items())
    rows = [
        f"{number}: {timed[number]:g} by a reader; reading {of:.2f}" if number in timed
        else f"{number}: about {of * factor:.1f}; reading {of:.2f} times {factor:.2f}"
        for number, of in reading.items()
    ]  # fmt: skip
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--hours"]:
        print(hours())
        sys.exit()
    page = ROOT / "docs" / "course.md"
    found = table()
    text = page.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(f"{text[:begin]}\n\n{found}\n\n{text[end:]}", encoding="utf-8")

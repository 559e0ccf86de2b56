"""What docs/course-evidence.md has measured: a class of forty hand-ins, and the seconds of each lab's tests.

`python -m tests.course_measured` makes both tables: minutes.  The forty are of lab A1: right, partial, wrong, broken,
endless, copied, and with names that do harm.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from refimpl.report.markdown import put_between

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "course-evidence.md"
SOLUTION = (ROOT / "tutorials" / "solutions" / "a1_liveness.py").read_text(encoding="utf-8")
SKELETON = (ROOT / "tutorials" / "labs" / "a1_liveness.py").read_text(encoding="utf-8")
LIMIT = 60  #: seconds of one submission

#: What stands for a solution's loop over all tensors.
_, _, LOOP = SOLUTION.partition("        releases = slots.Releases()\n")
LOOP = LOOP.partition("        return releases\n")[0]
YOURS = SKELETON[SKELETON.index("        raise NotImplementedError") : SKELETON.index("\n\n\nliveness")]


def bound(*lines: str) -> str:
    """The solution with another loop: a rule for each tensor with its uses."""
    head = "        for tensor, uses in context.uses.items():\n            if uses:\n"
    return SOLUTION.replace(LOOP, head + "".join(f"                {line}\n" for line in lines))


def dead(*lines: str) -> str:
    """The skeleton with its question answered."""
    return SKELETON.replace(YOURS, "\n".join(f"        {line}" for line in lines))


LAST = "releases.add(context.last_use(tensor), tensor)"
FATE = "if tensor in context.fates: releases.add(context.last_forward_use(tensor), tensor)"
RIGHT = "return [t for t, uses in self.context.uses.items() if uses and step.number in ends(self.context, t)]"
ENDS = """

def ends(context, t):
    return {context.last_use(t), context.last_forward_use(t) if t in context.fates else 0}
"""
GRADIENT = "if 'gradient' in tensor.kind:"
OTHER = "releases.add(uses[-1].number, tensor)"
#: Name → text.  The name says what it is.
CLASS: dict[str, str] = {
    "right, the solution": SOLUTION,
    "right, another loop": bound(FATE, LAST),
    "right, asked at every step": dead(RIGHT) + ENDS,
    "right, with a table": dead(
        "if not hasattr(self, 'table'):",
        "    self.table = {}",
        "    for t, uses in self.context.uses.items():",
        "        ends = {self.context.last_use(t)} if uses else set()",
        "        ends |= {self.context.last_forward_use(t)} if t in self.context.fates else set()",
        "        for end in ends: self.table.setdefault(end, []).append(t)",
        "return self.table.get(step.number, [])",
    ),
    "partial, gradients": bound(GRADIENT + " " + LAST),
    "partial, what backward never reads": bound(f"if 'gradient' in tensor.kind or uses[-1].forward: {OTHER}"),
    "partial, last use": bound(OTHER),
    "partial, fates but no rebuilds": bound(FATE, OTHER),
    "partial, rebuilds but no fates": bound(LAST),
    "partial, maps alone": bound(f"if tensor.kind == 'map': {OTHER}"),
    "partial, a step late": bound("releases.add(min(context.last_use(tensor) + 1, 2 * context.network.depth), tensor)"),
    "wrong, after the first use": bound("releases.add(uses[0].number, tensor)"),
    "wrong, all at the turn": bound("releases.add(context.network.depth, tensor)"),
    "wrong, names": dead("return [str(t) for t in step.reads]"),
    "wrong, None": dead("return None"),
    "wrong, a number": dead("return step.number"),
    "wrong, nothing": dead("return []"),
    "wrong, what the step reads": dead("return list(step.reads)"),
    "wrong, other each time": dead(
        "import random", "return [] if random.random() < 0.5 else list(step.reads)[:0]"
    ).replace("return [] if", "return [t for t, u in self.context.uses.items() if u and u[-1] is step] if"),
    "broken, not filled in": SKELETON,
    "broken, syntax": "def (",
    "broken, empty": "",
    "broken, null bytes": "x = 1\0",
    "broken, another name": SOLUTION.replace("liveness = Mine()", "livness = Mine()"),
    "broken, a class": SOLUTION.replace("liveness = Mine()", "liveness = Mine"),
    "broken, no such package": "import nothing_of_that_name\n"
    + SOLUTION.replace("from __future__ import annotations\n", ""),
    "broken, divides by zero": bound("1 / 0"),
    "broken, recursion": dead("return self.dead(step)"),
    "endless, at import": "while True:\n    pass\n",
    "endless, while it plans": dead("while True:", "    pass"),
    "endless, sleeps": "import time\ntime.sleep(1e6)\n",
    "hostile, leaves": "import os\nos._exit(0)\n",
    "hostile, sys.exit": "import sys\nsys.exit(0)\n",
    "hostile, interrupts": "raise KeyboardInterrupt\n",
    "hostile, 64 GiB": "x = bytearray(64 << 30)\n",
    "hostile, prints without end": "while True:\n    print('x' * 10_000)\n",
    "copied, other names": SOLUTION.replace("releases", "gone").replace("tensor", "one"),
    "copied, the project's": "from refimpl.slots.baseline import LayerWise\n\nliveness = LayerWise()\n",
    "copied, a wrapper": SOLUTION.replace("slots.Releases()", "LayerWise().bind(context)\n        return releases")
    + "\n\nfrom refimpl.slots.baseline import LayerWise\n",
    "=HYPERLINK('named to do harm')": SOLUTION,
}


def tested(lab: str, *options: str) -> int:
    """Run a lab's tests."""
    tests = f"tutorials/labs/test_{lab}.py"
    command = [sys.executable, "-m", "pytest", tests, "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def forty() -> list[str]:
    """The table of the class."""
    assert len(CLASS) == 40
    with tempfile.TemporaryDirectory() as folder:
        for name, text in CLASS.items():
            Path(folder, f"{name}.py").write_text(text, encoding="utf-8")
        table = Path(folder) / "marks.csv"
        began = time.monotonic()
        status = tested("a1", "--class", folder, "--csv", str(table), "--limit", str(LIMIT))
        seconds = time.monotonic() - began
        with table.open(encoding="utf-8", newline="") as file:
            rows = [*csv.DictReader(file)]
    lines = [f"{len(rows)} files in {seconds:.0f} s, exit status {status}.", ""]
    lines += ["| hand-in | mark | tests | said | like |", "| --- " * 5 + "|"]
    for row in sorted(rows, key=lambda row: (*CLASS,).index(row["student"].removeprefix("'"))):
        said = row["said"].replace(f"{folder}/", "").replace("|", "¦")
        like = " ".join(one for one in (row["like"], row["like the project"]) if one)
        lines.append(f"| {row['student']} | {row['mark']} | {row['passed']} of {row['tests']} | {said} | {like} |")
    return lines


def seconds() -> list[str]:
    """A row for each lab: processor time of its tests, of the solution and of the file that is there at first."""
    lines = ["| lab | its first file, s | the solution, s |", "| --- " * 3 + "|"]
    for cases in sorted((ROOT / "tutorials" / "labs" / "cases").glob("*.csv")):
        lab, took = cases.stem, []
        for folder in ("labs", "solutions"):
            (file,) = (ROOT / "tutorials" / folder).glob(f"{lab}_*.py")
            before = os.times()
            tested(lab, "--submission", str(file))
            after = os.times()
            took.append(after.children_user + after.children_system - before.children_user - before.children_system)
        lines.append(f"| {lab.capitalize()} | {took[0]:.0f} | {took[1]:.0f} |")
    return lines


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("seconds", seconds), ("forty", forty)):
        text = put_between(text, name, "\n".join(table()))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

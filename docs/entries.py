"""Judges the entries of the challenge, rows of docs/entries/entries.csv, and makes the table of docs/challenge.md.

python docs/entries.py                          makes the table
python docs/entries.py --write                  fills in the rows that have no score; minutes each
python docs/entries.py --write SETUP ...        judges these rows again
python docs/entries.py --check --since COMMIT   judges the rows that are new or changed since, and compares
python docs/entries.py --check                  judges all rows: an hour

An entry runs here, with all that you may do: read its file first.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import date
from io import StringIO
from pathlib import Path

from refimpl.report.markdown import markdown_table, put_between

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "challenge.md"
ENTRIES = "docs/entries"
STORED = f"{ENTRIES}/entries.csv"
SCORES = ("score", "fits", "printed", "drawn", "A6")
COLUMNS = ("by", "setup", *SCORES, "planning, s", "date", "commit")
Row = dict[str, str]


def run(*command: str) -> str:
    """What a command prints; an error ends this one."""
    found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode:
        sys.exit(f"{' '.join(command)}: status {found.returncode}")
    return found.stdout


def rows_of(text: str) -> list[Row]:
    return [*csv.DictReader(StringIO(text))]


def stored() -> list[Row]:
    return rows_of((ROOT / STORED).read_text(encoding="utf-8"))


def store(rows: Iterable[Row]) -> None:
    with (ROOT / STORED).open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(sorted(rows, key=lambda row: (float(row["score"] or "inf"), row["setup"])))


def table() -> str:
    """Every entry, the best first."""
    rows = [[f"`{row[one]}`" if one == "setup" else row[one] for one in COLUMNS] for row in stored()]
    return markdown_table(COLUMNS, rows)


def judged(row: Row) -> Row:
    """The row with its scores on the challenge and in lab A6."""
    (found,) = json.loads(run(sys.executable, "-m", "refimpl", "study", "challenge", row["setup"], "--json"))["scores"]
    whole, printed, drawn = (found[part] for part in ("whole", "printed", "drawn"))
    return row | {
        "score": f"{whole['score']:.3f}",
        "fits": f"{whole['fits'] / whole['points']:.1%}",
        "printed": f"{printed['score']:.3f}",
        "drawn": f"{drawn['score']:.3f}",
        "A6": mark(row["setup"]),
        "planning, s": f"{found['planning_seconds']:.0f}",
        "date": date.today().isoformat(),
        "commit": run("git", "rev-parse", "--short=8", "HEAD").strip(),
    }


def mark(setup: str) -> str:
    """Lab A6's, of a setup that is handed in."""
    with tempfile.TemporaryDirectory() as folder:
        text = f"from refimpl.names.presets import setup as named\n\nsetup = named({setup!r})\n"
        Path(folder, "entry.py").write_text(text, encoding="utf-8")
        marks = Path(folder, "marks.csv")
        run(
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tutorials/labs/test_a6.py",
            f"--class={folder}", f"--csv={marks}", "--limit=1800",
        )  # fmt: skip
        (found,) = rows_of(marks.read_text(encoding="utf-8"))
        return found["mark"]


def file_of(row: Row) -> str:
    """The file that a setup is in; empty for words and presets."""
    found = re.search(r"[\w./-]+\.py(?=:)", row["setup"])
    return found[0] if found else ""


def touched(commit: str) -> list[Row]:
    """The rows that are new or changed since a commit, or whose file is."""
    changed = set(run("git", "diff", "--name-only", commit, "--", "*.py").split())
    before = run("git", "ls-tree", "--name-only", commit, STORED)
    known = rows_of(run("git", "show", f"{commit}:{STORED}")) if before else []
    return [row for row in stored() if row not in known or file_of(row) in changed]


def faults(rows: Sequence[Row]) -> list[str]:
    """What is wrong with the rows: a line each."""
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / ENTRIES).glob("**/*.py")}
    found = [f"{path} is in no row; an entry is one file" for path in sorted(files - {*map(file_of, stored())})]
    for row in rows:
        made = judged(row)
        found += [
            f"{row['setup']}: {one} is {row[one] or 'empty'} in the table, and {made[one]} here"
            for one in SCORES
            if row[one] != made[one]
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setups", metavar="SETUP", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--since", metavar="COMMIT")
    asked = parser.parse_args()
    if asked.check:
        rows = touched(asked.since) if asked.since else stored()
        print("to judge:", ", ".join(row["setup"] for row in rows) or "nothing")
        sys.exit("\n".join(faults(rows)) or 0)
    if unknown := set(asked.setups) - {row["setup"] for row in stored()}:
        parser.error(f"no row has the setup {', '.join(sorted(unknown))}; add one to docs/entries/entries.csv")
    if asked.write:
        for row in stored():
            if row["setup"] in asked.setups or not (asked.setups or row["score"]):
                made = judged(row)
                print(*made.values(), sep="  ")
                store([made if one["setup"] == row["setup"] else one for one in stored()])
    PAGE.write_text(put_between(PAGE.read_text(encoding="utf-8"), "challenge", table()), encoding="utf-8")


if __name__ == "__main__":
    os.environ["REFIMPL_CALIBRATE"] = "0"  # the same plans on every machine
    main()

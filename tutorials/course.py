"""What a student's repository is: python -m tutorials.course DIR [--address URL], or make course DIR=...

The labs with their tests and stored cases, the handouts, a container and a workflow that runs the tests; no solution.
What it needs is in requirements.txt: this package from an index, or a wheel whose path is written there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import refimpl

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "ADDRESS"  #: of this project's pages, where nothing else is known
COPIED = ("*.py", "cases/*.csv")  #: of tutorials/labs

README = """\
# Labs: training networks that do not fit

Begin with [the handouts](tutorials/handouts/README.md). Fill in one file, and ask its tests what comes next:

```
python -m pip install -r requirements.txt
python -m pytest tutorials/labs/test_a1.py -x
```

The tests of a lab go in the order of its handout; the last one is the mark. `--seed NAME` draws other networks and
budgets. A push runs the tests, too (`.github/workflows/labs.yml`).
"""
WORKFLOW = """\
# The tests of each lab; the mark is in the summary of its job.  What counts is the lecturer's own run.
name: labs
on: [push]
permissions:
  contents: read
jobs:
  lab:
    runs-on: ubuntu-latest
    timeout-minutes: 15
    strategy:
      fail-fast: false
      matrix:
        lab: [LABS]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
          cache: pip
          cache-dependency-path: requirements.txt
      - run: python -m pip install -r requirements.txt
      - run: |
          echo '```' >> "$GITHUB_STEP_SUMMARY"
          python -m pytest tutorials/labs/test_${{ matrix.lab }}.py | tee -a "$GITHUB_STEP_SUMMARY"
        shell: bash
"""
DEVCONTAINER = {
    "name": "labs",
    "image": "mcr.microsoft.com/devcontainers/python:3.12",  # with the C compiler that A2's emulated GPU needs
    "postCreateCommand": "python -m pip install -r requirements.txt",
}
PYTEST = '[tool.pytest.ini_options]\npythonpath = ["."]\naddopts = "--import-mode=importlib"\n'


def write(folder: Path, address: str) -> list[Path]:
    """All files, by their paths in the folder."""
    files = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in given()}
    pictures = set[Path]()
    for path in [path for path in files if path.suffix == ".md"]:
        files[path], found = with_links(files[path], path, set(files), address)
        pictures |= found
    labs = ", ".join(sorted(path.stem.removeprefix("test_") for path in files if path.name.startswith("test_")))
    files[Path("README.md")] = README
    files[Path("requirements.txt")] = f"refimpl=={refimpl.__version__}\npytest>=9\n"
    files[Path("pyproject.toml")] = PYTEST
    files[Path(".gitignore")] = "__pycache__/\n.venv/\n.pytest_cache/\n"
    files[Path(".devcontainer/devcontainer.json")] = json.dumps(DEVCONTAINER, indent=4) + "\n"
    files[Path(".github/workflows/labs.yml")] = WORKFLOW.replace("LABS", labs)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", newline="\n")
    for path in pictures:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, folder / path)
    return sorted({*files, *pictures})


def given() -> list[Path]:
    """What students get of this repository."""
    labs = ROOT / "tutorials" / "labs"
    found = [path for pattern in COPIED for path in labs.glob(pattern)]
    return [*found, *(ROOT / "tutorials" / "handouts").glob("*.md"), ROOT / "LICENSE"]


def with_links(text: str, page: Path, files: set[Path], address: str) -> tuple[str, set[Path]]:
    """A page whose links to what is not copied lead to the project's address; and the pictures that it shows."""
    pictures = set[Path]()

    def changed(found: re.Match[str]) -> str:
        mark, label, target, heading = found.groups()
        if re.match(r"\w+:|$", target):
            return found[0]
        path = (ROOT / page.parent / target).resolve().relative_to(ROOT)
        if mark:
            pictures.add(path)
        return found[0] if mark or path in files else f"[{label}]({address}/{path.as_posix()}{heading})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#?[^)\s]*)\)", changed, text), pictures


def remote() -> str:
    """The pages of the repository that this one was cloned from, if it says so."""
    command = ["git", "-C", str(ROOT), "config", "--get", "remote.origin.url"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return f"{found.removesuffix('.git')}/blob/main" if found.startswith("https://") else ADDRESS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path, help="new or empty")
    parser.add_argument(
        "--address", default=remote(), metavar="URL", help="of this project's pages (default: of origin)"
    )
    asked = parser.parse_args()
    if asked.folder.exists() and any(asked.folder.iterdir()):
        sys.exit(f"{asked.folder} is not empty; give a new folder")
    files = write(asked.folder, asked.address)
    print(f"{asked.folder}: {len(files)} files, without solutions")
    if asked.address == ADDRESS:
        print(f"links to the project's pages begin with {ADDRESS}: give --address https://…/blob/main, or replace it")


if __name__ == "__main__":
    main()

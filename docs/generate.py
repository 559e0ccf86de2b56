"""The pages made from the code: the reading path, the table of the kernels and the list of measurements."""

from __future__ import annotations

import re
from pathlib import Path

from refimpl.report import kernels_table as listing
from refimpl.report.markdown import markdown_table

KERNELS = """\
# The kernels

Every kernel there is, as `refimpl list kernels --markdown` prints it: for each file below `kernels/` what it computes,
then its kernels, each with the block of threads that it is always launched with.

"""

MEASUREMENTS = """\
# Measurements

Everything that `refimpl bench --write` has measured and kept, a page for each machine and day.

"""


#: Part → the files to read, in this order; a folder is all of its files.
READING = {
    "vDNN by hand": (
        "refimpl/executor.py", "refimpl/streams.py", "kernels/relu.py", "kernels/conv.py", "kernels/run.py",
        "kernels/copies.py", "refimpl/network/small.py", "refimpl/vdnn", "refimpl/slots/last_consumer.py",
        "refimpl/slots/window.py", "refimpl/slots/context.py", "refimpl/slots/questions.py",
        "refimpl/slots/baseline.py", "refimpl/slots/setup.py", "refimpl/memory/base.py",
    ),
    "what a network is": (
        "refimpl/network/tensor.py", "refimpl/network/call.py", "refimpl/network/layer.py",
        "refimpl/network/kinds.py", "refimpl/network/calls.py",
    ),
    "SuperNeurons": ("refimpl/superneurons", "refimpl/memory/block_heap.py"),
    "vDNN++": (
        "refimpl/vdnnpp/prefetch.py", "refimpl/vdnnpp/offload.py", "refimpl/vdnnpp/pinned.py",
        "refimpl/vdnnpp/presets.py",
    ),
}  # fmt: skip
LINES_A_MINUTE = 22  #: of code that is read for the first time


def reading_path(root: Path) -> str:
    """The path as a table, a row a part: its files, their lines, and the minutes that these take."""
    rows, total = [], 0
    for part, places in READING.items():
        names, lines = [], 0
        for place in places:
            path = root / place
            files = sorted(path.glob("*.py")) if path.is_dir() else [path]
            many = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
            names.append(f"`{place}` {many}")
            lines += many
        rows.append(f"| {part} | {', '.join(names)} | {lines:,} | {round(lines / LINES_A_MINUTE)} |")
        total += lines
    hours = total / LINES_A_MINUTE / 60
    rows.append(f"| **all** | | **{total:,}** | **{hours:.1f} hours** |")
    return "\n".join(
        ["| part | files, in this order, with their lines | lines | minutes |", "| --- " * 4 + "|", *rows, ""]
    )


def measurements_page(folder: Path) -> str:
    """A page that lists what `refimpl bench --write` has kept, the latest first."""
    names = sorted((path.stem for path in folder.glob("*.md")), key=lambda name: name[-10:], reverse=True)
    listed = "\n".join(f"/measurements/{name}" for name in names)
    return f"{MEASUREMENTS}```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n" if names else f"{MEASUREMENTS}None yet.\n"


def tutorial(notebook: str) -> str:
    """A stored notebook with its links to docs/ as they are for a copy in docs/_generated/tutorials/."""
    pages = re.sub(r"\[([^\[\]\n]+)\]\(\.\./docs/(_static/[^)]+)\)", r"<a href='../../\2'>\1</a>", notebook)
    return pages.replace("](../docs/", "](../../")


def kernels_page() -> str:
    return KERNELS + markdown_table(*listing.table(list(listing.rows()))) + "\n"

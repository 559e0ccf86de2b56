"""The pages made from the code: the table of the kernels and the list of measurements."""

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

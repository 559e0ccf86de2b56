"""Shared by the reports of the bench: where and when something was measured, and the way into the documentation."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from refimpl.machine.here import load_average
from refimpl.report.markdown import put_between, slug

BUSY = 0.5  #: a higher load means that other work took the cores


def versions(*packages: str) -> dict[str, str]:
    """Python's version and those of the packages that are installed, by name."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def verdict(met: bool) -> str:
    return "met" if met else "missed"


@dataclass(kw_only=True)
class Report:
    """Where, when and with what something was measured."""

    name: str  #: of the CPU or the GPU
    versions: dict[str, str]
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    load: float = field(default_factory=load_average)  #: processes that wanted a core in the minute before

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)

    @property
    def described(self) -> str:
        """Where, when and with what, as Markdown."""
        used = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"Measured on: **{self.name}**, {self.date} ({used}). {self.disturbed}".strip()

    @property
    def disturbed(self) -> str:
        """A warning if other work took the cores; threads that wait for each other, as BLAS's do, suffer most."""
        if self.load < BUSY:
            return ""
        return f"The machine was busy with other work (load {self.load:.1f}): rates and ratios are not what it can do."

    def write(self, root: Path, prefix: str, full: str, pages: Mapping[Path, str], short: str) -> Iterator[Path]:
        """Write the report into the documentation.

        Args:
            root: the folder that has README.md and docs/.
            prefix: of the name of the two files in docs/measurements, before the device's name and the date.
            full: the page there, Markdown; the JSON beside it is the report itself.
            pages: page below `root` → the name of the two markers there between which `short` is put.
            short: the part for these pages, Markdown.

        Returns:
            The paths written, one after another.
        """
        folder = root / "docs" / "measurements"
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{prefix}{slug(self.name)}-{self.date}"
        for suffix, text in ((".md", full), (".json", self.json())):
            path = folder / (stem + suffix)
            path.write_text(text.rstrip() + "\n", encoding="utf-8")
            yield path
        for page, marker in pages.items():
            path = root / page
            path.write_text(put_between(path.read_text(encoding="utf-8"), marker, short), encoding="utf-8")
            yield path

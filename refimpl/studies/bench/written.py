"""Shared by the reports of the bench: where and when something was measured, and the way into the documentation."""

from __future__ import annotations

import datetime
import json
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar

from refimpl.files import replace_text
from refimpl.machine.here import load_average, processor
from refimpl.report.markdown import paragraph, put_between, slug, write_measurement
from refimpl.report.tables import Table

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
class Report(ABC):
    """Where, when and with what something was measured; and its tables, for a terminal and for the documentation."""

    title: ClassVar[str]  #: of its page in docs/measurements
    option: ClassVar[str] = ""  #: of `refimpl bench`, for which its two files there and its markers are named
    page: ClassVar[str]  #: another page, which has its tables between two markers

    name: str = field(default_factory=processor)  #: of the CPU or the GPU
    versions: dict[str, str]
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    load: float = field(default_factory=load_average)  #: processes that wanted a core in the minute before

    @abstractmethod
    def tables(self) -> list[Table]:
        """The figures, and the targets beside them."""

    @property
    @abstractmethod
    def how(self) -> str:
        """How the figures were measured, in a sentence."""

    @property
    def pages(self) -> Mapping[str, str]:
        """Page → the name of the two markers there."""
        return {self.page: f"bench {self.option}"}

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

    def short(self) -> str:
        """The part for the documentation's pages, Markdown."""
        where = f"{self.described} {self.how}"
        return "\n\n".join([paragraph(where), *(table.markdown() for table in self.tables())])

    def full(self) -> str:
        """The page in docs/measurements, Markdown."""
        made = f"Made by `refimpl bench {f'--{self.option} ' * bool(self.option)}--write`. {self.how}"
        tables = [f"## {table.title}\n\n{table.markdown()}" for table in self.tables()]
        return "\n\n".join([f"# {self.title}: {self.name}, {self.date}", self.described, made, *tables])

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)

    def write(self, root: Path) -> Iterator[Path]:
        """Write the report into docs/measurements and into the pages below `root`; the paths, one after another."""
        stem = "-".join(filter(None, (self.option, slug(self.name), self.date)))
        yield from write_measurement(root, stem, self.full(), asdict(self))
        for page, marker in self.pages.items():
            path = root / page
            replace_text(path, put_between(path.read_text(encoding="utf-8"), marker, self.short()))
            yield path

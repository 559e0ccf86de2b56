"""The bench's tables, for a terminal and as Markdown, and where they are written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from refimpl.bench.kernels import Report, Result
from refimpl.report.markdown import markdown_table, put_between, slug


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rivals_of(results: Sequence[Result]) -> list[str]:
    """Names of the columns beside ours, in the order in which they first appear."""
    return list(dict.fromkeys(name for r in results for name in r.beside))


def rows(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table: our rate, and each rival's with ours over theirs in brackets."""
    names = rivals_of(results)
    table = []
    for r in results:
        cells = [f"{number(r.beside[n])} ({number(r.ratio[n])})" if n in r.beside else "" for n in names]
        table.append([r.family, r.label, r.size, f"{number(r.ours)} {r.unit}", *cells])
    return ["family", "what", "size", "here", *names], table


def target_rows(report: Report) -> tuple[list[str], list[list[str]]]:
    table = []
    for t in report.targets:
        measured = "" if t["measured"] is None else number(t["measured"])
        table.append([t["what"], f"{t['target']:g} {t['unit']}", measured, t["verdict"]])
    return ["target", "asked", "measured", ""], table


def described(report: Report) -> str:
    """One sentence: where, when, with what."""
    with_ = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"Measured on: **{report.name}**, {report.date} ({with_}). {disturbed(report)}".strip()


def disturbed(report: Report) -> str:
    """A warning where other work took the cores: two threads that wait for each other suffer most, BLAS's above all."""
    if report.load < 0.5:
        return ""
    return f"The machine was busy with other work (load {report.load:.1f}): rates and ratios are not what it can do."


LEGEND = "In brackets: our rate over theirs, so 1 is as fast, 0.5 half as fast."


def full_markdown(report: Report) -> str:
    parts = [f"# {report.name}, {report.date}", described(report), f"Made by `refimpl bench --write`. {LEGEND}"]
    if report.targets:
        parts += [f"## Targets ({report.targets_note})", markdown_table(*target_rows(report))]
    for family in dict.fromkeys(r.family for r in report.results):
        chosen = [r for r in report.results if r.family == family]
        parts += [f"## {family}", markdown_table(*rows(chosen))]
    return "\n\n".join(parts) + "\n"


def short_markdown(report: Report) -> str:
    chosen = [r for r in report.results if r.headline]
    parts = [described(report), markdown_table(*rows(chosen)), LEGEND]
    if report.targets:
        parts += [f"Targets, {report.targets_note}:", markdown_table(*target_rows(report))]
    return "\n\n".join(parts)


# -- written down ------------------------------------------------------------------------------------------------------


def write(report: Report, root: Path) -> Iterator[Path]:
    """The full table as Markdown and JSON, and the short one between the markers of README and documentation."""
    folder = root / "docs" / "measurements"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{slug(report.name)}-{report.date}"
    for suffix, text in ((".md", full_markdown(report)), (".json", report.json() + "\n")):
        path = folder / (stem + suffix)
        path.write_text(text, encoding="utf-8")
        yield path
    page = root / "docs" / ("on-a-gpu.md" if report.device == "gpu" else "speed.md")
    for path in (root / "README.md", page):
        text = path.read_text(encoding="utf-8")
        path.write_text(put_between(text, f"bench {report.device}", short_markdown(report)), encoding="utf-8")
        yield path

"""The kernels' report as tables, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from refimpl.bench.kernels import Report, Result
from refimpl.report.markdown import markdown_table

Table = tuple[list[str], list[list[str]]]  #: head and rows
LEGEND = "In brackets: our rate over theirs, so 1 is as fast, 0.5 half as fast."


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rows(results: Sequence[Result]) -> Table:
    """A row a result: our rate, and each rival's with ours over theirs in brackets."""
    names = list(dict.fromkeys(name for r in results for name in r.beside))
    table = []
    for r in results:
        cells = [f"{number(r.beside[n])} ({number(r.ratio[n])})" if n in r.beside else "" for n in names]
        table.append([r.family, r.label, r.size, f"{number(r.ours)} {r.unit}", *cells])
    return ["family", "what", "size", "here", *names], table


def target_rows(report: Report) -> Table:
    table = []
    for t in report.targets:
        measured = "" if t["measured"] is None else number(t["measured"])
        table.append([t["what"], f"{t['target']:g} {t['unit']}", measured, t["verdict"]])
    return ["target", "asked", "measured", ""], table


def full_markdown(report: Report) -> str:
    parts = [f"# {report.name}, {report.date}", report.described, f"Made by `refimpl bench --write`. {LEGEND}"]
    if report.targets:
        parts += [f"## Targets ({report.targets_note})", markdown_table(*target_rows(report))]
    for family in dict.fromkeys(r.family for r in report.results):
        parts += [f"## {family}", markdown_table(*rows([r for r in report.results if r.family == family]))]
    return "\n\n".join(parts)


def short_markdown(report: Report) -> str:
    parts = [report.described, markdown_table(*rows([r for r in report.results if r.headline])), LEGEND]
    if report.targets:
        parts += [f"Targets, {report.targets_note}:", markdown_table(*target_rows(report))]
    return "\n\n".join(parts)


def write(report: Report, root: Path) -> Iterator[Path]:
    """The full table as Markdown and JSON, and the short one between the markers of the documentation's page."""
    page = Path("docs", "on-a-gpu.md" if report.device == "gpu" else "speed.md")
    shown = (Path("README.md"), page) if report.device == "gpu" else (page,)  # README says what ran on a GPU
    pages = dict.fromkeys(shown, f"bench {report.device}")
    return report.write(root, "", full_markdown(report), pages, short_markdown(report))

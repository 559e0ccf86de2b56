"""`refimpl reproduce`: published figures beside ours, of one paper part by part, or of all; with `--run`, measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import refimpl
from refimpl.cli import shared_options
from refimpl.cli.parser import DONE, Fail, Parser, pick, whole
from refimpl.cli.picture_option import checked, save
from refimpl.cli.terminal import print_json, progress, say, show_table, tell
from refimpl.files import replace_text
from refimpl.machine import here
from refimpl.names.machines import named as machine
from refimpl.report.markdown import put_between
from refimpl.studies.reproduce import PAPERS, Paper
from refimpl.studies.reproduce.evaluation import Part, Tally, published_table, reproduced_json, summary_table, to_json
from refimpl.studies.reproduce.published import Found, Reproduced

ALL = "all"
MACHINES = "machines"  #: the models of GPUs, beside what others measured; and the markers in docs/simulate.md
SUMMARY = "reproduce all"  #: the markers around the summary in docs/fidelity.md


def add(parser: Parser) -> None:
    parser.describe(
        "A paper's published figures beside ours, each with its source; a missed one is shown as missed.  And the "
        "parts of its evaluation that need no GPU, planned and simulated on a model of the paper's.  With `all`: the "
        "published figures of all papers, and how many of them are met.  With `machines`: the times and "
        "the memory of networks and convolutions that others measured on GPUs, beside ours.",
        [
            "refimpl reproduce all", "refimpl reproduce machines", "refimpl reproduce machines --only fit",
            "refimpl reproduce vdnn",
            "refimpl reproduce vdnn --picture vdnn.png --json > vdnn.json",
            "refimpl reproduce superneurons --picture superneurons.png",
            "refimpl reproduce superneurons --only curve --only recompute",
            "refimpl reproduce vdnnpp --only speed --picture vdnnpp.svg",
            "refimpl reproduce accudnn --only prefetch",
            *(f"refimpl reproduce {name} --run {paper.small}" for name, paper in PAPERS.items()),
        ],
    )  # fmt: skip
    names = (*PAPERS, ALL, MACHINES)
    parser.add_argument("paper", choices=names, metavar="PAPER", help="which: " + ", ".join(names))
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART",
        help="a part of the evaluation alone, as in networks; repeatable; a wrong name is answered with all of them",
    )  # fmt: skip
    parser.add_argument(
        "--picture", metavar="FILE",
        help="draw it into a .png or .svg file; where several parts are drawn, each name ends in its part's",
    )  # fmt: skip
    real = parser.add_argument_group("run it", "train within a budget and without one, on the device at hand")
    real.add_argument("--run", action="store_true", dest="really", help="measure instead of simulating")
    trains = "; ".join(f"{name}: {paper.trains}" for name, paper in PAPERS.items())
    real.add_argument("--network", metavar="NAME", help=f"default on a GPU: {trains}")
    real.add_argument("--batch", type=whole(), metavar="N", help="images in a batch")
    policies = ", ".join(f"{name}: {paper.policy}" for name, paper in PAPERS.items())
    real.add_argument("--policy", metavar="PRESET", help=f"default: {policies}")
    real.add_argument("--budget", default="12GiB", metavar="SIZE", help="default: 12GiB")
    real.add_argument("--iterations", type=whole(), default=5, metavar="N", help="timed ones (default: 5)")
    real.add_argument(
        "--write", action="store_true",
        help="write the measurement into docs/measurements; of all papers, the summary into docs/fidelity.md; of "
        "machines, the tables into docs/simulate.md and docs/fidelity.md",
    )  # fmt: skip
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    if options.paper == ALL:
        return everything(options)
    if options.paper == MACHINES:
        return machines(options)
    paper = PAPERS[options.paper]
    if options.really:
        if options.only or options.picture:
            raise Fail("--only and --picture belong to the figures, and --run measures; give one of them")
        return measure(options, paper)
    for option in ("network", "batch", "policy", "write"):
        if getattr(options, option):
            raise Fail(f"--{option} belongs to --run, which trains on the device at hand")
    parts = chosen(paper, options.only)
    files = pictures(parts, checked(options.picture))
    figures: list[Reproduced] = []
    document: dict[str, Any] = {"paper": options.paper, "published": []}
    for part in parts:
        with progress(part.name, part.rounds) as advance:
            found = part.find(advance)
        figures += found.figures
        if part.name in files and part.picture:
            save(part.picture(found.rows), files[part.name])
        if options.json:
            document["published"] += [reproduced_json(figure) for figure in found.figures]
            if found.rows:
                document[part.name] = [part.document(row) for row in found.rows]
        else:
            show_part(paper.title if len(parts) == 1 or not part.tables else f"{paper.title}, {part.name}", part, found)
    if options.json:
        print_json(document)
        return DONE
    if figures:
        say(Tally.of(paper.title, figures).lines())
    for file in files.values():
        say(f"Picture: {file}")
    return DONE


def everything(options: argparse.Namespace) -> int:
    """Every paper's published figures beside ours, and how many are met."""
    of_one_paper(options, "only", "picture", "really", "network", "batch", "policy")
    found: dict[str, list[Reproduced]] = {name: [] for name in PAPERS}
    units: dict[str, dict[str, None]] = {name: {} for name in PAPERS}
    for name, paper in PAPERS.items():
        for part in paper.parts().values():
            if part.beside:
                with progress(f"{paper.title}, {part.name}", part.rounds) as advance:
                    found[name] += part.find(advance).figures
                units[name][part.units] = None
    tallies = [Tally.of(PAPERS[name].title, figures) for name, figures in found.items()]
    tallies.append(Tally.of(ALL, [figure for figures in found.values() for figure in figures]))
    if options.write:
        page = root() / "docs" / "fidelity.md"
        summary = summary_table(tallies).markdown()
        replace_text(page, put_between(page.read_text(encoding="utf-8"), SUMMARY, summary))
        tell(f"written: {page}")
    if options.json:
        papers = [{"paper": name, "published": [*map(reproduced_json, figures)]} for name, figures in found.items()]
        print_json({"papers": papers, "summary": to_json(tallies)})
        return DONE
    for name, figures in found.items():
        show_table(published_table(PAPERS[name].title, figures, "  ".join(filter(None, units[name]))))
        say("")
    show_table(summary_table(tallies))
    return DONE


def machines(options: argparse.Namespace) -> int:
    """What others measured on GPUs, beside the models of these."""
    from refimpl.studies.reproduce.machines.figures import PAGES, PARTS

    of_one_paper(options, "picture", "really", "network", "batch", "policy")
    for name in options.only:
        pick(name, PARTS, "part")
    wanted = [name for name in PARTS if name in (options.only or PAGES)]
    pages = {PAGES[part]: [one for one, page in PAGES.items() if page == PAGES[part]]
             for part in wanted if options.write and part in PAGES}  # fmt: skip
    for written in pages.values():
        if not {*written} <= {*wanted}:
            raise Fail(f"--write writes all parts of a page; give --only {' --only '.join(written)}, or none")
    made = {name: PARTS[name]() for name in wanted}
    tables = [table for of_part in made.values() for table in of_part]
    for name, written in pages.items():
        page = root() / "docs" / name
        text = "\n\n".join(
            f"{table.title}:\n\n{table.markdown()}" + (f"\n\n{table.note}" if table.note else "")
            for part in written
            for table in made[part]
        )
        replace_text(page, put_between(page.read_text(encoding="utf-8"), f"reproduce {MACHINES}", text))
        tell(f"written: {page}")
    if options.json:
        print_json({table.title: [dict(zip(table.head, row, strict=True)) for row in table.rows] for table in tables})
        return DONE
    for table in tables:
        show_table(table)
        say("")
    return DONE


def of_one_paper(options: argparse.Namespace, *given: str) -> None:
    """Refuse options that only one paper's evaluation has."""
    for option in given:
        if getattr(options, option):
            word = "run" if option == "really" else option
            raise Fail(f"--{word} belongs to one paper: {', '.join(PAPERS)}")


def root() -> Path:
    """The project's folder, with docs in it."""
    return Path(refimpl.__file__).resolve().parent.parent


def show_part(title: str, part: Part, found: Found) -> None:
    """A part's published figures, then its own tables."""
    published = [published_table(title, found.figures, part.units)] if found.figures else []
    for table in [*published, *(part.tables(found.rows) if part.tables else [])]:
        show_table(table)
        say("")


def chosen(paper: Paper, only: Sequence[str]) -> list[Part]:
    """The parts named in `only`, in the evaluation's order; all of them by default."""
    parts = paper.parts()
    for name in only:
        pick(name, parts, "part")
    return [part for part in parts.values() if not only or part.name in only]


def pictures(parts: Sequence[Part], path: Path | None) -> dict[str, Path]:
    """Part → the file of its picture: the named one; of several, each name ends in its part's."""
    drawn = [part.name for part in parts if part.picture]
    if path is None:
        return {}
    if not drawn:
        raise Fail(f"--picture {path}: there is no picture of {', '.join(part.name for part in parts)}")
    if len(drawn) == 1:
        return {drawn[0]: path}
    return {name: path.with_name(f"{path.stem}-{name}{path.suffix}") for name in drawn}


# -- measured on the device at hand ------------------------------------------------------------------------------------


def backend_at_hand(options: argparse.Namespace, paper: Paper) -> Literal["cuda", "cpu"]:
    """The backend of `--run`; refused at once where it would take for ever, or could not be timed."""
    gpu = here.gpu_at_hand()
    if not gpu and options.network is None:
        raise Fail(f"no GPU here; a small network runs on the CPU: {paper.small}")
    return "cuda" if gpu else "cpu"


def measure(options: argparse.Namespace, paper: Paper) -> int:
    """Measure the paper's claims: tables, and notes on everything that could not be measured."""
    backend = backend_at_hand(options, paper)
    from refimpl.studies.reproduce.measured import Request

    module, policy = paper.measured(), options.policy or paper.policy
    with progress("", module.rounds(backend, options.iterations)) as advance:
        request = Request(
            options.network, options.batch, policy, machine("here"), options.budget, backend, options.iterations,
            advance,
        )  # fmt: skip
        found = module.measure(request)
    if options.json:
        print_json(to_json(found))
    else:
        say(f"{paper.title}, measured on {found.device}")
        for table in found.tables():
            show_table(table)
        for note in found.notes():
            say(note)
    if options.write:
        for path in found.write(root(), options.paper, paper.title):
            tell(f"written: {path}")
    return DONE

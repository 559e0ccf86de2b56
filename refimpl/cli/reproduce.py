"""`refimpl reproduce`: a paper's published figures beside ours, part by part of its evaluation.

A paper is an entry in `PAPERS`: where the parts of its evaluation lie (`refimpl.reproduce.evaluation.Part`), and what
`--run` measures on the device at hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from refimpl.cli.arguments import DONE, Fail, add_command, completed_by, pick
from refimpl.cli.lists import print_json
from refimpl.cli.options import add_json
from refimpl.cli.pictures import checked, save
from refimpl.cli.terminal import progress, say, show, show_table

if TYPE_CHECKING:
    from refimpl.reproduce.evaluation import Part
    from refimpl.reproduce.published import Reproduced


@dataclass(frozen=True)
class Paper:
    """A paper as the command knows it."""

    title: str
    evaluation: str  #: the module with its PARTS, imported when the paper is asked for
    measure: Callable[[argparse.Namespace, Paper], int]  #: what `--run` does; returns the exit status
    trains: str  #: what `--run` trains on a GPU where nobody names a network,
    policy: str  #: and the preset
    small: str  #: options with which `--run` takes a minute on a CPU

    def parts(self) -> dict[str, Part]:
        """Its evaluation's parts, by name."""
        return {part.name: part for part in import_module(self.evaluation).PARTS}


def add(commands: Any) -> None:
    parser = add_command(
        commands, "reproduce", "a paper's figures beside ours",
        "A paper's published figures beside ours, each with its source; what is missed is shown as missed.  And what "
        "its evaluation shows of its networks, planned and simulated on the paper's GPU.",
        [
            "refimpl reproduce vdnn", "refimpl reproduce vdnn --picture vdnn.png --json > vdnn.json",
            "refimpl reproduce superneurons --picture superneurons.png",
            "refimpl reproduce superneurons --only curve --only recompute",
            "refimpl reproduce vdnnpp --only speed --picture vdnnpp.svg",
            *(f"refimpl reproduce {name} --run {paper.small}" for name, paper in PAPERS.items()),
        ],
    )  # fmt: skip
    parser.add_argument("paper", choices=tuple(PAPERS), metavar="PAPER", help="which: " + ", ".join(PAPERS))
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART",
        help="a part of the evaluation alone, as in networks; repeatable; a wrong name is answered with all of them",
    )  # fmt: skip
    picture = parser.add_argument(
        "--picture", metavar="FILE",
        help="draw it into a .png or .svg file; where several parts are drawn, each name gets its part's behind it",
    )  # fmt: skip
    completed_by(picture, "files")
    real = parser.add_argument_group("run it", "train within a budget and without one, on the device at hand")
    real.add_argument("--run", action="store_true", dest="really", help="measure instead of simulating")
    trains = "; ".join(f"{name}: {paper.trains}" for name, paper in PAPERS.items())
    completed_by(real.add_argument("--network", metavar="NAME", help=f"default on a GPU: {trains}"), "networks")
    real.add_argument("--batch", type=int, metavar="N", help="images in a batch")
    policies = ", ".join(f"{name}: {paper.policy}" for name, paper in PAPERS.items())
    completed_by(real.add_argument("--policy", metavar="PRESET", help=f"default: {policies}"), "presets")
    real.add_argument("--budget", default="12GiB", metavar="SIZE", help="default: 12GiB")
    real.add_argument("--iterations", type=int, default=5, metavar="N", help="timed ones (default: 5)")
    real.add_argument("--write", action="store_true", help="write the measurement into docs/measurements")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    paper = PAPERS[options.paper]
    if options.really:
        if options.only or options.picture:
            raise Fail("--only and --picture belong to the figures, and --run measures; give one of them")
        return paper.measure(options, paper)
    for option in ("network", "batch", "policy", "write"):
        if getattr(options, option):
            raise Fail(f"--{option} belongs to --run, which trains on the device at hand")
    parts = chosen(paper.parts(), options.only)
    files = pictures(parts, checked(options.picture))

    met: list[bool] = []
    document: dict[str, Any] = {"paper": options.paper, "published": []}
    for part in parts:
        with progress(part.name, part.rounds) as advance:
            found = part.find(advance)
        met += [figure.met for figure in found.figures]
        if part.name in files and part.picture:
            save(part.picture(found.rows), files[part.name])
        if options.json:
            document["published"] += [compared(figure) for figure in found.figures]
            if found.rows:
                document[part.name] = [plain(row) for row in found.rows]
        else:
            show_part(paper.title if len(parts) == 1 or not part.tables else f"{paper.title}, {part.name}", part, found)
    if options.json:
        print_json(document)
        return DONE
    if met:
        say(f"Published figures: {sum(met)} of {len(met)} met.")
    for file in files.values():
        say(f"Picture: {file}")
    return DONE


def compared(figure: Reproduced) -> dict[str, Any]:
    """A published figure and ours for JSON, which has no number for how far anything is from a published 0."""
    ours = {"ours": figure.ours, "deviation": figure.deviation, "met": figure.met, "note": figure.note}
    return asdict(figure.published) | ours | ({"deviation": None} if isinf(figure.deviation) else {})


def plain(row: Any) -> dict[str, Any]:
    """A row for JSON: its fields, and what it calculates from them."""
    calculated = [name for name, member in vars(type(row)).items() if isinstance(member, property)]
    return asdict(row) | {name: getattr(row, name) for name in calculated}


def show_part(title: str, part: Part, found: Any) -> None:
    """A part's published figures, then its own tables."""
    from refimpl.reproduce.evaluation import published_table

    if found.figures:
        show_table(published_table(title, found.figures))
        say("")
    for table in part.tables(found.rows) if part.tables else ():
        show_table(table)
        say("")


def chosen(parts: dict[str, Part], only: Sequence[str]) -> list[Part]:
    """The parts that are asked for, in the evaluation's order; all where nobody asks."""
    for name in only:
        pick(name, parts, "part")
    return [part for part in parts.values() if not only or part.name in only]


def pictures(parts: Sequence[Part], path: Path | None) -> dict[str, Path]:
    """Part → the file of its picture: the one that was named; of several, each with its part's name behind it."""
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
    """Where `--run` trains; refused at once where it would take for ever, or could not be timed."""
    from refimpl.registry.planning import gpu_at_hand

    gpu = gpu_at_hand()
    if not gpu and options.network is None:
        raise Fail(f"no GPU here; a small network runs on the CPU: {paper.small}")
    if options.iterations < 1:
        raise Fail(f"--iterations {options.iterations}: give at least 1")
    return "cuda" if gpu else "cpu"


def written(paths: Iterable[Path]) -> None:
    """Say what a measurement was written into."""
    for path in paths:
        print(f"written: {path}", file=sys.stderr)


def root() -> Path:
    """The folder of the project, with docs/measurements in it."""
    import refimpl

    return Path(refimpl.__file__).resolve().parent.parent


def trained(options: argparse.Namespace, paper: Paper, network: str, batch: int) -> int:
    """The policy within a budget, beside the same kernels without one; by default so many images of this network."""
    from refimpl.machine import machine as machine_named
    from refimpl.network.zoo import build
    from refimpl.registry import presets
    from refimpl.registry.planning import budget_bytes

    backend = backend_at_hand(options, paper)
    built = build(options.network or network, options.batch or (None if options.network else batch))
    machine = machine_named("here")
    budget = budget_bytes(options.budget, built, machine)
    from refimpl.reproduce import measured

    with progress("", 2 * options.iterations) as advance:
        policy = presets.setup(options.policy or paper.policy)
        found = measured.compare(built, policy, machine, budget, backend, options.iterations, advance)
    if options.json:
        print(found.json())
    else:
        show(
            f"{built.name}({built.batch}), {found.device}: {paper.title} within a budget, and without",
            *measured.table(found),
        )
    if options.write:
        written(measured.write(found, root(), options.paper, paper.title))
    return DONE


def studied(options: argparse.Namespace, paper: Paper, module: str) -> int:
    """What a paper claims, measured by a module of its own: its tables, and notes on what could not be measured."""
    from refimpl.machine import machine as machine_named

    backend = backend_at_hand(options, paper)
    measured = import_module(module)
    policy, machine = options.policy or paper.policy, machine_named("here")
    with progress("", measured.steps(backend, options.iterations)) as advance:
        found = measured.measure(
            options.network, options.batch, policy, machine, options.budget, backend, options.iterations, advance
        )
    if options.json:
        print(found.json())
    else:
        for title, head, rows in found.tables():
            show(f"{found.device}: {title}", head, rows)
        for note in found.notes():
            say(note)
    if options.write:
        written(measured.write(found, root()))
    return DONE


#: Every paper: its name on the command line → its entry.
PAPERS = {
    "vdnn": Paper(
        title="vDNN",
        evaluation="refimpl.reproduce.vdnn.evaluation",
        measure=partial(trained, network="vgg16", batch=256),
        trains="256 images of vgg16",
        policy="vdnn-dyn",
        small="--network tiny-vgg --batch 64 --budget 8MiB",
    ),
    "vdnnpp": Paper(
        title="vDNN++",
        evaluation="refimpl.reproduce.vdnnpp.evaluation",
        measure=partial(studied, module="refimpl.reproduce.vdnnpp.measured"),
        trains="128 images of vgg16:vdnnpp",
        policy="vdnnpp-all",
        small="--network tiny-vgg:vdnnpp --batch 64 --budget 12MiB",
    ),
    "superneurons": Paper(
        title="SuperNeurons",
        evaluation="refimpl.reproduce.superneurons.evaluation",
        measure=partial(studied, module="refimpl.reproduce.superneurons.measured"),
        trains="resnet50:superneurons for the heap, alexnet:superneurons for the rest",
        policy="superneurons",
        small="--network tiny-resnet --batch 64 --budget 16MiB",
    ),
}

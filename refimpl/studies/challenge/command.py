"""`refimpl study challenge`: a setup on a fixed set of points, beside the best that is known of each."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from refimpl.cli.parser import DONE, Fail, Parser, real, whole
from refimpl.cli.terminal import print_json, say, show_table, waiting
from refimpl.names import presets
from refimpl.names.presets import NEIGHBOURS, PRESETS
from refimpl.points.many_plans import Row
from refimpl.studies.challenge.entry import EntryQuestion, beats, entered, prove, save
from refimpl.studies.challenge.point_set import ChallengePoint, as_json, drawn, printed, version
from refimpl.studies.challenge.score import MOST, Score, by_network, plain, score, table
from refimpl.studies.grid.many_points import add as add_many_points
from refimpl.studies.grid.many_points import planned
from refimpl.text import counted, duration

QUICK = "combined effort=60"  #: of the preset that searches, where no setup is named: its own effort takes much longer
SHOWN = 20  #: points that are named, at most


def add(parser: Parser) -> None:
    parser.describe(
        "Plan about 200 points with each SETUP, prove every program, and say how far it is from the best that is "
        "known.  Two thirds of the points are fixed, a third follows from --seed.  SETUP is a preset, slot=module "
        "words, or a setup in a file of your own.  All times are simulated.",
        [
            "refimpl study challenge my_modules.py:SETUP",
            "refimpl study challenge superneurons 'vdnn-all allocator=first-fit' --out rows.jsonl",
            "refimpl study challenge my_modules.py:SETUP --save better",
            "refimpl study challenge --submit better/lenet-1024-titan-x-58720256.json",
        ],
    )
    parser.add_argument(
        "setups", metavar="SETUP", nargs="*", help=f"what is entered (default: every preset and neighbour, {QUICK})"
    )
    parser.add_argument("--seed", type=whole(0), default=1, metavar="N", help="of the drawn third (default: 1)")
    parser.add_argument("--limit", type=real(above=0), default=60.0, metavar="S",
                        help="processor seconds of a plan, which else counts as no fit (default: 60)")  # fmt: skip
    parser.add_argument("--save", metavar="FOLDER", help="write the programs that are better than the best known")
    parser.add_argument("--submit", metavar="FILE", action="append", help="prove such a program; repeatable")
    add_many_points(parser)


def run(options: argparse.Namespace) -> int:
    if options.submit:
        return submit(options)
    setups = list(dict.fromkeys(options.setups)) or [
        QUICK if name == "combined" else name for name in (*PRESETS, *NEIGHBOURS)
    ]
    for setup in setups:
        presets.setup(setup)  # a slip is a line here, and not a row for each point
    with waiting("drawing points"):
        cases = [*printed(), *drawn(options.seed)]
    pairs = pairs_of(options, cases, setups)
    scores = [score(setup, pairs[setup]) for setup in setups]
    if options.json:
        print_json({"set": version(), "seed": options.seed, "scores": [
            plain(one) | {"points": [as_json(case) | row for case, row in pairs[one.setup]]} for one in scores
        ]})  # fmt: skip
        return DONE
    show_table(table(scores, options.seed))
    if len(setups) == 1:
        say("")
        show_table(by_network(pairs[setups[0]]))
    for one in scores:
        tell_of(one, pairs[one.setup], options.save)
    return DONE


def pairs_of(
    options: argparse.Namespace, cases: list[ChallengePoint], setups: list[str]
) -> dict[str, list[tuple[ChallengePoint, Row]]]:
    """Setup → the points, each with its row."""
    wanted = {case.point(setup): case for case in cases for setup in setups}
    keep = None
    if options.save:
        Path(options.save).mkdir(parents=True, exist_ok=True)
        keep = partial(save, Path(options.save), wanted)
    questions = [EntryQuestion(point, options.limit, options.save) for point in wanted]
    rows = planned(options, questions, partial(entered, keep=keep))
    found: dict[str, list[tuple[ChallengePoint, Row]]] = {setup: [] for setup in setups}
    for (point, case), row in zip(wanted.items(), rows, strict=True):
        found[point.setup].append((case, row))
    return found


def tell_of(one: Score, pairs: list[tuple[ChallengePoint, Row]], folder: str | None) -> None:
    """What went wrong, and what is better than what was known."""
    refused = dict.fromkeys(row["why"] for _, row in pairs if row["fits"] is None)
    for why in [*refused][:SHOWN]:
        say(f"{one.setup}: {why}")
    for case, row in one.better[:SHOWN]:
        assert case.best is not None
        gain = 1 - row["seconds"] / case.best.seconds
        say(f"{one.setup} beats {case.best.by} by {gain:.2%}: {case}, {duration(row['seconds'])}")
    if one.better:
        where = f"in {folder}" if folder else "with --save FOLDER"
        say(f"{counted(len(one.better), 'program')} better than the best known; files to enter {where}.")


def submit(options: argparse.Namespace) -> int:
    """Files that are proved, each beside the best that was known."""
    if options.setups:
        raise Fail(f"--submit proves files; leave out {' '.join(options.setups)}")
    found = []
    for path in options.submit:
        case, made = prove(path, printed())
        assert case.best is not None
        better = beats(made.seconds, case.best.seconds)
        counts = min(MOST, made.seconds / (case.reference or made.seconds))
        found.append(as_json(case) | made._asdict() | {"better": better})
        if not options.json:
            says = f"better than {case.best.by}'s" if better else f"not better than {case.best.by}'s"
            say(f"{path}: proved; {case}: {duration(made.seconds)}, counts {counts:.4f}, {says} "
                f"{duration(case.best.seconds)}")  # fmt: skip
            if better:
                say(f"Its line in set.json: {json.dumps(as_json(case._replace(best=made)))}")
    if options.json:
        print_json(found)
    return DONE

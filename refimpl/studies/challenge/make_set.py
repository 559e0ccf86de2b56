"""Makes and updates the printed points: what `set.json` holds is written here, and by hand nothing.

    python -m refimpl.studies.challenge.make_set --draw             new points, those on which quick setups differ
    python -m refimpl.studies.challenge.make_set --bounds S         a proved bound of each small network (HiGHS)
    python -m refimpl.studies.challenge.make_set --rows FILE        the fastest of the rows that --out has kept
    python -m refimpl.studies.challenge.make_set --entry FILE       an entry as `refimpl challenge --save` writes it

A set with other points, bounds or best programs is another version: scores are compared within one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from kernels.targets.cpu.threads import cores
from refimpl.files import replace_text
from refimpl.names.machines import named
from refimpl.points import workers
from refimpl.points.many_plans import read
from refimpl.studies.challenge.entry import entered
from refimpl.studies.challenge.entry_file import beats, prove
from refimpl.studies.challenge.point_set import (
    DRAWN,
    FILE,
    FORMAT,
    BestKnown,
    ChallengePoint,
    as_json,
    document,
    drawn,
    printed,
)  # fmt: skip
from refimpl.studies.challenge.score import MOST
from refimpl.studies.grid.grid import study
from refimpl.studies.grid.rows import network_of
from refimpl.studies.optimum.bound import lower_bound
from refimpl.text import counted

PANEL = ("vdnn-all", "vdnn-dyn", "vdnnpp-dyn", "superneurons", "superneurons-recompute", "accudnn")
DIFFER = 1.05  #: the slowest of the panel over the fastest, at least; one that does not fit counts as the slowest
FLOOR = 1.001  #: the second fastest over the baseline with memory enough, at least: elsewhere little is left to win
SMALL = 60  #: layers: larger networks have no bound, whose programme would take too long to solve


def draw(out: str | None) -> list[ChallengePoint]:
    """The printed points: the first of a seed's on which the panel differs, as many of each network as they come."""
    offered = drawn("printed", 4 * DRAWN)
    rows = study(wanted=[case.point(setup) for case in offered for setup in PANEL], jobs=cores(), work=entered, out=out)
    kept = []
    for place, case in enumerate(offered):
        found = rows[place * len(PANEL) : (place + 1) * len(PANEL)]
        factors = sorted(one["slow_down"] if one["fits"] else MOST for one in found)
        if factors[-1] >= DIFFER * factors[0] and factors[0] < MOST and factors[1] >= FLOOR:
            kept.append(case)
    step = len(kept) / (2 * DRAWN)  # evenly over the networks, which come one after another
    return [kept[int(number * step)] for number in range(2 * DRAWN)] if step >= 1 else kept


def bound_of(case: ChallengePoint, limit: float) -> ChallengePoint:
    """The case with its bound; without, where the network is large or the solver did not finish."""
    network = network_of(case.network, case.batch)
    found = lower_bound(network, named(case.machine), case.budget, limit) if len(network.layers) <= SMALL else None
    return case._replace(bound=found.seconds if found and found.proved else None)


def with_best(cases: Iterable[ChallengePoint], path: str) -> list[ChallengePoint]:
    """The cases with the fastest programs of a file of rows, where they beat what is known."""
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in read(Path(path))[0].values():
        if one["fits"]:
            rows.setdefault((one["network"], one["batch"], one["machine"], one["budget_bytes"]), []).append(one)
    made = []
    for case in cases:
        for one in rows.get(case[:4], []):
            if case.best is None or beats(one["seconds"], case.best.seconds):
                case = case._replace(best=BestKnown(one["seconds"], one["setup"], one["program"]))
        made.append(case)
    return made


def write(cases: Iterable[ChallengePoint], version: int) -> None:
    """The file, a point a line."""
    points = ",\n".join(json.dumps(as_json(case)) for case in cases)
    replace_text(FILE, f'{{"format": "{FORMAT}", "version": {version}, "points": [\n{points}\n]}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(prog="make_set", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--bounds", type=float, metavar="S", help="seconds for the solver, for each point")
    parser.add_argument("--rows", metavar="FILE")
    parser.add_argument("--entry", metavar="FILE", action="append", default=[])
    options = parser.parse_args()
    cases, version = ([], 1) if options.draw else (printed(), int(document()["version"]) + 1)
    if options.draw:
        cases = draw(options.rows)
    if options.bounds:
        bounded = workers.results(partial(bound_of, limit=options.bounds), cases, cores())
        by_key = {case[:4]: case for _, case in bounded}
        cases = [by_key[case[:4]] for case in cases]
    if options.rows:
        cases = with_best(cases, options.rows)
    for path in options.entry:
        case, best = prove(path, cases)
        cases = [one._replace(best=best) if one is case else one for one in cases]
    write(cases, version)
    known = [case for case in cases if case.bound], [case for case in cases if case.best]
    sys.stdout.write(
        f"{counted(len(cases), 'point')}, {len(known[0])} with a bound, {len(known[1])} with a best program\n"
    )


if __name__ == "__main__":
    main()

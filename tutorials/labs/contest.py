"""Rank the submissions for lab A6 of a folder: python -m tutorials.labs.contest FOLDER [SEED]

More cases that fit and are proved come first, then a smaller mean slow-down: seconds of an iteration over those with
memory enough.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean

from refimpl.memory import UNLIMITED
from refimpl.planner import plan
from refimpl.text import RefimplError, size
from tutorials.labs.cases import LAYER_WISE, cases, machine
from tutorials.labs.checks import planned, setup_of
from tutorials.labs.test_a6 import CONTEST


def main(folder: str, seed: str = "1") -> None:
    drawn = cases(CONTEST, int(seed))
    fastest = [plan(case.built, LAYER_WISE, machine(), UNLIMITED >> 20).planned_seconds for case in drawn]
    rows: list[tuple[int, float, str, str]] = []
    for path in sorted(Path(folder).glob("*.py")):
        try:
            setup = setup_of(path, CONTEST)
        except RefimplError as error:
            rows.append((0, 0.0, path.stem, f"  {error}"))
            continue
        plans = [planned(setup, CONTEST, case) for case in drawn]
        slow = [one.seconds / least if one.good else 0 for one, least in zip(plans, fastest, strict=True)]
        fitting = [one for one in slow if one]
        mean = geometric_mean(fitting) if fitting else 0.0
        columns = "".join(f"{one:>13.2f}" if one else f"{'–':>13}" for one in slow)
        rows.append((-len(fitting), mean, path.stem, f"{f'{mean:.3f}' if fitting else '–':>8}{columns}"))
    print(f"rank  {'submission':<23}fits    mean{''.join(f'{case!s:>13}' for case in drawn)}")
    for rank, (fits, _, name, figures) in enumerate(sorted(rows), 1):
        print(f"{rank:>4}  {name:<23}{-fits:>4}{figures}")
    print("\nSeconds over those with memory enough; a dash: no proved program.")
    print(f"Budgets: {', '.join(f'{case} {size(case.budget)}' for case in drawn)}.")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Shared by all that `refimpl study` does: the options of many points, and the points planned, with a bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from kernels.targets.cpu.threads import cores
from refimpl.cli import shared_options
from refimpl.cli.parser import Parser, whole
from refimpl.cli.stopped import stopped
from refimpl.cli.terminal import progress
from refimpl.points.many_plans import Keyed, Row, answers
from refimpl.studies.grid.rows import row

if TYPE_CHECKING:
    import argparse


def add(parser: Parser, out: str = "keep the rows in this file; the same command goes on from there") -> None:
    parser.add_argument("--jobs", type=whole(1, 1024), metavar="N", help="processes (default: one for each core)")
    parser.add_argument("--out", metavar="FILE", help=out)
    shared_options.json(parser)


def planned(
    options: argparse.Namespace, points: Sequence[Keyed], work: Callable[[Any], Row] | None = None
) -> list[Row]:
    """The rows of the points, in their order; `work` makes one (None: `refimpl.studies.grid.rows.row`)."""
    with stopped(options.out), progress("planning", len(points)) as advance:
        return answers(
            work or cast("Callable[[Any], Row]", row),
            points,
            options.jobs or cores(),
            options.out,
            lambda row: advance(f"{row['network']}, {row['setup']}"),
        )

"""The command `refimpl`, one file a subcommand.

Exit status: 0 done, 1 something of ours is wrong, 2 wrong use or a file that cannot be read or written, 3 does not fit
the budget, 4 the device failed or is not there, 130 interrupted.  With `--json` one JSON document goes to standard
output and nothing else.  An error is one line on standard error; progress goes there too, and only to a terminal.

Every subcommand imports what it needs when it runs: `refimpl plan` must answer within a second.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TextIO

from refimpl import __version__
from refimpl.cli import (
    bench,
    check_kernel,
    compare,
    demo,
    export,
    fragmentation,
    lists,
    optimum,
    pareto,
    plan,
    profile,
    replay,
    reproduce,
    run,
    summary,
    trace,
    tune,
    view,
)
from refimpl.cli.arguments import DONE, INTERRUPTED, Fail, Parser, status_of, told
from refimpl.cli.completion import complete
from refimpl.cli.options import end_at_output
from refimpl.reproduce import titles

__all__ = ["COMMANDS", "main", "parser", "status_of"]

COMMANDS = (
    lists, summary, plan, compare, run, export, view, trace, replay, fragmentation, tune, optimum, pareto, reproduce,
    profile, bench, check_kernel, demo,
)  # fmt: skip


def parser() -> Parser:
    command = Parser(
        prog="refimpl",
        description=f"Training networks that do not fit the GPU's memory: {titles()}.",
        epilog="Every command explains itself: refimpl plan --help",
    )
    command.add_argument("--version", action="version", version=f"refimpl {__version__}")
    command.set_defaults(run=explain, parser=command)
    commands = command.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for module in COMMANDS:
        module.add(commands)
    return command


def explain(options: argparse.Namespace) -> int:
    """`refimpl` alone."""
    options.parser.print_help()
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ×, → and ▇ shows question marks
    command = parser()
    complete(command)
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    prog = command.prog
    try:
        try:
            if any("\0" in argument for argument in arguments):
                raise Fail("an argument cannot contain a NUL byte")
            options = command.parse_args(arguments)
            options.arguments = arguments
            prog = options.parser.prog
            end_at_output(options)
            return int(options.run(options))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has seen enough
        drop_output(sys.stdout)
        return DONE
    except KeyboardInterrupt:
        status, says = INTERRUPTED, "interrupted"
    except Exception as error:
        known = status_of(error)
        if known is None:
            raise
        status, says = known, told(error)
    try:
        print(f"{prog}: {says}", file=sys.stderr)
    except OSError:  # standard error is a full disk, too
        drop_output(sys.stderr)
    drop_output(sys.stdout)
    return status


def drop_output(stream: TextIO) -> None:
    """Discard what a standard stream still has to write, if it cannot be written."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

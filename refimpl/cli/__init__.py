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
from refimpl.cli.arguments import DEVICE_FAILED, DOES_NOT_FIT, DONE, INTERRUPTED, WRONG_USE, Fail, Parser
from refimpl.cli.completion import complete
from refimpl.reproduce import titles

__all__ = ["COMMANDS", "main", "parser"]

COMMANDS = (
    lists, summary, plan, compare, run, export, view, trace, replay, fragmentation, tune, reproduce, profile,
    bench, check_kernel, demo,
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
    """What a standard stream still has to write goes nowhere, if it cannot be written."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def told(error: Exception) -> str:
    """An error as one line."""
    text = str(error)
    if isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or text
    return " ".join(("the GPU failed: " * of_the_driver(error) + text).split())


def status_of(error: Exception) -> int | None:
    """The exit status of an error; None for a fault of ours, which keeps its traceback."""
    if isinstance(error, Fail):
        return error.status
    if isinstance(error, OSError):  # a file, or standard output
        return WRONG_USE
    if of_the_driver(error):
        return DEVICE_FAILED
    from refimpl.planner import DoesNotFit

    if isinstance(error, DoesNotFit):
        return DOES_NOT_FIT
    if "refimpl.backend" in sys.modules:  # else nothing has run; importing it would take a while
        from refimpl.backend import DeviceFailed, RunError

        if isinstance(error, DeviceFailed):
            return DEVICE_FAILED
        if isinstance(error, RunError):
            return WRONG_USE
    # what a user can do wrong is raised, throughout the project, as a ValueError of a class of its own
    if isinstance(error, ValueError) and type(error).__module__.startswith(("refimpl.", "kernels.")):
        return WRONG_USE
    return None


def of_the_driver(error: Exception) -> bool:
    """Whether the error comes from the CUDA driver or from what calls it: out of memory, a kernel that failed, …"""
    return type(error).__module__.startswith(("cuda.", "numba.cuda", "numba_cuda"))

"""The command `refimpl`, one file a subcommand.

Exit status: 0 done, 1 something of ours is wrong, 2 wrong use, 3 does not fit the budget, 4 the device failed or is not
there, 130 interrupted.  With `--json` one JSON document goes to standard output and nothing else.  An error is one line
on standard error; progress goes there too, and only to a terminal.

Every subcommand imports what it needs when it runs: `refimpl plan` must answer within a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from refimpl import __version__
from refimpl.cli import (
    bench,
    compare,
    completion,
    demo,
    fragmentation,
    lists,
    plan,
    profile,
    replay,
    reproduce,
    run,
    summary,
    trace,
)
from refimpl.cli.arguments import DEVICE_FAILED, DOES_NOT_FIT, DONE, INTERRUPTED, WRONG_USE, Fail, Parser

__all__ = ["COMMANDS", "main", "parser"]

COMMANDS = (
    lists, summary, plan, compare, run, trace, replay, fragmentation, reproduce, profile, bench, demo, completion,
)  # fmt: skip


def parser() -> Parser:
    command = Parser(
        prog="refimpl",
        description="Training networks that do not fit the GPU's memory: vDNN, vDNN++, SuperNeurons and AccUDNN.",
        epilog="Every command explains itself: refimpl plan --help",
    )
    command.add_argument("--version", action="version", version=f"refimpl {__version__}")
    commands = command.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for module in COMMANDS:
        module.add(commands)
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ×, → and ▇ shows question marks
    if arguments[:1] == [completion.ASKED]:
        return completion.answer(parser(), arguments[1:])
    options = parser().parse_args(arguments)
    options.arguments = list(arguments)
    try:
        return int(options.run(options))
    except BrokenPipeError:  # whoever read our output has seen enough; what is left to be flushed goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        print(f"{options.parser.prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        status = status_of(error)
        if status is None:
            raise
        what = "the GPU failed: " if of_the_driver(error) else ""
        print(f"{options.parser.prog}: {what}{' '.join(str(error).split())}", file=sys.stderr)
        return status


def status_of(error: Exception) -> int | None:
    """The exit status that an error stands for; None for one that is a fault of ours, and keeps its traceback."""
    if isinstance(error, Fail):
        return error.status
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

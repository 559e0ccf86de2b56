"""The command `refimpl`, one file a subcommand: `add` declares its options, `run` does its work.

The library's subcommands are here; a study's is the file `command` beside what it shows.

Exit status: 0 done, 1 a check failed, 2 the command is wrong or a file cannot be read or written, 3 does not fit
the budget, 4 the device failed or is not there, 130 interrupted.  With `--json` one JSON document goes to standard
output and nothing else.  An error is one line on standard error; progress goes there too, and only to a terminal.

Only the file of the command that is used is imported, with what it needs: `refimpl plan` must answer within a second.
What takes long to import and is not always needed (Numba, matplotlib, PyTorch) is imported inside functions.
"""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO

from refimpl import __version__
from refimpl.cli.completion import complete, words_to_complete
from refimpl.cli.parallel import tell_ranks
from refimpl.cli.parser import DONE, INTERRUPTED, Fail, Parser, error_line, own_code, status_of
from refimpl.cli.terminal import tell

__all__ = ["COMMANDS", "main", "parser", "status_of"]

STUDIES = ("tune", "reproduce", "bench")
#: Command → its line in the list of all.
COMMANDS = {
    "list": "what there is",
    "summary": "a network, layer by layer",
    "plan": "whether and how a network fits",
    "compare": "setups side by side",
    "run": "train a network under a budget",
    "export": "a program as a script of its own",
    "torch": "who fits a PyTorch module, and the lines that carry its plan out in your own loop",
    "view": "a page to look at a program, or one iteration for other tools",
    "tune": "the most efficient minibatch within a budget, and its learning rate",
    "study": "many plans, a row on disk for each, as a table or a picture",
    "study transformers": "every policy on transformers, beside the checkpoints that users know",
    "study challenge": "a policy on a fixed set of points, beside the best that is known",
    "study fragmentation": "how large the pool must be, for every heuristic, order and policy",
    "reproduce": "a paper's figures beside ours",
    "profile": "measure a network's calls here",
    "bench": "measure every kernel here",
    "check-kernel": "run a kernel of yours on the emulated GPU, with every check on",
    "demo": "plan VGG-16, train a small network, draw both",
}
#: A command that there was → what is typed now.
GONE = {
    "grade": "pytest tutorials/labs/test_a3.py --submission FILE",
    "trace": "refimpl view NETWORK --format chrome, snapshot or rmm",
    "pareto": "refimpl study NETWORK --bound --picture pareto",
    "optimum": "refimpl compare NETWORK --budget SIZE --bound",
    "transformers": "refimpl study transformers",
    "challenge": "refimpl study challenge",
    "fragmentation": "refimpl study fragmentation NETWORK",
    "replay": "refimpl study fragmentation LOG.csv",
}
TOGETHER = {"run", "bench"}  #: commands that several ranks can execute together
#: Command → its file, where that is not `refimpl.cli` and the command's name.
FILES = {
    "list": "refimpl.cli.lists",  # `cli.list` would hide Python's own
    "study": "refimpl.studies.grid.command",
    "torch": "refimpl.cli.in_pytorch",  # PyTorch's own name
    **{name: f"refimpl.studies.{name}.command" for name in STUDIES},
    **{name: f"refimpl.studies.{name.split()[1]}.command" for name in COMMANDS if " " in name},
}


def parser(words: Sequence[str] | None = None) -> Parser:
    """The command's parser.

    Args:
        words: the arguments to be parsed.  Only the file of the command that they name is imported, and the other
            commands have no options.  None: all of them have.
    """
    command = Parser(
        prog="refimpl",
        description="Training networks that do not fit the GPU's memory: vDNN, vDNN++, SuperNeurons and AccUDNN.",
        epilog="Every command explains itself: refimpl plan --help",
    )
    command.add_argument("--version", action="version", version=f"refimpl {__version__}")
    command.set_defaults(run=explain, parser=command)
    commands = command.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, about in COMMANDS.items():
        # `refimpl study --help` names its own studies
        one = commands.add_parser(name) if " " in name else commands.add_parser(name, help=about)
        if words is None or name in words:
            module = import_module(FILES.get(name, f"refimpl.cli.{name.replace('-', '_')}"))
            one.set_defaults(run=module.run, parser=one)
            module.add(one)
    return command


def of_one_word(arguments: list[str]) -> list[str]:
    """The arguments, with the two words of a named study as one; a command that there was names its successor."""
    if arguments and arguments[0] in GONE:
        raise Fail(f"this is now {GONE[arguments[0]]}", prog=f"refimpl {arguments[0]}")
    named = " ".join(arguments[:2])
    return [named, *arguments[2:]] if named in COMMANDS else arguments


def explain(options: argparse.Namespace) -> int:
    """`refimpl` alone."""
    options.parser.print_help()
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ×, → and ▇ shows question marks
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    prog = "refimpl"
    if (executed := own_code()) is not None:  # main was called before
        executed.known.clear()
    try:
        try:
            arguments = of_one_word(arguments)
            command = parser(words_to_complete() or arguments)
            complete(command)
            if any("\0" in argument for argument in arguments):
                raise Fail("an argument cannot contain a NUL byte")
            options = command.parse_args(arguments)
            options.arguments = arguments
            prog = options.parser.prog
            return int(options.run(options))
        finally:
            sys.stdout.flush()
            ignore_ctrl_c_at_exit()
    except BrokenPipeError:  # the reader of our output has seen enough
        drop_output(sys.stdout)
        return DONE
    except KeyboardInterrupt:
        status, says = INTERRUPTED, "interrupted"
    except (Exception, SystemExit) as error:  # argparse exits, too
        known = status_of(error)
        if known is None:
            raise
        status, says = known, error_line(error)
        prog = getattr(error, "prog", None) or prog
    known_alone = {*arguments[:1]} & COMMANDS.keys() - TOGETHER
    if status and not known_alone and tell_ranks(prog, says, status):
        return status
    try:
        tell(f"{prog}: {says}")
    except OSError:  # standard error is a full disk, too
        drop_output(sys.stderr)
    drop_output(sys.stdout)
    return status


def open_what_is_closed() -> None:
    """A standard stream that the caller has closed is nowhere, and its number is not the next file's."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


@cache
def ignore_ctrl_c_at_exit() -> None:
    """All is said and done: one more Ctrl-C would only interrupt the clean-up, with a traceback."""
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def drop_output(stream: TextIO) -> None:
    """Discard what a standard stream still has to write, if it cannot be written."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

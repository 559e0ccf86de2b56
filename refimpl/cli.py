"""The command `refimpl`: lists the kernels, measures them, and runs the demo.

Exit status: 0 done, 2 wrong use, 4 the device failed or is not there.  With `--json` one JSON document goes to standard
output and nothing else; progress goes to standard error, and only to a terminal.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from kernels.arguments import KernelError
from refimpl import __version__
from refimpl.terminal import progress, say, show

DONE, WRONG_USE, DEVICE_FAILED = 0, 2, 4


class Fail(Exception):
    """Ends the command with one line and an exit status."""

    def __init__(self, message: str, status: int = WRONG_USE) -> None:
        super().__init__(message)
        self.status = status


def pick(value: str, names: Sequence[str], what: str) -> str:
    """`value` if it is one of the names; else an error that offers the nearest."""
    if value in names:
        return value
    near = difflib.get_close_matches(value, names, 1, 0.4)
    offer = f"did you mean {near[0]}? " if near else ""
    raise Fail(f"there is no {what} {value!r}; {offer}There are: {', '.join(names)}.")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and what was probably meant."""

    def error(self, message: str) -> NoReturn:
        choice = r"argument (?P<what>\S+): invalid choice: '(?P<value>[^']*)' \(choose from (?P<names>.*)\)"
        found = re.match(choice, message)
        if found:
            names = re.findall(r"[\w-]+", found["names"])
            try:
                pick(found["value"], names, found["what"].strip("-").lower())
            except Fail as better:
                message = str(better)
        elif message.startswith("unrecognized arguments: "):
            options = [option for action in self._actions for option in action.option_strings]
            first = message.removeprefix("unrecognized arguments: ").split()[0]
            near = difflib.get_close_matches(first, options, 1, 0.5)
            message = f"{first} is not understood here" + (f"; did you mean {near[0]}?" if near else "")
        self.exit(WRONG_USE, f"{self.prog}: {message}\n")

    def parse_args(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        found, rest = self.parse_known_args(*args, **kwargs)
        if rest:
            getattr(found, "parser", self).error("unrecognized arguments: " + " ".join(rest))
        return found


# -- refimpl list ------------------------------------------------------------------------------------------------------


def list_kernels(options: argparse.Namespace) -> int:
    from refimpl import listing, tables

    family = pick(options.family, listing.families(), "kernel family") if options.family else None
    if options.machine_code:
        from kernels import machine_code

        why_not = machine_code.why_not()
        if why_not:
            raise Fail(why_not)
    rows = list(listing.rows(family, options.machine_code))
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))
    elif options.markdown:
        print(tables.markdown_table(*listing.table(rows)))
    else:
        show(f"{len(rows)} kernels", *listing.table(rows), wraps=["what it does"])
        if options.machine_code:
            say("Under a compute capability: registers of a thread / bytes of shared memory of a block.")
    return DONE


# -- refimpl bench -----------------------------------------------------------------------------------------------------


def bench(options: argparse.Namespace) -> int:
    from refimpl.devices import NoDevice, device_of

    try:
        device = device_of(options.device)
    except NoDevice as error:
        raise Fail(str(error), DEVICE_FAILED) from None
    if options.probe:
        print(device.name)
        return DONE
    if options.write and options.quick:
        raise Fail("--write keeps what was measured with the full sizes: leave out --quick")
    if options.write and options.family:
        raise Fail("--write keeps the whole table: leave out --family")

    from refimpl import bench as measuring
    from refimpl import tables
    from refimpl.cases import FAMILIES, cases

    family = pick(options.family, FAMILIES, "kernel family") if options.family else None
    chosen = cases(device, options.quick, family)
    budget = 0.1 if options.quick else 0.6
    with progress("", len(chosen)) as advance:
        report = measuring.run(device, chosen, budget, options.quick, advance, family in (None, "launch"))
    if options.json:
        print(report.json())
    else:
        for name in dict.fromkeys(result.family for result in report.results):
            show(name, *tables.rows([r for r in report.results if r.family == name]), wraps=["what"])
        if report.targets:
            show(f"targets ({report.targets_note})", *tables.target_rows(report))
        say(f"{report.name}; {report.seconds:.0f} seconds. {tables.LEGEND}")
        if tables.disturbed(report):
            say(tables.disturbed(report))
    if options.write:
        for path in tables.write(report, Path(__file__).resolve().parent.parent):
            print(f"written: {path}", file=sys.stderr)
    return DONE


# -- refimpl demo ------------------------------------------------------------------------------------------------------


def demo(options: argparse.Namespace) -> int:
    from refimpl import demo

    return demo.main(Path(options.out))


# -- the command -------------------------------------------------------------------------------------------------------


def parser() -> Parser:
    command = Parser(prog="refimpl", description="Reference implementation of vDNN, vDNN++, SuperNeurons and AccUDNN.")
    command.add_argument("--version", action="version", version=f"refimpl {__version__}")
    commands = command.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    lists = commands.add_parser("list", help="what there is", description="Show what there is.")
    things = lists.add_subparsers(dest="thing", metavar="THING", required=True, parser_class=Parser)
    every = things.add_parser("kernels", help="every kernel", description="Every kernel, family by family.")
    every.add_argument("--family", help="only this family, as in gemm")
    every.add_argument("--machine-code", action="store_true", help="registers and shared memory on three GPUs")
    form = every.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document")
    form.add_argument("--markdown", action="store_true", help="a Markdown table")
    every.set_defaults(run=list_kernels, parser=every)

    speed = commands.add_parser(
        "bench", help="measure every kernel here",
        description="Measure every kernel family here, beside NumPy and PyTorch (on a GPU: cuBLAS and cuDNN).",
    )  # fmt: skip
    speed.add_argument("--family", help="only this family, as in conv")
    speed.add_argument("--quick", action="store_true", help="smaller sizes, fewer turns: a look in half a minute")
    speed.add_argument("--device", choices=("cpu", "gpu"), help="default: the GPU if there is one")
    speed.add_argument("--json", action="store_true", help="one JSON document")
    speed.add_argument("--write", action="store_true", help="write the tables into docs/ and README.md")
    speed.add_argument("--probe", action="store_true", help="only say the device's name, or why it cannot be used")
    speed.set_defaults(run=bench, parser=speed)

    shown = commands.add_parser("demo", help="train a small network and draw it", description="Train a small network.")
    shown.add_argument("--out", default="demo", help="folder for the pictures (default: demo)")
    shown.set_defaults(run=demo, parser=shown)
    return command


def of_the_driver(error: Exception) -> bool:
    """Whether the error comes from the CUDA driver or from what calls it: out of memory, a kernel that failed, …"""
    return type(error).__module__.startswith(("cuda.", "numba.cuda", "numba_cuda"))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except Fail as error:
        print(f"{options.parser.prog}: {error}", file=sys.stderr)
        return error.status
    except KernelError as error:
        print(f"{options.parser.prog}: {error}", file=sys.stderr)
        return WRONG_USE
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has seen enough
        return DONE
    except Exception as error:
        if not of_the_driver(error):
            raise
        print(f"{options.parser.prog}: the GPU failed: {' '.join(str(error).split())}", file=sys.stderr)
        return DEVICE_FAILED
    except KeyboardInterrupt:
        print(f"{options.parser.prog}: interrupted", file=sys.stderr)
        return 130

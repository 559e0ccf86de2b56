"""Shared by all commands: reading arguments, one-line errors that offer the nearest name, and exit statuses."""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from refimpl.text import RefimplError, harmless, offer

DONE, WRONG, WRONG_USE, DOES_NOT_FIT, DEVICE_FAILED, INTERRUPTED = 0, 1, 2, 3, 4, 130


#: An option that there was → what is typed now.
GONE = {
    "--algorithms": "--set algorithms=MODULE",
    "--recompute": "--set recompute=speed-centric, memory-centric or cost-aware",
    "--fates": "--set fates=FILE, or --with fates=FILE",
    "--search-seed": "--set seed=N",
    "--catalogue": "--machine NAME:CATALOGUE",
    "--output": "NETWORK.onnx:NODE",
    "--warmup": "--schedule constant,warmup:N",
    "--latency": "--network RATE,latency=S",
    "--bucket": "--network RATE,bucket=SIZE",
    "--no-overlap": "--network RATE,overlap=no",
    "--network-shares-link": "--network RATE,shares_link=yes",
    "--betas": "--optimiser adamw:beta1=B1,beta2=B2",
    "--epsilon": "--optimiser adamw:epsilon=E",
    "--momentum": "--optimiser sgd:momentum=M",
    "--decay": "--optimiser NAME:decay=D",
    "--decay-on": "--optimiser NAME:decay_on=weights",
    "--clip": "--optimiser NAME:clip=NORM",
    "--effort": "--set effort=N",
    "--loss": "part of the network: FILE.onnx:=LOSS, FILE.onnx:NODE=LOSS,NODE=LOSS or FILE.py:make:=LOSS",
    "--like": "--set like=FILE",
    "--validation": "--data DATA,validation=FILE or SHARE",
    "--save-every": "--save FILE,every=N",
    "--export": "--save FILE.onnx",
    "--verbose": "what every run of such a policy prints",
}


class Fail(RefimplError):
    """Ends the command with one line and an exit status; `prog` begins the line, if it is not the command's."""

    def __init__(self, message: str, status: int = WRONG_USE, prog: str | None = None) -> None:
        super().__init__(message)
        self.exit_status, self.prog = status, prog  # type: ignore[misc]


def pick(value: str, names: Iterable[str], what: str) -> str:
    """`value` if it is one of the names; else an error that offers the nearest."""
    names = list(names)
    if value in names:
        return value
    raise Fail(f"there is no {what} {value!r}{offer(value, names)}")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and what was probably meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)  # examples keep their lines
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # -1GiB is a value, and no option

    def describe(self, text: str, examples: Sequence[str] = ()) -> None:
        """What the help says: a description and examples."""
        self.description = textwrap.fill(text, 98)
        self.epilog = "examples:\n" + "\n".join(f"  {example}" for example in examples) if examples else None

    def error(self, message: str) -> NoReturn:
        choice = r"argument (?P<what>\S+): invalid choice: '(?P<value>[^']*)' \(choose from (?P<names>.*)\)"
        found = re.match(choice, message)
        if found:
            what, value = found["what"].strip("-").lower(), found["value"]
            names = [name.strip("' ") for name in found["names"].split(",")]
            what = "kind of kernels" if what == "kernels" else what
            message = f"there is no {what} {value!r}{offer(value, names)}"
        raise Fail(" ".join(message.split()), prog=self.prog)

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        found, rest = self.parse_known_args(*args, **kwargs)
        if rest:
            used = getattr(found, "parser", self)
            options = [option for action in used._actions for option in action.option_strings]
            option = rest[0].partition("=")[0]
            now = GONE.get(option, "")
            if now and option not in options and (not now.startswith("--") or now.split()[0] in options):
                used.error(f"{rest[0]} is now {now}")
            near = difflib.get_close_matches(rest[0], options, 1, 0.5)
            used.error(f"{rest[0]!r} is not understood here" + (f"; did you mean {near[0]}?" if near else ""))
        return found

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(harmless(message))  # argparse would keep quiet about a full disk

    def _get_values(self, action: argparse.Action, texts: list[str]) -> Any:
        if action.option_strings and texts == ["--"]:  # argparse would drop it, and miss it
            self.error(f"argument {'/'.join(action.option_strings)}: -- is not a value")
        return super()._get_values(action, texts)


def whole(least: int = 1, most: int = (1 << 31) - 1) -> Callable[[str], int]:
    """The type of an option that takes a whole number from `least` to `most`."""

    def read(text: str) -> int:
        digits = text.strip()
        if not re.fullmatch(r"[-+]?[0-9]{1,20}", digits) or not least <= int(digits) <= most:
            raise argparse.ArgumentTypeError(f"give a whole number from {least} to {most}, not {text!r}")
        return int(digits)

    return read


def real(above: float | None = None, below: float = math.inf) -> Callable[[str], float]:
    """The type of an option that takes a finite number: more than `above` (None: at least 0), less than `below`."""
    wanted = f"above {above:g}" if above is not None else "of at least 0"
    if below < math.inf:
        wanted += f" and less than {below:g}"

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (number > above if above is not None else number >= 0) or not number < below:
            raise argparse.ArgumentTypeError(f"give a number {wanted}, not {text!r}")
        return number

    return read


def writable(option: str, path: str) -> Path:
    """The path of a file to be written.  One that cannot be written is refused before the work that it is to hold."""
    from refimpl.files import refuse_unwritable

    try:
        refuse_unwritable(path)
    except OSError as error:
        raise Fail(f"{option} {path}: {error.strerror or error}") from None
    return Path(path)


def own_code() -> Any:
    """The module that executes code of the user's own; None if it was not imported: then there is no such code."""
    return sys.modules.get("refimpl.importing.own_code")


def cut_off(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused the error: while it imports, a package of C++ turns one into an ImportError."""
    while error is not None:
        if isinstance(error.__cause__, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def error_line(error: BaseException) -> str:
    """An error as one line."""
    if cut_off(error):
        return "interrupted"
    if in_own_code(error):
        return str(own_code().error_line(error))
    if by_class(error) is None:
        return str(own_code().suspected_error_line(error))
    text = str(error)
    if isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or text
    return " ".join(("the GPU failed: " * of_the_driver(error) + text).split())


def status_of(error: BaseException) -> int | None:
    """The exit status of an error; None for a fault of ours, which keeps its traceback."""
    if cut_off(error):
        return INTERRUPTED
    if in_own_code(error):
        return WRONG_USE
    status = by_class(error)
    if status is None and isinstance(error, Exception) and own_code() and own_code().known and not sys.flags.dev_mode:
        return WRONG_USE  # as when a module of one's own gives an answer of another type
    return status


def in_own_code(error: BaseException) -> bool:
    """Whether an error of the user's own code is to be told in a line: python -X dev keeps its traceback."""
    return not sys.flags.dev_mode and own_code() is not None and own_code().raised(error)


def by_class(error: BaseException) -> int | None:
    """The exit status of an error whose class says what happened."""
    if isinstance(error, RefimplError):
        return error.exit_status
    if isinstance(error, OSError):  # a file, or standard output
        return WRONG_USE
    arguments = sys.modules.get("kernels.checks.arguments")  # which imports NumPy; without it no kernel was called
    if arguments is not None and isinstance(error, arguments.KernelError):
        return WRONG_USE
    return DEVICE_FAILED if of_the_driver(error) else None


def of_the_driver(error: BaseException) -> bool:
    """Whether the error comes from the CUDA driver or from what calls it: out of memory, a kernel that failed, …"""
    return type(error).__module__.startswith(("cuda.", "numba.cuda", "numba_cuda"))

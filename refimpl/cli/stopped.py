"""How a command of many plans ends early: one line that says why, and what its file keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refimpl.cli.parser import INTERRUPTED, WRONG, Fail, error_line, in_own_code
from refimpl.importing.own_code import OwnCodeError
from refimpl.points.many_plans import read
from refimpl.points.workers import WorkerKilled
from refimpl.text import counted


@contextmanager
def stopped(out: str | Path | None) -> Iterator[None]:
    """Turn Ctrl-C, a killed worker, and an error of the user's own code into one line, with the rows that are kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise Fail(f"interrupted{kept(out)}", INTERRUPTED) from None
    except WorkerKilled as error:
        raise Fail(f"{error}{kept(out)}", WRONG) from None
    except (Exception, SystemExit) as error:
        if not in_own_code(error) and not isinstance(error, OwnCodeError):
            raise
        raise Fail(error_line(error) + kept(out)) from None


def kept(out: str | Path | None) -> str:
    """What the next command goes on from."""
    if out is None:
        return "; with --out FILE the next command goes on from there"
    rows = len(read(Path(out))[0]) if Path(out).exists() else 0
    are = "is" if rows == 1 else "are"
    return f"; {counted(rows, 'row')} {are} in {out}; the same command goes on from there"

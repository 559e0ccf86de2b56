"""Helpers of the tutorials' notebooks: long lines, tables, pictures, and checks of exercises."""

from __future__ import annotations

import functools
import io
import textwrap
from collections.abc import Callable

from matplotlib.figure import Figure


def say(text: object) -> None:
    """Print a long line as several of at most 100 characters."""
    print(textwrap.fill(str(text), 100, break_on_hyphens=False))


def table(*rows: tuple[object, ...], floats: str = ",.2f") -> None:
    """Print rows with aligned columns.

    Args:
        rows: tuples of cells; the first row is the heading.
        floats: how a float is written, as `format` takes it.  Integers get commas.
    """
    text = [
        [format(cell, floats) if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)
         for cell in row]
        for row in rows
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    for row in text:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        print("   ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())


def show(figure: Figure, alt: str) -> None:
    """Show a picture below the cell, in the project's style.

    Args:
        figure: the picture; one of pyplot's is closed.
        alt: what is to be seen in it, for those who cannot see it.
    """
    import matplotlib.pyplot as plt
    from IPython.display import Image, display

    from refimpl.report import style

    file = io.BytesIO()
    with style.styled():
        figure.savefig(file, dpi=80)
    plt.close(figure)
    display(Image(file.getvalue(), alt=alt))  # type: ignore[no-untyped-call]


def check(right: Callable[..., bool]) -> Callable[..., bool]:
    """A decorator for the check of an exercise: it may print and return, but it never stops the notebook.

    An error in the reader's code is printed like any other wrong answer, and the check returns False.

    Args:
        right: a function of the reader's answer, named check_ and the exercise, that returns whether it is right.
    """
    exercise = right.__name__.removeprefix("check_").replace("_", " ")

    @functools.wraps(right)
    def never_stops(*answer: object) -> bool:
        try:
            return right(*answer)
        except KeyError as error:
            say(f"{exercise}: not yet: a dictionary lacks the key {' '.join(map(str, error.args))}")
        except Exception as error:
            say(f"{exercise}: not yet: your answer ended in {type(error).__name__}: {error}")
        return False

    return never_stops

"""How a library cuts a product of matrices into tiles, each the work of one block of threads.

A convolution without transforms is a product, too: forward it has a row for each pixel of the output, a column for each
filter, and is as deep as a filter has taps.  Tiles are whole: a matrix that fills three and a half takes four.  Before
its first and after its last step a tile loads and stores, which takes as long as `AROUND` more steps.

A kernel of few tiles is slow: a multiprocessor hides the latency of one tile in the arithmetic of others.  It
reaches half of its rate with `Efficiency.half_tiles` tiles a multiprocessor.  So the time is that of the tiles, and of
as many more (Hockney's n½): `Machine.work_seconds`.
"""

from __future__ import annotations

from math import ceil

from refimpl.machine.work import Tiling

ROWS, WIDTHS = 128, (128, 64, 32)
AROUND = 44  #: steps
SPLIT = 1024  #: steps of a part, where a sum is long enough to be cut into parts


def tilings(
    rows: int,
    columns: int,
    depth: float,
    *,
    products: int = 1,
    around: float = AROUND,
    widths: tuple[int, ...] = WIDTHS,
) -> tuple[Tiling, ...]:
    """The ways to compute some products of one size.

    Args:
        rows: of the result of one product.
        columns: of it.
        depth: of the sum that each number of it is.
        products: how many there are.
        around: steps that a tile takes beside its depth.
        widths: of the tiles that the library has.
    """
    made = []
    for width in widths:
        tiles = products * ceil(rows / ROWS) * ceil(columns / width)
        made.append(Tiling(2 * ROWS * width * (depth + around) * tiles, tiles))
    return tuple(made)


def split_tilings(rows: int, columns: int, depth: int, *, products: int = 1) -> tuple[Tiling, ...]:
    """The same with the sum cut in parts, which are added up: a result of few rows and columns is many tiles then."""
    whole = tilings(rows, columns, depth, products=products, around=0)
    return tuple(Tiling(flops, tiles * max(1.0, depth / SPLIT)) for flops, tiles in whole)


def matrix_tilings(rows: int, columns: int, depth: int) -> tuple[Tiling, ...]:
    """Of a plain product, either way round."""
    return tilings(rows, columns, depth) + tilings(columns, rows, depth)

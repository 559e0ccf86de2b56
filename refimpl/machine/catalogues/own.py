"""This project's own kernels: `kernels.fast.conv.ALGORITHMS`, what each serves and the workspace it needs.

An algorithm that works through the batch a few images at a time is offered with a short menu of workspaces: for the
whole batch, a quarter, a sixteenth, one image.  Less workspace is slower, and the result the same to the last bit.

Which algorithm serves what, and every workspace, is asked of `kernels.fast.conv`, imported when it is first needed.
The speeds are a model from the count of operations and bytes; a profile knows better.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from refimpl.machine.convolution import Convolution
from refimpl.machine.work import Option, Work

if TYPE_CHECKING:
    from kernels.checks.conv_shape import ConvShape

MENU = (1, 4, 16)  #: parts of the batch; after these, image by image

#: One thread an output and no shared memory: 2.0 against 41.5 GFLOP/s (docs/measurements, AMD EPYC, forward).
NAIVE = 0.05
WINOGRAD = 16 / 36  #: multiplications of F(2×2, 3×3) for one of the direct way


def options(conv: Convolution) -> list[Option]:
    """Our kernels' algorithms for this pass."""
    from kernels.checks.conv_shape import ConvShape
    from kernels.fast import conv as kernels_conv

    shape = ConvShape.of(conv.x_shape, conv.w_shape, **conv.walk)
    serving = kernels_conv.serves(conv.x_shape, conv.w_shape, **conv.walk)
    return [
        option
        for name in kernels_conv.ALGORITHMS
        if serving[name][conv.pass_] == "yes"
        for option in _menu(conv, shape, name)
    ]


def plain(conv: Convolution) -> list[Option]:
    """The plain kernel of this pass, which needs no workspace."""
    return [Option("plain", 0, (Work(conv.kind, conv.flops, conv.nbytes, speed=NAIVE),))]


def _menu(conv: Convolution, shape: ConvShape, name: str) -> list[Option]:
    """The algorithm with each workspace worth offering."""
    from kernels.fast.conv import ALGORITHMS

    module = ALGORITHMS[name]
    whole = int(module.workspace_bytes(conv.pass_, shape, None))
    made = {whole: _option(conv, name, conv.images, whole)}
    if int(module.workspace_bytes(conv.pass_, shape, 1)) < whole:
        for images in sorted({-(-conv.images // parts) for parts in MENU} | {1}, reverse=True):
            workspace = int(module.workspace_bytes(conv.pass_, shape, images))
            made[workspace] = _option(conv, name, images, workspace)  # the fewest images that have this need
    if getattr(module, "WORKSPACE_OPTIONAL", False):
        made.setdefault(0, _option(conv, name, conv.images, 0))
    return list(made.values())


def _option(conv: Convolution, name: str, images: int, workspace: int) -> Option:
    from kernels.fast.cpu import vector_direct

    kind, flops, moved = conv.kind, conv.flops, conv.nbytes
    if name == "direct" and conv.plain:
        return Option(name, 0, (Work(kind, flops, moved, speed=NAIVE),))
    if name == "direct":  # with groups there is so little to multiply that bytes may take longer
        return Option(name, 0, (Work(kind, flops / NAIVE, moved),))
    if name == "implicit_gemm":
        return Option(name, workspace, _implicit_gemm(conv, workspace))
    if name == "vector_direct":  # the maps are laid out, then read
        lay_out = Work("products", 0, moved + workspace, times=2, traffic="transforms")
        outputs = (conv.w_shape[1] * conv.groups if conv.pass_ == "backward_data" else conv.filters) // conv.groups
        filled = _share(outputs, vector_direct.FILTERS) if conv.groups > 1 else 1.0
        return Option(name, workspace, (lay_out, Work(kind, flops / filled, moved + workspace)), vector_direct.CPU_ONLY)
    # im2col and winograd: fill the workspace, multiply what is in it, part of the batch after part
    parts = -(-conv.images // images)
    rearranged = moved + parts * workspace
    share = WINOGRAD if name == "winograd" else 1.0
    arrange = Work("products", 0, rearranged, times=2 * parts, traffic="transforms")
    multiply = Work(kind, share * flops, parts * workspace + moved, times=parts)
    return Option(name, workspace, (arrange, multiply) if workspace else (multiply,))  # a 1×1 map is its own columns


def _implicit_gemm(conv: Convolution, workspace: int) -> tuple[Work, ...]:
    flops = conv.flops / _filled(conv)
    if conv.pass_ != "backward_filter":
        return (Work(conv.kind, flops, conv.nbytes),)
    if workspace:
        return (
            Work("backward", flops, conv.nbytes + workspace),
            Work("products", 0, workspace + 4 * conv.weights),
        )
    return (Work("backward", flops, conv.nbytes, blocks=_tiles(conv)),)


def _filled(conv: Convolution) -> float:
    """The share of their tiles that groups fill; a single group is taken to fill its own.

    Measured on a CPU, forward: groups of 1, 4, 16 and 24 filters ran at 0.01, 0.08, 0.26 and 0.33 of the speed of one
    group of 64.
    """
    from kernels.fast.conv.implicit_gemm import BY_TABLE_ROWS, COLUMNS

    if conv.groups == 1:
        return 1.0
    filters, (_, channels, *window) = conv.filters // conv.groups, conv.w_shape
    if conv.pass_ == "backward_filter":
        return _share(filters, BY_TABLE_ROWS) * _share(channels * prod(window), COLUMNS)
    return _share(filters if conv.pass_ == "forward" else channels, BY_TABLE_ROWS)


def _tiles(conv: Convolution) -> int:
    """Blocks that backward_filter has where its sum is not split: few, for a large GPU."""
    from kernels.fast.conv.implicit_gemm import BY_TABLE_ROWS, COLUMNS, tile_rows

    filters, weights = conv.filters // conv.groups, prod(conv.w_shape[1:])
    rows = tile_rows(filters, weights) if conv.plain else BY_TABLE_ROWS
    return conv.groups * -(-filters // rows) * -(-weights // COLUMNS)


def _share(size: int, tile: int) -> float:
    """The share of its tiles that something of this size fills."""
    return size / (-(-size // tile) * tile)

"""Convolution: forward, backward to the data, to the filter and to the bias, each by several algorithms.

    conv.forward(x, w, b, y, stride=(1, 1), pad=(0, 0), dilation=(1, 1), algorithm="implicit_gemm", workspace=None,
                 stream=None)
    conv.backward_data(dy, w, dx, ...)    conv.backward_filter(x, dy, dw, ...)    conv.backward_bias(dy, db)
    conv.add_bias(b, y)

x is (images, channels, height, width), w (filters, channels / groups, height, width), b (filters,) or None, y (images,
filters, height, width), all float32; `kernels.checks.conv_shape` has the formula.  How many groups there are follows
from the shapes.  The outputs y, dx, dw, db are given and overwritten.

An algorithm is one module: `algorithms` names them, `serves(...)` is a table of what each can do.  It
may need a workspace, a float32 array of at least `workspace_bytes(...)` bytes whose contents do not matter, before or
after.  With images=i that is the need for i images at a time; how many fit changes the speed and not one bit of the
result, because every order of summation follows from the shape and the algorithm's name alone; that of one with
CPU_ONLY = True, which nothing chooses for a GPU, from the processor's registers too.

To add an algorithm, write one more module with SUMMARY, why_not, workspace_bytes and the three passes, and name it in
`algorithms`; the tests then cover it.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from math import prod
from types import ModuleType
from typing import Any

from kernels.checks.arguments import KernelError, check, check_shape, flat, given_workspace
from kernels.checks.conv_shape import PASSES, ConvShape, Pad, Pair
from kernels.fast.conv import bias, grouped, im2col, implicit_gemm, winograd


@cache
def algorithms() -> dict[str, ModuleType]:
    """Name → module; also `conv.ALGORITHMS`."""
    from kernels.fast.cpu import vector_direct  # which is made from parts of the others

    return {
        "direct": grouped,  # and without groups the plain kernels
        "implicit_gemm": implicit_gemm,
        "im2col": im2col,
        "winograd": winograd,
        "vector_direct": vector_direct,
    }


def __getattr__(name: str) -> Any:
    if name == "ALGORITHMS":
        return algorithms()
    raise AttributeError(f"kernels.fast.conv has no {name!r}")


def forward(
    x: Any,
    w: Any,
    b: Any,
    y: Any,
    stride: Pair = (1, 1),
    pad: Pad = (0, 0),
    dilation: Pair = (1, 1),
    algorithm: str = "implicit_gemm",
    workspace: Any = None,
    stream: Any = None,
) -> None:
    """y = x convolved with w, plus the bias b of each filter (None: no bias)."""
    where = "conv.forward"
    workspace = given_workspace(workspace)
    check(where, x=x, w=w, b=b, y=y, workspace=workspace)
    shape = ConvShape.of(x.shape, w.shape, stride, pad, dilation)
    check_shape(where, "b", b, (shape.filters,))
    check_shape(where, "y", y, shape.y_shape)
    run = _algorithm(where, "forward", shape, algorithm, workspace)
    run.forward(shape, x, w, b, y, _flat(workspace), stream)


def backward_data(
    dy: Any,
    w: Any,
    dx: Any,
    stride: Pair = (1, 1),
    pad: Pad = (0, 0),
    dilation: Pair = (1, 1),
    algorithm: str = "implicit_gemm",
    workspace: Any = None,
    stream: Any = None,
) -> None:
    """dx = the gradient of the loss by x, from its gradient dy by y; inputs that no filter reads get zero."""
    where = "conv.backward_data"
    workspace = given_workspace(workspace)
    check(where, dy=dy, w=w, dx=dx, workspace=workspace)
    shape = ConvShape.of(dx.shape, w.shape, stride, pad, dilation)
    check_shape(where, "dy", dy, shape.y_shape)
    run = _algorithm(where, "backward_data", shape, algorithm, workspace)
    run.backward_data(shape, dy, w, dx, _flat(workspace), stream)


def backward_filter(
    x: Any,
    dy: Any,
    dw: Any,
    stride: Pair = (1, 1),
    pad: Pad = (0, 0),
    dilation: Pair = (1, 1),
    algorithm: str = "implicit_gemm",
    workspace: Any = None,
    stream: Any = None,
) -> None:
    """dw = the gradient of the loss by w, from its gradient dy by y."""
    where = "conv.backward_filter"
    workspace = given_workspace(workspace)
    check(where, x=x, dy=dy, dw=dw, workspace=workspace)
    shape = ConvShape.of(x.shape, dw.shape, stride, pad, dilation)
    check_shape(where, "dy", dy, shape.y_shape)
    run = _algorithm(where, "backward_filter", shape, algorithm, workspace)
    run.backward_filter(shape, x, dy, dw, _flat(workspace), stream)


def backward_bias(dy: Any, db: Any, stream: Any = None) -> None:
    """db = the gradient of the loss by the bias: dy summed over images and positions, filter by filter."""
    where = "conv.backward_bias"
    check(where, dy=dy, db=db)
    if len(dy.shape) != 4:
        raise KernelError(f"{where}: dy has shape {tuple(dy.shape)}, expected (images, filters, height, width)")
    check_shape(where, "db", db, (dy.shape[1],))
    bias.gradient(dy, db, stream)


def add_bias(b: Any, y: Any, stream: Any = None) -> None:
    """y += the bias b of each filter: of a transposed convolution, whose y `backward_data` has made."""
    where = "conv.add_bias"
    check(where, b=b, y=y)
    if len(y.shape) != 4:
        raise KernelError(f"{where}: y has shape {tuple(y.shape)}, expected (images, filters, height, width)")
    check_shape(where, "b", b, (y.shape[1],))
    bias.add_bias(b, y, stream)


def workspace_bytes(
    pass_: str,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Pair = (1, 1),
    pad: Pad = (0, 0),
    dilation: Pair = (1, 1),
    algorithm: str = "implicit_gemm",
    images: int | None = None,
) -> int:
    """Bytes of workspace with which `algorithm` takes `images` images at a time (None: the whole batch)."""
    where = "conv.workspace_bytes"
    shape = ConvShape.of(x_shape, w_shape, stride, pad, dilation)
    if images is not None and not 1 <= images <= shape.images:
        raise KernelError(f"{where}: images is {images}; the batch has {shape.images}, give 1 to {shape.images}")
    return int(_serving(where, pass_, shape, algorithm).workspace_bytes(pass_, shape, images))


def minimum_workspace_bytes(
    pass_: str,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Pair = (1, 1),
    pad: Pad = (0, 0),
    dilation: Pair = (1, 1),
    algorithm: str = "implicit_gemm",
) -> int:
    """The least workspace with which `algorithm` runs at all; where it is 0, workspace=None is accepted."""
    where = "conv.minimum_workspace_bytes"
    shape = ConvShape.of(x_shape, w_shape, stride, pad, dilation)
    return _minimum(_serving(where, pass_, shape, algorithm), pass_, shape)


def serves(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Pair = (1, 1),
    pad: Pad = (0, 0),
    dilation: Pair = (1, 1),
) -> dict[str, dict[str, str]]:
    """Algorithm → pass → "yes", or why the algorithm does not serve that pass of this convolution."""
    shape = ConvShape.of(x_shape, w_shape, stride, pad, dilation)
    return {
        name: {pass_: module.why_not(pass_, shape) or "yes" for pass_ in PASSES}
        for name, module in algorithms().items()
    }


def _serving(where: str, pass_: str, shape: ConvShape, algorithm: str) -> ModuleType:
    """The algorithm's module, if there is such an algorithm and it serves this pass of this shape."""
    if pass_ not in PASSES:
        near = _nearest(pass_, PASSES)
        raise KernelError(f"{where}: there is no pass {pass_!r}{near}; there are {', '.join(PASSES)}")
    if algorithm not in algorithms():
        near = _nearest(algorithm, algorithms())
        raise KernelError(f"{where}: there is no algorithm {algorithm!r}{near}; there are {', '.join(algorithms())}")
    module = algorithms()[algorithm]
    reason = module.why_not(pass_, shape)
    if reason is not None:
        raise KernelError(f"{where}: {algorithm} does not serve this convolution: {reason}")
    return module


def _algorithm(where: str, pass_: str, shape: ConvShape, algorithm: str, workspace: Any) -> ModuleType:
    """`_serving`, and the workspace is large enough for it."""
    module = _serving(where, pass_, shape, algorithm)
    if workspace is None and _minimum(module, pass_, shape) == 0:
        return module
    given = 0 if workspace is None else 4 * prod(workspace.shape)
    needed, whole = (int(module.workspace_bytes(pass_, shape, images)) for images in (1, None))
    if given < needed:
        more = f" (all {shape.images} images at once: {whole})" if whole > needed else ""
        less = " or None" if _minimum(module, pass_, shape) == 0 else ""
        raise KernelError(f"{where}: {algorithm} needs a workspace of at least {needed} bytes{more}{less}, got {given}")
    return module


def _minimum(module: ModuleType, pass_: str, shape: ConvShape) -> int:
    """A module whose workspace only makes it faster says so with WORKSPACE_OPTIONAL = True; others need one image's."""
    return 0 if getattr(module, "WORKSPACE_OPTIONAL", False) else int(module.workspace_bytes(pass_, shape, 1))


def _flat(workspace: Any) -> Any:
    return None if workspace is None else flat(workspace)


def _nearest(name: str, known: Any) -> str:
    close = get_close_matches(str(name), list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""

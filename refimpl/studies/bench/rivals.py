"""The bench's rivals: the same computations by NumPy (BLAS inside) and by PyTorch, if present.

The NumPy convolutions write out the columns and multiply once, image by image: the fastest that plain NumPy has.
PyTorch is set to true float32 (no TF32), for cuDNN's own search of the fastest algorithm, and for a deterministic
one where the sum is long: the kernels here are deterministic too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kernels.checks.conv_shape import ConvShape


def columns(shape: ConvShape, image: np.ndarray) -> np.ndarray:
    """One padded image as a matrix a group: a row for each (channel, r, s) of the filter, a column for each output."""
    r, s, (dy, dx) = shape.filter_height, shape.filter_width, shape.stride
    windows = np.lib.stride_tricks.sliding_window_view(image, (r, s), axis=(1, 2))[:, ::dy, ::dx]
    return windows.transpose(0, 3, 4, 1, 2).reshape(shape.groups, shape.group_channels * r * s, -1)


def padded(shape: ConvShape, x: np.ndarray) -> np.ndarray:
    (ph, pw) = shape.pad
    return np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))


def in_groups(shape: ConvShape, filters: np.ndarray) -> np.ndarray:
    """Filters, or an image's outputs, as a matrix a group with a row a filter."""
    return filters.reshape(shape.groups, shape.group_filters, -1)


def numpy_conv_forward(shape: ConvShape, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
    matrix = in_groups(shape, w)
    for image, out in zip(padded(shape, x), y, strict=True):
        np.matmul(matrix, columns(shape, image), out=in_groups(shape, out))


def numpy_conv_backward_data(shape: ConvShape, dy: np.ndarray, w: np.ndarray, dx: np.ndarray) -> None:
    n, c, h, wd = shape.x_shape
    p, q, (sh, sw), (ph, pw) = shape.out_height, shape.out_width, shape.stride, shape.pad
    matrix = in_groups(shape, w).transpose(0, 2, 1)
    for i in range(n):
        parts = (matrix @ in_groups(shape, dy[i])).reshape(c, shape.filter_height, shape.filter_width, p, q)
        whole = np.zeros((c, h + 2 * ph, wd + 2 * pw), np.float32)
        for r in range(shape.filter_height):
            for s in range(shape.filter_width):
                whole[:, r : r + p * sh : sh, s : s + q * sw : sw] += parts[:, r, s]
        dx[i] = whole[:, ph : ph + h, pw : pw + wd]


def numpy_conv_backward_filter(shape: ConvShape, x: np.ndarray, dy: np.ndarray, dw: np.ndarray) -> None:
    out = in_groups(shape, dw)
    out[:] = 0
    for image, gradient in zip(padded(shape, x), dy, strict=True):
        out += in_groups(shape, gradient) @ columns(shape, image).transpose(0, 2, 1)


NUMPY_CONV = {
    "forward": numpy_conv_forward,
    "backward_data": numpy_conv_backward_data,
    "backward_filter": numpy_conv_backward_filter,
}


def torch_or_none() -> Any:
    """PyTorch, set up for a fair comparison, or None."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return torch


def torch_conv(torch: Any, pass_: str, shape: ConvShape, a: Any, b: Any, out: Any) -> Any:
    """One pass of a convolution by PyTorch; a and b are its inputs in the order the kernels' functions take them."""
    if pass_ == "forward":
        return torch.nn.functional.conv2d(a, b, None, *shape.walk, shape.groups)
    dy, x, w = (a, out, b) if pass_ == "backward_data" else (b, a, out)
    wanted = [pass_ == "backward_data", pass_ == "backward_filter", False]
    torch.backends.cudnn.deterministic = pass_ == "backward_filter"
    try:
        return torch.ops.aten.convolution_backward(dy, x, w, None, *shape.walk, False, (0, 0), shape.groups, wanted)
    finally:
        torch.backends.cudnn.deterministic = False


def torch_attention(torch: Any, pass_: str, causal: bool) -> Callable[..., Any]:
    """PyTorch's attention of queries, keys, values and dy; backward goes from an output that is computed once."""
    attend = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal)
    if pass_ == "forward":
        return lambda q, k, v, dy: attend(q, k, v)
    made: list[Any] = []

    def backward(q: Any, k: Any, v: Any, dy: Any) -> Any:
        if not made:
            made[:] = [one.detach().requires_grad_() for one in (q, k, v)]
            made.append(attend(*made))
        return torch.autograd.grad(made[3], made[:3], dy, retain_graph=True)

    return backward

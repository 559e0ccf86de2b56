"""The shape of one convolution: what every algorithm is told, and the one place where it is checked.

    y[n, k, p, q] = b[k] + sum over c, r, s of  w[k, c, r, s] * x[n, c, p*stride_h + r - pad_h, q*stride_w + s - pad_w]

x is (images, channels, height, width), w is (filters, channels, filter_height, filter_width), y is (images, filters,
out_height, out_width); positions outside x count as zero.  In the kernels the sizes have the field's short names:
n images, c channels, h × w map, k filters of r × s, p × q outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kernels.arguments import LARGEST, KernelError

Shape4 = tuple[int, int, int, int]
Pair = tuple[int, int]
PASSES = ("forward", "backward_data", "backward_filter")


@dataclass(frozen=True)
class ConvShape:
    """All sizes of a convolution; `of` makes one from shapes and checks it."""

    images: int
    channels: int
    height: int
    width: int
    filters: int
    filter_height: int
    filter_width: int
    out_height: int
    out_width: int
    stride: Pair
    pad: Pair

    @classmethod
    def of(
        cls, x_shape: Sequence[int], w_shape: Sequence[int], stride: Sequence[int] = (1, 1), pad: Sequence[int] = (0, 0)
    ) -> ConvShape:
        """The convolution of maps `x_shape` (n, c, h, w) with filters `w_shape` (k, c, r, s)."""
        images, channels, height, width = _sizes("x", x_shape, 4, "(images, channels, height, width)", 1)
        filters, depth, filter_height, filter_width = _sizes("w", w_shape, 4, "(filters, channels, height, width)", 1)
        sh, sw = _sizes("stride", stride, 2, "(vertical, horizontal)", 1)
        ph, pw = _sizes("pad", pad, 2, "(vertical, horizontal)", 0)
        if depth != channels:
            raise KernelError(f"convolution: w has {depth} channels but x has {channels}")
        if filter_height > height + 2 * ph or filter_width > width + 2 * pw:
            raise KernelError(
                f"convolution: a {filter_height}×{filter_width} filter does not fit into a {height}×{width} map "
                f"with padding {(ph, pw)}"
            )
        out_height = (height + 2 * ph - filter_height) // sh + 1
        out_width = (width + 2 * pw - filter_width) // sw + 1
        shape = cls(
            images, channels, height, width, filters, filter_height, filter_width, out_height, out_width,
            (sh, sw), (ph, pw),
        )  # fmt: skip
        for name, sizes in (("x", shape.x_shape), ("w", shape.w_shape), ("y", shape.y_shape)):
            if prod(sizes) > LARGEST:
                raise KernelError(
                    f"convolution: {name} of shape {sizes} has {prod(sizes)} elements; at most {LARGEST} can be indexed"
                )
        return shape

    @property
    def x_shape(self) -> Shape4:
        return (self.images, self.channels, self.height, self.width)

    @property
    def w_shape(self) -> Shape4:
        return (self.filters, self.channels, self.filter_height, self.filter_width)

    @property
    def y_shape(self) -> Shape4:
        return (self.images, self.filters, self.out_height, self.out_width)

    @property
    def flops(self) -> int:
        """Floating-point operations of one pass, any of the three, done the direct way (a multiply-add is two)."""
        return 2 * prod(self.y_shape) * self.channels * self.filter_height * self.filter_width


def _sizes(name: str, values: Sequence[int], count: int, meaning: str, least: int) -> list[int]:
    try:
        sizes = [int(value) for value in values]
        whole = sizes == list(values)
    except (TypeError, ValueError):
        sizes, whole = [], False
    if not whole or len(sizes) != count or min(sizes) < least:
        raise KernelError(
            f"convolution: {name} is {values}; give {count} whole numbers {meaning}, each at least {least}"
        )
    return sizes

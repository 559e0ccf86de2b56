"""The shape of one convolution, which every algorithm gets, and the one place where it is checked.

    y[n, k, p, q] = b[k] + sum over c, r, s of  w[k, c, r, s] * x[n, c, p*stride_h + r - pad_h, q*stride_w + s - pad_w]

x is (images, channels, height, width), w is (filters, channels, filter_height, filter_width), y is (images, filters,
out_height, out_width); positions outside x count as zero.  In the kernels the sizes have the field's short names:
n images, c channels, h × w map, k filters of r × s, p × q outputs.

**Groups.** Where w has fewer channels than x, the channels and the filters are cut into groups of equal size, and the
filters of a group see its channels alone: c counts the channels of the group of filter k.  With one channel a group the
convolution is *depthwise*.

**Dilation.** The taps of a filter are `dilation` rows and columns apart: r and s are multiplied by it.

**Padding** is (vertical, horizontal), or (top, left, bottom, right): pad_h is the top's and pad_w the left's.  The
bottom's and the right's only decide how many outputs there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kernels.checks.arguments import LARGEST, KernelError

Shape4 = tuple[int, int, int, int]
Pair = tuple[int, int]
Pad = Sequence[int]  #: (vertical, horizontal), or (top, left, bottom, right)
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
    pad: Pair  #: above and left of the map
    pad_after: Pair  #: below and right of it
    dilation: Pair
    groups: int

    @classmethod
    def of(
        cls,
        x_shape: Sequence[int],
        w_shape: Sequence[int],
        stride: Sequence[int] = (1, 1),
        pad: Pad = (0, 0),
        dilation: Sequence[int] = (1, 1),
    ) -> ConvShape:
        """The convolution of maps `x_shape` (n, c, h, w) with filters `w_shape` (k, c / groups, r, s)."""
        images, channels, height, width = _sizes("x", x_shape, 4, "(images, channels, height, width)", 1)
        filters, depth, filter_height, filter_width = _sizes("w", w_shape, 4, "(filters, channels, height, width)", 1)
        sh, sw = _sizes("stride", stride, 2, "(vertical, horizontal)", 1)
        dh, dw = _sizes("dilation", dilation, 2, "(vertical, horizontal)", 1)
        if len(pad) == 4:
            top, left, bottom, right = _sizes("pad", pad, 4, "(top, left, bottom, right)", 0)
        else:
            top, left = bottom, right = _sizes("pad", pad, 2, "(vertical, horizontal)", 0)
        if channels % depth:
            raise KernelError(f"convolution: x's channels ({channels}) are no multiple of w's ({depth})")
        groups = channels // depth
        if filters % groups:
            raise KernelError(f"convolution: {filters} filters cannot be shared out among {groups} groups of channels")
        room_h = height + top + bottom - dh * (filter_height - 1) - 1
        room_w = width + left + right - dw * (filter_width - 1) - 1
        if min(room_h, room_w) < 0:
            apart = "" if (dh, dw) == (1, 1) else f", dilated by {(dh, dw)},"
            raise KernelError(
                f"convolution: a {filter_height}×{filter_width} filter{apart} does not fit into a {height}×{width} map "
                f"with padding {tuple(pad)}"
            )
        shape = cls(
            images, channels, height, width, filters, filter_height, filter_width, room_h // sh + 1, room_w // sw + 1,
            (sh, sw), (top, left), (bottom, right), (dh, dw), groups,
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
        return (self.filters, self.group_channels, self.filter_height, self.filter_width)

    @property
    def y_shape(self) -> Shape4:
        return (self.images, self.filters, self.out_height, self.out_width)

    @property
    def flops(self) -> int:
        """Floating-point operations of one pass, any of the three, done the direct way (a multiply-add is two)."""
        return 2 * prod(self.y_shape) * self.group_channels * self.filter_height * self.filter_width

    @property
    def group_channels(self) -> int:
        """Channels of a group."""
        return self.channels // self.groups

    @property
    def group_filters(self) -> int:
        """Filters of a group."""
        return self.filters // self.groups

    @property
    def walk(self) -> tuple[Pair, tuple[int, ...], Pair]:
        """Stride, padding and dilation, as the functions of `kernels.fast.conv` take them."""
        return self.stride, self.pad if self.pad == self.pad_after else (*self.pad, *self.pad_after), self.dilation

    @property
    def plain(self) -> bool:
        """Whether all channels are one group, and neighbouring taps neighbours."""
        return self.groups == 1 and self.dilation == (1, 1)


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

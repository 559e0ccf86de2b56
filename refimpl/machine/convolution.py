"""One pass of one convolution, as the catalogues see it: sizes, operations, bytes.

`kernels.checks.conv_shape` checks the same shapes for the kernels; importing it costs a second, for it brings Numba
along, and a plan for another library needs no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, NamedTuple

from refimpl.network.call import Call
from refimpl.network.shapes import convolved, four_sides
from refimpl.network.tensor import ITEM_BYTES

Pair = tuple[int, int]
Shape4 = tuple[int, int, int, int]


class Convolution(NamedTuple):
    """Maps of `channels` × height × width and as many filters, an output map of out_height × out_width each."""

    pass_: str  #: "forward", "backward_data" or "backward_filter"
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
    pad: tuple[int, ...]  #: (vertical, horizontal) or (top, left, bottom, right)
    dilation: Pair
    groups: int  #: of channels; a filter sees one of them
    bias: bool = False  #: added to the result

    @classmethod
    def of(cls, call: Call) -> Convolution:
        """A choosable call's."""
        given = call.arguments
        x, w = given.get("x") or given["dx"], given.get("w") or given["dw"]
        walk = given["stride"], given["pad"], given.get("dilation", (1, 1))
        made = cls.made(call.function.removeprefix("conv."), x.shape, w.shape, *walk)
        return made._replace(bias=call.function == "conv.forward" and given.get("b") is not None)

    @classmethod
    def made(
        cls, pass_: str, x_shape: Sequence[int], w_shape: Sequence[int], stride: Pair, pad: tuple[int, ...],
        dilation: Pair = (1, 1),
    ) -> Convolution:  # fmt: skip
        """From shapes, as the functions of `kernels.fast.conv` take them."""
        (images, channels, height, width), (filters, depth, r, s) = x_shape, w_shape
        out = convolved(x_shape, {"window": (r, s), "stride": stride, "pad": pad, "dilation": dilation})
        groups = channels // depth
        return cls(pass_, images, channels, height, width, filters, r, s, *out, stride, pad, dilation, groups)

    @property
    def x_shape(self) -> Shape4:
        return self.images, self.channels, self.height, self.width

    @property
    def w_shape(self) -> Shape4:
        return self.filters, self.channels // self.groups, self.filter_height, self.filter_width

    @property
    def y_shape(self) -> Shape4:
        return self.images, self.filters, self.out_height, self.out_width

    @property
    def walk(self) -> dict[str, Any]:
        """Stride, padding and dilation, as the functions of `kernels.fast.conv` take them."""
        return {"stride": self.stride, "pad": self.pad, "dilation": self.dilation}

    @property
    def pixels(self) -> int:
        """Of one output map."""
        return self.out_height * self.out_width

    @property
    def group_channels(self) -> int:
        """Channels of a group."""
        return self.channels // self.groups

    @property
    def group_filters(self) -> int:
        """Filters of a group."""
        return self.filters // self.groups

    @property
    def group_depth(self) -> int:
        """Taps of a filter, over the channels of its group."""
        return self.group_channels * self.filter_height * self.filter_width

    @property
    def plain(self) -> bool:
        """Whether all channels are one group, and neighbouring taps neighbours."""
        return self.groups == 1 and self.dilation == (1, 1)

    @property
    def kind(self) -> Literal["forward", "backward"]:
        """Which efficiency the pass has when it is done without transforms."""
        return "forward" if self.pass_ == "forward" else "backward"

    @property
    def weights(self) -> int:
        """Elements of w."""
        return prod(self.w_shape)

    @property
    def flops(self) -> int:
        """Operations of the pass done the direct way; a multiply-add is two."""
        return 2 * self.images * self.out_height * self.out_width * self.weights

    @property
    def nbytes(self) -> int:
        """Bytes of x, w and y together: what any algorithm has to read and write once."""
        return ITEM_BYTES * (prod(self.x_shape) + self.weights + prod(self.y_shape))

    @property
    def padded(self) -> Pair:
        """Height and width of a map with its padding."""
        top, left, bottom, right = four_sides(self.pad)
        return self.height + top + bottom, self.width + left + right

"""One pass of one convolution, as the catalogues see it: sizes, operations, bytes.

`kernels.conv.shape` checks the same shapes for the kernels; importing it costs a second, for it brings Numba along, and
a plan for another library needs no kernel.
"""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

from refimpl.network.tensor import ITEM_BYTES

Pair = tuple[int, int]
Shape4 = tuple[int, ...]

#: What `Call.convolution` gives: pass, shape of x, shape of w, stride, padding.
Key = tuple[str, Shape4, Shape4, Pair, Pair]


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
    pad: Pair

    @classmethod
    def of(cls, key: Key) -> Convolution:
        """From `Call.convolution`."""
        (_, (images, channels, height, width), (filters, _, r, s), stride, pad) = key
        out_height = (height + 2 * pad[0] - r) // stride[0] + 1
        out_width = (width + 2 * pad[1] - s) // stride[1] + 1
        return cls(key[0], images, channels, height, width, filters, r, s, out_height, out_width, stride, pad)

    @property
    def kind(self) -> Literal["forward", "backward"]:
        """Which efficiency the pass has when it is done without transforms."""
        return "forward" if self.pass_ == "forward" else "backward"

    @property
    def weights(self) -> int:
        """Elements of w."""
        return self.filters * self.channels * self.filter_height * self.filter_width

    @property
    def flops(self) -> int:
        """Operations of the pass done the direct way; a multiply-add is two."""
        return 2 * self.images * self.out_height * self.out_width * self.weights

    @property
    def nbytes(self) -> int:
        """Bytes of x, w and y together: what any algorithm has to read and write once."""
        x = prod((self.images, self.channels, self.height, self.width))
        y = prod((self.images, self.filters, self.out_height, self.out_width))
        return ITEM_BYTES * (x + self.weights + y)

    @property
    def padded(self) -> Pair:
        """Height and width of a map with its padding."""
        return self.height + 2 * self.pad[0], self.width + 2 * self.pad[1]

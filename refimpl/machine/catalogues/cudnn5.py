"""The algorithms of cuDNN 5.1 and later: cuDNN 4's, and two by Winograd's minimal filtering for filters of 3×3.

WINOGRAD computes tiles of 2×2 outputs with 16 multiplications for 36, in one kernel, for y and dx.
WINOGRAD_NONFUSED computes tiles of 4×4 outputs with 36 for 144: it transforms the maps and the filters into its
workspace, multiplies 36 pairs of matrices, and transforms back; for dw, too.  The releases' notes say which passes have
which.  The sizes of the tiles are Lavin's and Gray's ("Fast algorithms for convolutional neural networks", 2015); that
the library takes these is our reading.  `FUSED` was chosen by the rows of cuDNN 5.0 on Titan X, of .7, .75, .8, .9, 1.
"""

from __future__ import annotations

from math import ceil

from refimpl.machine.catalogues import cudnn4
from refimpl.machine.convolution import Convolution
from refimpl.machine.tiling import split_tilings, tilings
from refimpl.machine.work import Option, Tiling, Work
from refimpl.network.tensor import ITEM_BYTES

FUSED = 0.75  #: speed of the kernel that transforms, too
FUSED_SHARE = 16 / 36  #: multiplications for one of the direct way
OUT, IN = 4, 6  #: rows and columns of a tile: outputs, and the inputs that they need


def options(conv: Convolution) -> list[Option]:
    """The library's algorithms for this pass."""
    made = cudnn4.options(conv)
    if cudnn4.fft_walks(conv) and (conv.filter_height, conv.filter_width) == (3, 3):
        if conv.pass_ != "backward_filter":
            made.append(_fused(conv))
        made.append(_nonfused(conv))
    return made


def _fused(conv: Convolution) -> Option:
    """The product of the direct way, with fewer multiplications; the transformed filters are its workspace."""
    outputs, summed = _outputs_and_summed(conv)
    height, width = _results(conv)
    rows = 4 * conv.images * ceil(height / 2) * ceil(width / 2)
    direct = tilings(rows, outputs, 9 * summed)
    cut = tuple(Tiling(FUSED_SHARE * flops, tiles) for flops, tiles in direct)
    workspace = 16 * ITEM_BYTES * outputs * summed
    work = Work("products", FUSED_SHARE * conv.flops, conv.nbytes + 2 * workspace, speed=FUSED, tilings=cut)
    return Option("WINOGRAD", workspace, (work, *cudnn4.add_bias(conv)))


def _nonfused(conv: Convolution) -> Option:
    """Both operands are transformed, multiplied point by point as matrices, and transformed back."""
    points = IN * IN
    places = conv.images * ceil(conv.out_height / OUT) * ceil(conv.out_width / OUT)
    workspace = ITEM_BYTES * points * (places * (conv.channels + conv.filters) + conv.weights)
    flops = 2 * points * places * conv.weights // 9
    if conv.pass_ == "backward_filter":
        cut = split_tilings(conv.channels, conv.filters, places, products=points)
        multiply = Work("weights", flops, workspace, tilings=cut)
    else:
        cut = tilings(places, *_outputs_and_summed(conv), products=points)
        multiply = Work("products", flops, workspace, tilings=cut)
    transforms = Work("products", 0, conv.nbytes + workspace, 3)
    return Option("WINOGRAD_NONFUSED", workspace, (transforms, multiply, *cudnn4.add_bias(conv)))


def _outputs_and_summed(conv: Convolution) -> tuple[int, int]:
    """Maps that the pass computes, and the maps that each is a sum over."""
    return (conv.filters, conv.channels) if conv.pass_ == "forward" else (conv.channels, conv.filters)


def _results(conv: Convolution) -> tuple[int, int]:
    """Height and width of a map that the pass computes."""
    return (conv.out_height, conv.out_width) if conv.pass_ == "forward" else (conv.height, conv.width)

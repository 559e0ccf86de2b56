"""cuDNN 4's algorithms, as far as they are public: the library's names and conditions, its workspaces nearly so.

| pass | no workspace | small | large |
| --- | --- | --- | --- |
| forward | IMPLICIT_GEMM | IMPLICIT_PRECOMP_GEMM, GEMM | FFT_TILING, FFT |
| backward data | ALGO_0 | ALGO_1 | FFT_TILING, FFT |
| backward filter | ALGO_0, ALGO_1 | ALGO_3 | FFT |

*Workspaces.*  FFT keeps the transforms of x, of w and of y: (N·C + N·K + C·K) planes of P × (Q/2 + 1) complex numbers,
P and Q the next powers of two of the padded map.  Two logs of the library's later releases show 11 % more than this
formula (github.com/Theano/Theano, pull request 6348).  The tiled FFT is taken to go over the tiles' positions one after
another, all images at once: the library's guide says no more than that it needs less than FFT for large images.  GEMM
lays out one image's columns.  The offsets of the algorithms with a small workspace are a number for
each pixel of y, a guess.

*Speeds* are a model: operations and bytes are counted, and a machine's efficiencies make seconds of them.  The
algorithms without a workspace are the library's first ones, whose speed beside the later ones is a machine's figure
(`Efficiency.early`); those with one compute whole tiles (`refimpl.machine.tiling`).  Assumed, and not measured, is
`HALF`: vDNN's published total of 28 GB for VGG-16(256) says that FFT ran on the 112² maps and not on the 224² ones, and
that the tiled FFT did not take its place.  So both are taken to run at half speed: planes larger than 128², and tiles.

The library learnt groups and dilation in later releases.  Here the direct algorithms and GEMM serve them at their usual
speeds, and the FFTs do not.
"""

from __future__ import annotations

from math import ceil, log2, prod

from refimpl.machine.convolution import Convolution
from refimpl.machine.tiling import WIDTHS, split_tilings, tilings
from refimpl.machine.work import Option, Tiling, Work
from refimpl.network.tensor import ITEM_BYTES

FFT_LARGEST = 256  #: the library's limit on the rows and columns of a padded map
FAST_PLANE = 128
HALF = 0.5
TILE = 32
COMPLEX_BYTES = 8
MULTIPLY_ADD = 6  #: operations of one on complex numbers, which takes three multiplications

SCATTER = 0.78  #: speed of a product whose results are added to their places in dx
SCATTER_AROUND = 110  #: steps that this takes beside the product's depth

#: Direct algorithms by pass: the first generation's, and the later one, which keeps a number for each pixel.
DIRECT = {
    "forward": (("IMPLICIT_GEMM",), "IMPLICIT_PRECOMP_GEMM"),
    "backward_data": (("ALGO_0",), "ALGO_1"),
    "backward_filter": (("ALGO_0", "ALGO_1"), "ALGO_3"),
}


def options(conv: Convolution) -> list[Option]:
    """The library's algorithms for this pass."""
    early, later = DIRECT[conv.pass_]
    made = [*(_direct(conv, name, early=True) for name in early), _direct(conv, later, early=False)]
    if conv.pass_ == "forward":
        made.append(_columns(conv))
    if fft_serves(conv):
        made.append(_fft(conv, "FFT", fft_plane(conv), 1))
    if conv.pass_ != "backward_filter" and fft_walks(conv) and max(conv.filter_height, conv.filter_width) < TILE:
        made.append(_fft(conv, "FFT_TILING", (TILE, TILE), tile_positions(conv)))
    return made


# -- the direct ones ---------------------------------------------------------------------------------------------------


def _direct(conv: Convolution, name: str, early: bool) -> Option:
    workspace = 0 if early else ITEM_BYTES * conv.pixels
    make = {"forward": _forward, "backward_data": _data, "backward_filter": _filter}[conv.pass_]
    return Option(name, workspace, make(conv, early))


def _forward(conv: Convolution, early: bool) -> tuple[Work, ...]:
    """A row for each pixel of y, a column for each filter."""
    cut = tilings(conv.images * conv.pixels, conv.group_filters, conv.group_depth, products=conv.groups)
    return Work("products", conv.flops, conv.nbytes, early=early, tilings=cut), *add_bias(conv)


def _data(conv: Convolution, early: bool) -> tuple[Work, ...]:
    """Later: a row for each pixel of dx, where with a stride most taps are zeros.  First: dx is cleared, and each
    product of dy and w is added to its place."""
    n, c, taps = conv.images, conv.group_channels, conv.filter_height * conv.filter_width
    if early:
        rows = n * conv.pixels
        cut = tilings(rows, c * taps, conv.group_filters, products=conv.groups, around=SCATTER_AROUND)
        clear = Work("products", 0, ITEM_BYTES * prod(conv.x_shape))
        return clear, Work("products", conv.flops, conv.nbytes, speed=SCATTER, tilings=cut)
    rows = n * conv.height * conv.width
    cut = tilings(rows, c, conv.group_filters * taps, products=conv.groups, widths=WIDTHS[:2])
    return (Work("products", conv.flops, conv.nbytes, tilings=cut),)


def _filter(conv: Convolution, early: bool) -> tuple[Work, ...]:
    """A row for each tap, a column for each filter; the sum over all images in parts."""
    cut = split_tilings(conv.group_depth, conv.group_filters, conv.images * conv.pixels, products=conv.groups)
    return (Work("weights", conv.flops, conv.nbytes, traffic="transforms", early=early, tilings=cut),)


def add_bias(conv: Convolution) -> tuple[Work, ...]:
    """The library adds it in a kernel of its own, which reads and writes y."""
    return (Work("products", 0, 2 * ITEM_BYTES * prod(conv.y_shape)),) if conv.bias else ()


def _columns(conv: Convolution) -> Option:
    """Image by image: write the columns, multiply them by the filters."""
    an_image = ITEM_BYTES * conv.channels * conv.filter_height * conv.filter_width * conv.pixels
    moved = conv.nbytes + 2 * conv.images * an_image
    image = tilings(conv.pixels, conv.group_filters, conv.group_depth, products=conv.groups)
    cut = tuple(Tiling(conv.images * flops, tiles) for flops, tiles in image)
    multiply = Work("products", conv.flops, moved, 2 * conv.images, "transforms", tilings=cut)
    return Option("GEMM", an_image, (multiply, *add_bias(conv)))


# -- by FFT ------------------------------------------------------------------------------------------------------------


def fft_walks(conv: Convolution) -> bool:
    """Whether an FFT can serve this convolution: every filter meets every channel, at every place."""
    return conv.stride == (1, 1) and conv.plain


def fft_serves(conv: Convolution) -> bool:
    """Whether the whole-plane FFT serves this convolution."""
    return fft_walks(conv) and max(fft_map(conv)) <= FFT_LARGEST


def fft_map(conv: Convolution) -> tuple[int, int]:
    """Height and width of the padded map that is convolved: x, or backward data dy, with a filter's width less one
    around it, less x's padding."""
    if conv.pass_ != "backward_data":
        return conv.padded
    return conv.height + conv.filter_height - 1, conv.width + conv.filter_width - 1


def fft_plane(conv: Convolution) -> tuple[int, int]:
    """P and Q: each side of that map up to the next power of two."""
    height, width = fft_map(conv)
    return 1 << (height - 1).bit_length(), 1 << (width - 1).bit_length()


def tile_positions(conv: Convolution) -> int:
    """Tiles of 32² that cover a map: each gives 33 - filter outputs a side."""
    down = ceil(conv.out_height / (TILE + 1 - conv.filter_height))
    return down * ceil(conv.out_width / (TILE + 1 - conv.filter_width))


def fft_workspace_bytes(conv: Convolution, plane: tuple[int, int] | None = None) -> int:
    """(N·C + N·K + C·K) · P · (Q/2 + 1) · 8 bytes."""
    p, q = plane or fft_plane(conv)
    planes = conv.images * (conv.channels + conv.filters) + conv.channels * conv.filters
    return planes * p * (q // 2 + 1) * COMPLEX_BYTES


def _fft(conv: Convolution, name: str, plane: tuple[int, int], positions: int) -> Option:
    """Transform both operands, multiply point by point, transform back; so for every position of a tile."""
    p, q = plane
    workspace = fft_workspace_bytes(conv, plane)
    planes = workspace // (p * (q // 2 + 1) * COMPLEX_BYTES)
    transforms = positions * planes * 2.5 * p * q * log2(p * q)  # the usual count for real numbers
    products = positions * MULTIPLY_ADD * conv.images * conv.channels * conv.filters * p * (q // 2 + 1)
    moved = positions * workspace
    speed = HALF if positions > 1 or name == "FFT_TILING" or max(plane) > FAST_PLANE else 1.0
    return Option(
        name,
        workspace,
        (
            Work("products", transforms, conv.nbytes + moved, 3 * positions, "transforms", speed=speed),
            Work("products", products, moved, positions, "transforms", speed=speed),
            *add_bias(conv),
        ),
    )

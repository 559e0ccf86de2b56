"""cuDNN 4's algorithms, as far as they are public: the library's names and conditions, its workspaces nearly so.

| pass | no workspace | small | large |
| --- | --- | --- | --- |
| forward | IMPLICIT_GEMM | IMPLICIT_PRECOMP_GEMM, GEMM | FFT_TILING, FFT |
| backward data | ALGO_0, ALGO_1 |  | FFT_TILING, FFT |
| backward filter | ALGO_0, ALGO_1 | ALGO_3 | FFT |

*Workspaces.*  FFT keeps the transforms of x, of w and of y: (N·C + N·K + C·K) planes of P × (Q/2 + 1) complex numbers,
P and Q the next powers of two of the padded map.  Two logs of the library's later releases show 11 % more than this
formula (github.com/Theano/Theano, pull request 6348).  The tiled FFT is taken to go over the tiles' positions one after
another, all images at once: the library's guide says no more than that it needs less than FFT for large images.  GEMM
lays out one image's columns.  The precomputed offsets and ALGO_3's counters are small; how small is a guess.

*Speeds* are a model: operations and bytes are counted, and a machine's efficiencies make seconds of them.  Assumed, and
not measured, are the relative speeds in `DIRECT`, and `HALF`: vDNN's published total of 28 GB for VGG-16(256) says that
FFT ran on the 112² maps and not on the 224² ones, and that the tiled FFT did not take its place.  So both are taken to
run at half speed: planes larger than 128², and tiles.

The library learnt groups and dilation in later releases.  Here the direct algorithms and GEMM serve them at their usual
speeds, and the FFTs do not.
"""

from __future__ import annotations

from math import ceil, log2

from refimpl.machine.convolution import Convolution
from refimpl.machine.work import Option, Work

FFT_LARGEST = 256  #: the library's limit on the rows and columns of a padded map
FAST_PLANE = 128
HALF = 0.5
TILE = 32
COMPLEX_BYTES = 8
MULTIPLY_ADD = 8  #: operations of one on complex numbers

#: Direct algorithms by pass, without and with a small workspace; speed relative to the pass's efficiency.
SLOWER = 0.8
DIRECT = {
    "forward": {"IMPLICIT_GEMM": SLOWER, "IMPLICIT_PRECOMP_GEMM": 1.0},
    "backward_data": {"ALGO_0": SLOWER, "ALGO_1": 1.0},
    "backward_filter": {"ALGO_0": SLOWER, "ALGO_1": 0.9, "ALGO_3": 1.0},
}


def options(conv: Convolution) -> list[Option]:
    """The library's algorithms for this pass."""
    made = [_direct(conv, name, speed) for name, speed in DIRECT[conv.pass_].items()]
    if conv.pass_ == "forward":
        made.append(_columns(conv))
    if fft_serves(conv):
        made.append(_fft(conv, "FFT", fft_plane(conv), 1))
    if conv.pass_ != "backward_filter" and fft_walks(conv) and max(conv.filter_height, conv.filter_width) < TILE:
        made.append(_fft(conv, "FFT_TILING", (TILE, TILE), tile_positions(conv)))
    return made


# -- the direct ones ---------------------------------------------------------------------------------------------------


def _direct(conv: Convolution, name: str, speed: float) -> Option:
    small = 4 * conv.out_height * conv.out_width if name in ("IMPLICIT_PRECOMP_GEMM", "ALGO_3") else 0
    return Option(name, small, (Work(conv.kind, conv.flops, conv.nbytes, speed=speed),))


def _columns(conv: Convolution) -> Option:
    """Image by image: write the columns, multiply them by the filters."""
    an_image = 4 * conv.channels * conv.filter_height * conv.filter_width * conv.out_height * conv.out_width
    moved = conv.nbytes + 2 * conv.images * an_image
    return Option("GEMM", an_image, (Work("forward", conv.flops, moved, 2 * conv.images, "transforms"),))


# -- by FFT ------------------------------------------------------------------------------------------------------------


def fft_walks(conv: Convolution) -> bool:
    """Whether an FFT can serve this convolution: every filter meets every channel, at every place."""
    return conv.stride == (1, 1) and conv.plain


def fft_serves(conv: Convolution) -> bool:
    """Whether the whole-plane FFT serves this convolution."""
    return fft_walks(conv) and max(conv.padded) <= FFT_LARGEST


def fft_plane(conv: Convolution) -> tuple[int, int]:
    """P and Q: the padded map, each side up to the next power of two."""
    height, width = conv.padded
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
        ),
    )

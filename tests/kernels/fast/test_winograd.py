"""Winograd's convolution: the matrices, each transform against them, and the three passes against the oracles.

The transforms only add, subtract and halve (filters, and dy in backward-filter, twice along each axis).  So with small
whole numbers, and multiples of four where halves are taken, every step is exact in float32 and results must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import LARGEST, KernelError
from kernels.checks.conv_shape import PASSES, ConvShape
from kernels.fast import conv
from kernels.fast.conv import winograd
from kernels.targets import cpu
from kernels.targets.launch import ceil_div, launch
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

BT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
G3 = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])  # for three taps, F(2, 3)
AT2 = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
G2 = np.array([[1, 0], [0.5, 0.5], [0.5, -0.5], [0, 1]])  # for two taps, F(3, 2)
AT3 = np.array([[1, 1, 1, 0], [0, 1, -1, 0], [0, 1, 1, -1]])
GAP = 5  # between the matrices of two points

# images, channels, height, width, filters, pad
AWKWARD = {
    "plain": (2, 3, 8, 8, 4, (1, 1)),
    "one of everything": (1, 1, 3, 3, 1, (0, 0)),
    "one output, padded": (3, 2, 1, 1, 2, (1, 1)),
    "one input, wide padding": (2, 3, 1, 1, 2, (2, 2)),
    "one row": (2, 2, 1, 9, 3, (1, 0)),
    "one column": (2, 2, 9, 1, 3, (0, 2)),
    "odd": (3, 4, 7, 9, 5, (1, 1)),
    "odd by even": (2, 1, 5, 6, 1, (2, 0)),
    "primes": (5, 7, 13, 11, 3, (0, 1)),
    "many tiles": (1, 2, 35, 33, 2, (1, 1)),
}


def shape_of(case: tuple[Any, ...]) -> ConvShape:
    n, c, h, w, k, pad = case
    return ConvShape.of((n, c, h, w), (k, c, 3, 3), (1, 1), pad)


def whole_numbers(shape: tuple[int, ...], seed: int = 0, times: int = 1) -> np.ndarray:
    return (times * np.random.default_rng(seed).integers(-3, 4, shape)).astype(np.float32)


def inputs_of(pass_: str, shape: ConvShape, seed: int = 1) -> list[np.ndarray]:
    """Whole numbers, multiples of four in the operand whose transform halves."""
    x, w = whole_numbers(shape.x_shape, seed), whole_numbers(shape.w_shape, seed + 1, 4)
    if pass_ == "forward":
        return [x, w, whole_numbers((shape.filters,), seed)]
    if pass_ == "backward_data":
        return [whole_numbers(shape.y_shape, seed + 2), w]
    return [x, whole_numbers(shape.y_shape, seed + 2, 4)]


def out_shape(pass_: str, shape: ConvShape) -> tuple[int, ...]:
    return {"forward": shape.y_shape, "backward_data": shape.x_shape, "backward_filter": shape.w_shape}[pass_]


def run(pass_: str, shape: ConvShape, inputs: list[Any], images: int | None = None) -> np.ndarray:
    """The pass with room for `images` images.  NaN is in output and workspace before, and stays after the workspace."""
    sizes = (shape.x_shape, shape.w_shape, *shape.walk, "winograd")
    need = conv.workspace_bytes(pass_, *sizes, images=images) // 4
    guarded = np.full(need + 64, np.nan, np.float32)
    out = np.full(out_shape(pass_, shape), np.nan, np.float32)
    getattr(conv, pass_)(*inputs, out, *sizes[2:], guarded[:need])
    assert np.isnan(guarded[need:]).all(), "wrote past its workspace"
    planes = 16 * (1 + 3 * (images or shape.images))
    assert np.isnan(guarded[:need]).sum() < 32 * planes, "needs more than it uses and the lines between the planes"
    return out


def expected(pass_: str, shape: ConvShape, inputs: list[Any]) -> np.ndarray:
    how: dict[str, Any] = {"stride": shape.stride, "pad": shape.pad}
    if pass_ == "forward":
        x, w, b = inputs
        return reference.conv_forward(x, w, b, **how)
    first, second = inputs
    if pass_ == "backward_data":
        return reference.conv_backward_data(first, second, shape.x_shape, **how)
    return reference.conv_backward_filter(first, second, shape.w_shape, **how)


def both_sides(matrix: np.ndarray, tiles: np.ndarray) -> np.ndarray:
    """matrix · tile · matrixᵀ for every tile (the last two axes)."""
    return matrix @ tiles @ matrix.T


def points_first(tiles: np.ndarray) -> np.ndarray:
    """(…, 4, 4) → (16, …): the order of the workspace."""
    return np.moveaxis(tiles.reshape(*tiles.shape[:-2], 16), -1, 0)


def assert_points(got: np.ndarray, want: np.ndarray) -> None:
    """Every point's matrix is as wanted, and the gap after it untouched."""
    np.testing.assert_array_equal(got[..., :-GAP], want.reshape(*got.shape[:-1], -1))
    assert np.isnan(got[..., -GAP:]).all()


def tiles_of(maps: np.ndarray, high: int, wide: int, size: int, pad: tuple[int, int]) -> np.ndarray:
    """(n, c, h, w) → (n, c, high·wide, size, size): tiles two apart, zero outside the map."""
    n, c, h, w = maps.shape
    padded = np.zeros((n, c, max(h, 2 * high) + 8, max(w, 2 * wide) + 8))
    padded[:, :, pad[0] : pad[0] + h, pad[1] : pad[1] + w] = maps
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    return windows[:, :, : 2 * high : 2, : 2 * wide : 2].reshape(n, c, high * wide, size, size)


@pytest.fixture(params=["compiled", "checked"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test runs once as it is, and once with every index checked, threads reversed and local memory full of NaN."""
    with cpu.checked(order="reverse") if request.param == "checked" else nullcontext():
        yield


@pytest.mark.parametrize(("at", "g", "taps"), [(AT2, G3, 3), (AT3, G2, 2)], ids=["F(2, 3)", "F(3, 2)"])
def test_the_matrices_compute_a_correlation(at: np.ndarray, g: np.ndarray, taps: int) -> None:
    data, filter_ = whole_numbers((4, 4), 1), whole_numbers((taps, taps), 2, 4)
    want = np.einsum("yxrs,rs->yx", np.lib.stride_tricks.sliding_window_view(data, (taps, taps)), filter_)
    np.testing.assert_array_equal(both_sides(at, both_sides(g, filter_) * both_sides(BT, data)), want)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.usefixtures("both_ways")
def test_filter_transform(turned: bool) -> None:
    filters, channels = 5, 67
    w = whole_numbers((filters, channels, 3, 3), 0, 4)
    want = points_first(both_sides(G3, w[:, :, ::-1, ::-1].swapaxes(0, 1) if turned else w))
    layout = (channels, filters, 9, 9 * channels, 8, -1) if turned else (filters, channels, 9 * channels, 9, 0, 1)
    u = np.full((16, want[0].size + GAP), np.nan, np.float32)
    launch(winograd.winograd_filter, ceil_div(filters * channels, 256), w, u, *layout, u.shape[1])
    assert_points(u, want)


@pytest.mark.parametrize("images_inside", [False, True], ids=["point, channel, image", "image, point, channel"])
@pytest.mark.parametrize("pad", [(0, 0), (1, 1), (2, 0), (1, 2)])
@pytest.mark.usefixtures("both_ways")
def test_data_transform(pad: tuple[int, int], images_inside: bool) -> None:
    n, c, h, w = 3, 5, 7, 10
    high, wide = ceil_div(h + 2 * pad[0] - 2, 2), ceil_div(w + 2 * pad[1] - 2, 2)
    x, row = whole_numbers((n, c, h, w)), high * wide
    points = points_first(both_sides(BT, tiles_of(x, high, wide, 4, pad)))  # point, image, channel, tile
    want = points.swapaxes(0, 1) if images_inside else points.swapaxes(1, 2)
    size = want[0, 0].size if images_inside else want[0].size
    v = np.full((n, 16, size + GAP) if images_inside else (16, size + GAP), np.nan, np.float32)
    strides = (size + GAP, row, 16 * (size + GAP)) if images_inside else (size + GAP, n * row, row)
    launch(winograd.winograd_data, ceil_div(c * n * row, 256), x, v, n, c, h, w, high, wide, *pad, *strides)
    assert_points(v, want)


@pytest.mark.parametrize(("h", "w"), [(6, 8), (7, 8), (6, 9), (1, 1), (5, 3)])
@pytest.mark.usefixtures("both_ways")
def test_output_transform(h: int, w: int) -> None:
    n, k, high, wide = 3, 4, ceil_div(h, 2), ceil_div(w, 2)
    m = whole_numbers((16, k * n * high * wide + GAP))
    tiles = both_sides(AT2, m[:, :-GAP].T.reshape(k, n, high, wide, 4, 4))
    want = tiles.transpose(1, 0, 2, 4, 3, 5).reshape(n, k, 2 * high, 2 * wide)[:, :, :h, :w]
    y = np.full(want.size + 64, np.nan, np.float32)
    launch(winograd.winograd_output, ceil_div(k * n * high * wide, 256), m, y, n, k, h, w, high, wide, m.shape[1])
    np.testing.assert_array_equal(y[: want.size], want.ravel())
    assert np.isnan(y[want.size :]).all()


@pytest.mark.parametrize(("h", "w"), [(6, 8), (7, 8), (6, 9), (1, 1), (5, 3)])
@pytest.mark.usefixtures("both_ways")
def test_gradient_transform(h: int, w: int) -> None:
    n, k, high, wide = 3, 4, ceil_div(h, 2), ceil_div(w, 2)
    dy, row = whole_numbers((n, k, h, w), 0, 4), high * wide
    points = points_first(both_sides(G2, tiles_of(dy, high, wide, 2, (0, 0))))  # point, image, channel, tile
    want = points.swapaxes(0, 1)
    v = np.full((n, 16, k * row + GAP), np.nan, np.float32)
    layout = (k * row + GAP, row, 16 * (k * row + GAP))
    launch(winograd.winograd_gradient, ceil_div(k * n * row, 256), dy, v, n, k, h, w, high, wide, *layout)
    assert_points(v, want)


@pytest.mark.usefixtures("both_ways")
def test_filter_gradient_transform() -> None:
    m = whole_numbers((16, 300 + GAP))
    want = both_sides(AT3, m[:, :-GAP].T.reshape(300, 4, 4))
    dw = np.full(want.size + 64, np.nan, np.float32)
    launch(winograd.winograd_filter_gradient, 2, m, dw, 300, m.shape[1])
    np.testing.assert_array_equal(dw[: want.size], want.ravel())
    assert np.isnan(dw[want.size :]).all()


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("case", AWKWARD.values(), ids=AWKWARD.keys())
def test_equals_the_oracle_on_awkward_shapes(pass_: str, case: tuple[Any, ...]) -> None:
    shape = shape_of(case)
    inputs = inputs_of(pass_, shape)
    np.testing.assert_array_equal(run(pass_, shape, inputs), expected(pass_, shape, inputs))


@st.composite
def shapes(draw: st.DrawFn) -> ConvShape:
    pad = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    h, w = (draw(st.integers(max(1, 3 - 2 * p), 13)) for p in pad)
    n, c, k = draw(st.integers(1, 5)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    return ConvShape.of((n, c, h, w), (k, c, 3, 3), (1, 1), pad)


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), pass_=st.sampled_from(PASSES), data=st.data())
def test_equals_the_oracle_on_drawn_shapes(shape: ConvShape, pass_: str, data: st.DataObject) -> None:
    images = data.draw(st.integers(1, shape.images), "images at a time")
    inputs = inputs_of(pass_, shape, seed=shape.flops)
    np.testing.assert_array_equal(run(pass_, shape, inputs, images), expected(pass_, shape, inputs))


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("case", ["plain", "odd", "primes", "one output, padded"])
def test_close_to_torch_on_real_numbers(pass_: str, case: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the second oracle")
    shape = shape_of(AWKWARD[case])
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(a.shape, dtype=np.float32) for a in inputs_of(pass_, shape)]
    given_, how = [torch.from_numpy(a) for a in inputs], {"stride": shape.stride, "padding": shape.pad}
    if pass_ == "forward":
        want = torch.nn.functional.conv2d(*given_, **how)
    elif pass_ == "backward_data":
        want = torch.nn.grad.conv2d_input(shape.x_shape, given_[1], given_[0], **how)
    else:
        want = torch.nn.grad.conv2d_weight(given_[0], shape.w_shape, given_[1], **how)
    np.testing.assert_allclose(run(pass_, shape, inputs), want.numpy(), rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("pass_", PASSES)
def test_rounds_no_worse_than_the_direct_way(pass_: str) -> None:
    """The transforms lose a little, but the sums are nine (four) times shorter: against float64 it comes out ahead."""
    shape = ConvShape.of((2, 64, 14, 14), (64, 64, 3, 3), (1, 1), (1, 1))
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal(a.shape, dtype=np.float32) for a in inputs_of(pass_, shape)]
    direct = np.empty(out_shape(pass_, shape), np.float32)
    getattr(conv, pass_)(*inputs, direct, *shape.walk, "direct")
    want = expected(pass_, shape, inputs)
    assert np.linalg.norm(run(pass_, shape, inputs) - want) < np.linalg.norm(direct - want)


def test_forward_without_a_bias() -> None:
    shape = shape_of(AWKWARD["odd"])
    x, w, _ = inputs_of("forward", shape)
    np.testing.assert_array_equal(run("forward", shape, [x, w, None]), expected("forward", shape, [x, w, None]))


@pytest.mark.parametrize("pass_", PASSES)
def test_any_number_of_images_gives_the_same_bits(pass_: str) -> None:
    shape = ConvShape.of((7, 18, 9, 8), (17, 18, 3, 3), (1, 1), (1, 0))
    rng = np.random.default_rng(5)
    inputs = [rng.standard_normal(a.shape, dtype=np.float32) for a in inputs_of(pass_, shape)]
    whole = run(pass_, shape, inputs)
    for images in range(1, shape.images):
        np.testing.assert_array_equal(run(pass_, shape, inputs, images), whole, err_msg=f"{images} images at a time")


def test_workspace_bytes_by_the_formula() -> None:
    shape = ConvShape.of((32, 64, 55, 30), (128, 64, 3, 3), (1, 1), (0, 1))
    y_tiles, x_tiles, pairs = 27 * 15, 28 * 15, 128 * 64 + 16
    for i in (1, 5, 32):
        y_maps, x_maps = (i * tiles * 128 + 16 + i * tiles * 64 + 16 for tiles in (y_tiles, x_tiles))
        assert winograd.workspace_bytes("forward", shape, i) == 64 * (pairs + y_maps)
        assert winograd.workspace_bytes("backward_data", shape, i) == 64 * (pairs + x_maps)
        images = i * (y_tiles * 128 + 16 + y_tiles * 64 + 16 + pairs)
        assert winograd.workspace_bytes("backward_filter", shape, i) == 64 * (pairs + images)
    for pass_ in PASSES:
        sizes = [winograd.workspace_bytes(pass_, shape, i) for i in range(1, 33)]
        assert sizes == sorted(set(sizes)) and sizes[-1] == winograd.workspace_bytes(pass_, shape)


def test_planes_are_an_odd_number_of_lines_apart() -> None:
    for size in (*range(1, 70), 64 * 64, 512 * 1024 + 1):
        lines, rest = divmod(winograd.plane(size), 16)
        assert rest == 0 and lines % 2 == 1 and size <= 16 * lines < size + 32


def test_a_workspace_between_two_sizes_holds_the_smaller_number_of_images() -> None:
    shape = shape_of(AWKWARD["primes"])
    for pass_ in PASSES:
        for images in range(1, shape.images + 1):
            need = winograd.workspace_bytes(pass_, shape, images) // 4
            assert winograd._step(pass_, shape, need) == images
            assert winograd._step(pass_, shape, need - 1) == images - 1
        assert winograd._step(pass_, shape, 100 * need) == shape.images


def test_a_batch_too_large_to_be_indexed_is_cut() -> None:
    shape = ConvShape.of((128, 64, 224, 224), (64, 64, 3, 3), (1, 1), (1, 1))
    most = winograd._step("forward", shape, LARGEST)
    sizes = [4 * winograd._floats("forward", shape, i) for i in (most, most + 1)]
    assert sizes[0] <= 4 * LARGEST < sizes[1]
    assert winograd.workspace_bytes("forward", shape) == winograd.workspace_bytes("forward", shape, 128) == sizes[0]


def test_more_images_than_a_grid_has_rows() -> None:
    shape = ConvShape.of((4095 + 2, 1, 1, 1), (1, 1, 3, 3), (1, 1), (1, 1))
    inputs = inputs_of("backward_filter", shape)
    got = run("backward_filter", shape, inputs)
    np.testing.assert_array_equal(got, expected("backward_filter", shape, inputs))


@pytest.mark.parametrize(
    ("w_shape", "stride", "pad", "says"),
    [
        ((4, 3, 5, 5), (1, 1), (1, 1), ("3×3", "5×5")),
        ((4, 3, 3, 1), (1, 1), (1, 1), ("3×3", "3×1")),
        ((4, 3, 3, 3), (2, 2), (1, 1), ("stride", 1, (2, 2))),
        ((4, 3, 3, 3), (1, 2), (1, 1), ("stride", 1, (1, 2))),
        ((4, 3, 3, 3), (1, 1), (0, 3), (2, (0, 3))),
    ],
)
@pytest.mark.parametrize("pass_", PASSES)
def test_refuses_what_it_does_not_serve(pass_: str, w_shape: Any, stride: Any, pad: Any, says: Any) -> None:
    with raises_naming(KernelError, "winograd", *says):
        conv.workspace_bytes(pass_, (2, 3, 9, 9), w_shape, stride, pad, algorithm="winograd")


def test_refuses_an_image_too_large_to_be_indexed() -> None:
    shape = ConvShape.of((1, 64, 2048, 2048), (64, 64, 3, 3), (1, 1), (1, 1))
    need = 16 * (64 * 64 + 16 + 2 * (64 * 1024 * 1024 + 16))
    reason = f"the workspace of one image has {need} elements; at most {LARGEST} can be indexed"
    assert winograd.why_not("forward", shape) == reason


@pytest.mark.parametrize("pass_", PASSES)
def test_refuses_less_than_one_image(pass_: str) -> None:
    shape = shape_of(AWKWARD["plain"])
    out = np.zeros(out_shape(pass_, shape), np.float32)
    need = winograd.workspace_bytes(pass_, shape, 1)
    for workspace in (None, np.zeros(need // 4 - 1, np.float32)):
        with raises_naming(KernelError, "winograd", "workspace", need):
            getattr(conv, pass_)(*inputs_of(pass_, shape), out, *shape.walk, "winograd", workspace)
    assert not out.any()

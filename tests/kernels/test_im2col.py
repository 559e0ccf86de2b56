"""Convolution by explicit columns: its own kernels against NumPy, and the three passes against the oracles.

Most inputs are small whole numbers: then every sum is exact in float32 whatever its order, and results must be equal.
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
from kernels.fast.conv import im2col
from kernels.targets import cpu
from kernels.targets.launch import ceil_div, launch
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

# images, channels, height, width, filters, filter height, filter width, stride, pad
AWKWARD = {
    "plain": (2, 3, 8, 8, 4, 3, 3, (1, 1), (1, 1)),
    "one of everything": (1, 1, 1, 1, 1, 1, 1, (1, 1), (0, 0)),
    "pointwise": (5, 3, 7, 5, 4, 1, 1, (1, 1), (0, 0)),
    "1×1, stride 2": (3, 4, 7, 6, 2, 1, 1, (2, 2), (0, 0)),
    "1×1, padded": (2, 2, 3, 3, 3, 1, 1, (1, 1), (1, 2)),
    "filter as large as the map": (3, 4, 5, 7, 6, 5, 7, (1, 1), (0, 0)),
    "filter larger than the map": (2, 1, 1, 2, 3, 5, 5, (1, 1), (2, 2)),
    "stride larger than the filter": (2, 2, 11, 13, 3, 2, 1, (5, 3), (0, 0)),
    "rows left over": (2, 2, 10, 9, 3, 3, 3, (4, 4), (0, 1)),
    "1×7": (2, 2, 3, 17, 3, 1, 7, (1, 2), (0, 3)),
    "7×1": (2, 2, 17, 3, 3, 7, 1, (2, 1), (3, 0)),
    "11×11, stride 4": (2, 3, 23, 27, 5, 11, 11, (4, 4), (2, 2)),
    "primes": (3, 5, 11, 13, 7, 3, 5, (2, 3), (1, 2)),
}


def whole_numbers(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def shape_of(case: tuple[Any, ...]) -> ConvShape:
    n, c, h, w, k, r, s, stride, pad = case
    return ConvShape.of((n, c, h, w), (k, c, r, s), stride, pad)


def columns_by_definition(shape: ConvShape, x: np.ndarray) -> np.ndarray:
    """(images, channels, r, s, p, q), written like the formula."""
    padded = np.pad(x, ((0, 0), (0, 0), *((pad, pad) for pad in shape.pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (shape.filter_height, shape.filter_width), (2, 3))
    return windows[:, :, :: shape.stride[0], :: shape.stride[1]].transpose(0, 1, 4, 5, 2, 3)


def out_shape(pass_: str, shape: ConvShape) -> tuple[int, ...]:
    return {"forward": shape.y_shape, "backward_data": shape.x_shape, "backward_filter": shape.w_shape}[pass_]


def run(pass_: str, shape: ConvShape, inputs: list[Any], images: int | None = None) -> np.ndarray:
    """The pass with room for `images` images.  NaN is in output and workspace before, and stays after the workspace."""
    sizes = (shape.x_shape, shape.w_shape, *shape.walk, "im2col")
    need = conv.workspace_bytes(pass_, *sizes, images=images) // 4
    guarded = np.full(need + 64, np.nan, np.float32)
    out = np.full(out_shape(pass_, shape), np.nan, np.float32)
    getattr(conv, pass_)(*inputs, out, *sizes[2:], guarded[:need] if need else None)
    assert np.isnan(guarded[need:]).all(), "wrote past its workspace"
    return out


def inputs_of(pass_: str, shape: ConvShape, seed: int = 1) -> list[np.ndarray]:
    x, w, b, dy = whole_numbers(seed, shape.x_shape, shape.w_shape, (shape.filters,), shape.y_shape)
    return {"forward": [x, w, b], "backward_data": [dy, w], "backward_filter": [x, dy]}[pass_]


def expected(pass_: str, shape: ConvShape, inputs: list[Any]) -> np.ndarray:
    how: dict[str, Any] = {"stride": shape.stride, "pad": shape.pad}
    if pass_ == "forward":
        x, w, b = inputs
        return reference.conv_forward(x, w, b, **how)
    first, second = inputs
    if pass_ == "backward_data":
        return reference.conv_backward_data(first, second, shape.x_shape, **how)
    return reference.conv_backward_filter(first, second, shape.w_shape, **how)


@pytest.fixture(params=["compiled", "checked"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test runs once as it is, and once with every index checked, threads reversed and local memory full of NaN."""
    with cpu.checked(order="reverse") if request.param == "checked" else nullcontext():
        yield


@pytest.mark.parametrize("case", AWKWARD.values(), ids=AWKWARD.keys())
@pytest.mark.usefixtures("both_ways")
def test_columns_are_the_taps_of_every_output(case: tuple[Any, ...]) -> None:
    shape = shape_of(case)
    (x,) = whole_numbers(0, shape.x_shape)
    want = columns_by_definition(shape, x)
    columns = np.full(want.size + 64, np.nan, np.float32)
    threads = shape.images * shape.channels * shape.out_height * shape.out_width
    launch(im2col.im2col_columns, ceil_div(threads, 256), x, columns, *im2col._geometry(shape, shape.images))
    np.testing.assert_array_equal(columns[: want.size], want.ravel())
    assert np.isnan(columns[want.size :]).all()


@pytest.mark.parametrize("case", AWKWARD.values(), ids=AWKWARD.keys())
@pytest.mark.usefixtures("both_ways")
def test_the_gather_is_the_transpose_of_the_columns(case: tuple[Any, ...]) -> None:
    """Unfolding the inputs' own numbers tells where each column element came from; there NumPy adds it."""
    shape = shape_of(case)
    inputs = np.prod(shape.x_shape)
    origin = columns_by_definition(shape, 1 + np.arange(inputs).reshape(shape.x_shape))
    (columns,) = whole_numbers(0, origin.shape)
    want = np.zeros(1 + inputs)  # number 0 is the padding
    np.add.at(want, origin.ravel(), columns.ravel())
    dx = np.full(shape.x_shape, np.nan, np.float32)
    launch(im2col.im2col_gather, ceil_div(dx.size, 256), columns, dx, *im2col._geometry(shape, shape.images))
    np.testing.assert_array_equal(dx.ravel(), want[1:])


@pytest.mark.usefixtures("both_ways")
def test_partials_are_added_in_ascending_order() -> None:
    partials = np.random.default_rng(0).standard_normal((30, 300), dtype=np.float32)
    assert (partials.cumsum(0)[-1] != partials[::-1].cumsum(0)[-1]).any(), "the order would not show"
    total = np.full(300, np.nan, np.float32)
    im2col.add_partials(partials[:20], total, 300, 20, False, None)
    im2col.add_partials(partials[20:], total, 300, 10, True, None)
    np.testing.assert_array_equal(total, partials.cumsum(0)[-1])


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("case", AWKWARD.values(), ids=AWKWARD.keys())
def test_equals_the_oracle_on_awkward_shapes(pass_: str, case: tuple[Any, ...]) -> None:
    shape = shape_of(case)
    inputs = inputs_of(pass_, shape)
    np.testing.assert_array_equal(run(pass_, shape, inputs), expected(pass_, shape, inputs))


@st.composite
def shapes(draw: st.DrawFn) -> ConvShape:
    def size(largest: int) -> int:
        return draw(st.integers(1, largest))

    pad = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    r, s = size(5), size(5)
    h, w = max(size(12), r - 2 * pad[0]), max(size(12), s - 2 * pad[1])
    channels = size(5)
    return ConvShape.of((size(4), channels, h, w), (size(6), channels, r, s), (size(4), size(4)), pad)


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), pass_=st.sampled_from(PASSES), data=st.data())
def test_equals_the_oracle_on_drawn_shapes(shape: ConvShape, pass_: str, data: st.DataObject) -> None:
    images = data.draw(st.integers(1, shape.images), "images at a time")
    inputs = inputs_of(pass_, shape, seed=shape.flops)
    np.testing.assert_array_equal(run(pass_, shape, inputs, images), expected(pass_, shape, inputs))


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("case", ["plain", "primes", "1×1, stride 2", "pointwise"])
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
    np.testing.assert_allclose(run(pass_, shape, inputs), want.numpy(), rtol=1e-5, atol=2e-5)


def test_forward_without_a_bias() -> None:
    shape = shape_of(AWKWARD["plain"])
    x, w, _ = inputs_of("forward", shape)
    np.testing.assert_array_equal(run("forward", shape, [x, w, None]), expected("forward", shape, [x, w, None]))


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("pointwise", [False, True])
def test_any_number_of_images_gives_the_same_bits(pass_: str, pointwise: bool) -> None:
    shape = ConvShape.of((7, 5, 9, 8), (6, 5, 1, 1) if pointwise else (6, 5, 3, 3), (1, 1), (0, 0))
    rng = np.random.default_rng(5)
    inputs = [rng.standard_normal(a.shape, dtype=np.float32) for a in inputs_of(pass_, shape)]
    whole = run(pass_, shape, inputs)
    np.testing.assert_allclose(whole, expected(pass_, shape, inputs), rtol=1e-5, atol=2e-5)
    for images in range(1, shape.images):
        np.testing.assert_array_equal(run(pass_, shape, inputs, images), whole, err_msg=f"{images} images at a time")


def test_a_workspace_between_two_sizes_holds_the_smaller_number_of_images() -> None:
    shape = shape_of(AWKWARD["primes"])
    for pass_ in PASSES:
        two = im2col.workspace_bytes(pass_, shape, 2) // 4
        for floats, images in ((two, 2), (two - 1, 1), (two + 1, 2), (100 * two, shape.images)):
            assert im2col._step(pass_, shape, np.empty(floats, np.float32)) == images


def test_workspace_bytes_by_the_formula() -> None:
    shape = ConvShape.of((32, 3, 224, 224), (64, 3, 11, 11), (4, 4), (2, 2))
    columns, dw = 3 * 121 * 55 * 55, 64 * 3 * 121
    for images in (1, 5, 32):
        assert im2col.workspace_bytes("forward", shape, images) == 4 * images * columns
        assert im2col.workspace_bytes("backward_data", shape, images) == 4 * images * columns
        assert im2col.workspace_bytes("backward_filter", shape, images) == 4 * images * (columns + dw)
    for pass_ in PASSES:
        sizes = [im2col.workspace_bytes(pass_, shape, images) for images in range(1, 33)]
        assert sizes == sorted(set(sizes)) and sizes[-1] == im2col.workspace_bytes(pass_, shape)


def test_a_pointwise_convolution_needs_columns_only_where_the_map_differs() -> None:
    pointwise = ConvShape.of((8, 16, 10, 10), (32, 16, 1, 1))
    assert im2col.workspace_bytes("forward", pointwise) == im2col.workspace_bytes("backward_data", pointwise) == 0
    assert im2col.workspace_bytes("backward_filter", pointwise) == 4 * 8 * 32 * 16
    strided = ConvShape.of((8, 16, 10, 10), (32, 16, 1, 1), (2, 1))
    assert im2col.workspace_bytes("forward", strided) == 4 * 8 * 16 * 5 * 10


def test_a_batch_too_large_to_be_indexed_is_cut() -> None:
    shape = ConvShape.of((128, 64, 224, 224), (64, 64, 3, 3), (1, 1), (1, 1))
    each = im2col.workspace_bytes("forward", shape, 1)
    assert im2col.workspace_bytes("forward", shape) == LARGEST * 4 // each * each < 128 * each


def test_more_images_than_a_grid_has_rows() -> None:
    shape = ConvShape.of((65536 + 3, 1, 1, 1), (1, 1, 1, 1))
    inputs = inputs_of("forward", shape)
    np.testing.assert_array_equal(run("forward", shape, inputs), expected("forward", shape, inputs))


def test_refuses_an_image_too_large_to_be_indexed() -> None:
    shape = ConvShape.of((1, 16, 4096, 4096), (1, 16, 3, 3), (1, 1), (1, 1))
    reason = f"the workspace of one image has {16 * 9 * 4096 * 4096} elements; at most {LARGEST} can be indexed"
    assert im2col.why_not("forward", shape) == reason
    with raises_naming(KernelError, "im2col", reason):
        conv.workspace_bytes("forward", shape.x_shape, shape.w_shape, *shape.walk, "im2col")


@pytest.mark.parametrize("pass_", PASSES)
def test_refuses_less_than_one_image(pass_: str) -> None:
    shape = shape_of(AWKWARD["plain"])
    out = np.zeros(out_shape(pass_, shape), np.float32)
    need = im2col.workspace_bytes(pass_, shape, 1)
    for workspace in (None, np.zeros(need // 4 - 1, np.float32)):
        with raises_naming(KernelError, "im2col", "workspace", need):
            getattr(conv, pass_)(*inputs_of(pass_, shape), out, *shape.walk, "im2col", workspace)
    assert not out.any()

"""Convolution by explicit columns: its workspace, its sums' order, and what it refuses; `test_conv` has its shapes."""

from __future__ import annotations

import numpy as np

from kernels.checks.arguments import LARGEST, KernelError
from kernels.checks.conv_shape import PASSES, ConvShape
from kernels.fast import conv
from kernels.fast.conv import im2col
from tests.kernels.fast.test_conv import AWKWARD, check_against_plain, shape_of
from tests.messages import raises_naming


def test_more_images_than_a_grid_has_rows() -> None:
    check_against_plain("forward", ConvShape.of((65536 + 3, 1, 1, 1), (1, 1, 1, 1)), "im2col")


def test_partials_are_added_in_ascending_order() -> None:
    partials = np.random.default_rng(0).standard_normal((30, 300), dtype=np.float32)
    assert (partials.cumsum(0)[-1] != partials[::-1].cumsum(0)[-1]).any(), "the order would not show"
    total = np.full(300, np.nan, np.float32)
    im2col.add_partials(partials[:20], total, 300, 20, False, None)
    im2col.add_partials(partials[20:], total, 300, 10, True, None)
    np.testing.assert_array_equal(total, partials.cumsum(0)[-1])


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


def test_refuses_an_image_too_large_to_be_indexed() -> None:
    shape = ConvShape.of((1, 16, 4096, 4096), (1, 16, 3, 3), (1, 1), (1, 1))
    reason = f"the workspace of one image has {16 * 9 * 4096 * 4096} elements; at most {LARGEST} can be indexed"
    assert im2col.why_not("forward", shape) == reason
    with raises_naming(KernelError, "im2col", reason):
        conv.workspace_bytes("forward", shape.x_shape, shape.w_shape, *shape.walk, "im2col")

"""Winograd's convolution beside the plain kernels', its workspace, and what it refuses; `test_conv` has its shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels import conv as plain_conv
from kernels.checks.arguments import LARGEST, KernelError
from kernels.checks.conv_shape import PASSES, ConvShape
from kernels.fast import conv
from kernels.fast.conv import winograd
from tests.kernels.fast.test_conv import check_against_plain, inputs_of, outputs_of, run, shape_of
from tests.kernels.operations import NUMPY
from tests.messages import raises_naming


@pytest.mark.parametrize("pass_", PASSES)
def test_rounds_no_worse_than_the_plain_kernels(pass_: str) -> None:
    """The transforms lose a little, but the sums are nine (four) times shorter: against float64 it comes out ahead."""
    shape = ConvShape.of((2, 64, 14, 14), (64, 64, 3, 3), (1, 1), (1, 1))
    inputs = inputs_of(pass_, shape, normal=True)
    plain, exact = outputs_of(shape)[pass_], outputs_of(shape)[pass_]
    getattr(plain_conv, pass_)(*inputs, plain, *shape.walk)
    getattr(NUMPY.conv, pass_)(*inputs, exact, *shape.walk)
    assert np.linalg.norm(run(pass_, shape, inputs, "winograd") - exact) < np.linalg.norm(plain - exact)


def test_more_images_than_a_grid_has_rows() -> None:
    check_against_plain("backward_filter", ConvShape.of((4095 + 2, 1, 1, 1), (1, 1, 3, 3), (1, 1), (1, 1)), "winograd")


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
    shape = shape_of((5, 7, 13, 11, 3, 3, 3, (1, 1), (0, 1)))
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

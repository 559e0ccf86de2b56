"""Convolution with the sums in vector registers: its slices, its two widths of registers, and where it is offered.

That its results are right, for any shape and workspace, `test_conv` shows as for every algorithm.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from kernels.checks.conv_shape import PASSES, ConvShape, Pair
from kernels.fast import conv
from kernels.fast.cpu import vector_direct
from kernels.fast.cpu.vector_direct import AVX2, AVX512
from kernels.targets import cpu
from kernels.targets.launch import ceil_div
from tests.kernels.fast.test_conv import check_against_plain, inputs_of
from tests.matrix import some

MANY = ConvShape.of((70, 3, 6, 5), (5, 3, 3, 3), (1, 1), (1, 1))  #: small maps: slices of 32 images, 2 and a part


def run(pass_: str, shape: ConvShape, images: int | None = None) -> np.ndarray:
    """The pass on normal numbers, with the workspace for `images` at a time."""
    size = conv.workspace_bytes(pass_, shape.x_shape, shape.w_shape, *shape.walk, "vector_direct", images) // 4
    out = {"forward": shape.y_shape, "backward_data": shape.x_shape, "backward_filter": shape.w_shape}[pass_]
    result, workspace = np.full(out, np.nan, np.float32), np.full(size, np.nan, np.float32)
    getattr(conv, pass_)(*inputs_of(pass_, shape, normal=True), result, *shape.walk, "vector_direct", workspace)
    return result


@pytest.mark.parametrize("pass_", PASSES)
def test_several_slices(pass_: str) -> None:
    check_against_plain(pass_, MANY, "vector_direct")


@pytest.mark.parametrize("pass_", ["forward", "backward_data"])
def test_a_map_in_several_stretches_the_last_of_them_short(pass_: str) -> None:
    wide = ConvShape.of((2, 7, 13, 20), (7, 7, 1, 1), (1, 1), (0, 0))
    assert ceil_div(13 * 20, 2 * AVX512.lanes) % 2
    with mock.patch.object(vector_direct, "CACHED", 2 * 7 * 2 * AVX512.lanes):  # room for two strips
        check_against_plain(pass_, wide, "vector_direct")


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pass_", PASSES)
def test_less_workspace_changes_no_bit(pass_: str, stride: int) -> None:
    shape = ConvShape.of(MANY.x_shape, MANY.w_shape, (stride, stride), (1, 1))
    whole = run(pass_, shape)
    for images in (1, 31, 32, 33, 69):
        np.testing.assert_array_equal(run(pass_, shape, images), whole)


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize(
    ("window", "stride", "pad"),
    [((7, 3), (2, 2), (3, 1)), ((1, 1), (3, 2), (0, 0)), ((2, 5), (3, 2), (0, 2)), ((4, 4), (2, 2), (1, 0)),
     ((11, 11), (4, 4), (2, 2)), ((3, 3), (2, 1), (0, 1, 1, 0)), ((2, 2), (4, 5), (1, 1))],
)  # fmt: skip
def test_every_phase_is_summed_up_and_put_in_its_place(
    pass_: str, window: Pair, stride: Pair, pad: tuple[int, ...]
) -> None:
    """Phases with more and fewer taps, and positions of dx that no tap reaches."""
    check_against_plain(pass_, ConvShape.of((2, 3, 17, 22), (9, 3, *window), stride, pad), "vector_direct")


def test_the_filter_pass_takes_whole_slices() -> None:
    assert vector_direct.slice_images(MANY) == 32
    sizes = [vector_direct.workspace_bytes("backward_filter", MANY, images) for images in (1, 32, 33, 64, 65, 70)]
    assert sizes[0] == sizes[1] < sizes[2] == sizes[3] < sizes[4] == sizes[5]
    large = ConvShape.of((8, 3, 80, 80), (5, 3, 3, 3), (1, 1), (1, 1))
    assert vector_direct.slice_images(large) == 1


WALKS = [(1, 1, 1), (3, 1, 1), (5, 1, 1), (7, 1, 1), (7, 2, 1), (3, 2, 1), (3, 1, 4), (5, 2, 4)]


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("walk", some(WALKS, (3, 1, 1), (5, 2, 4)))
def test_other_registers(walk: tuple[int, int, int], pass_: str) -> None:
    """With the other registers the sums are the same, and in the filter pass in another order."""
    window, stride, groups = walk
    filters = (9, 4, window, window) if groups == 1 else (4, 1, window, window)
    shape = ConvShape.of((3, 4, 9, 11), filters, (stride, stride), (window // 2, window // 2))
    ours, has = run(pass_, shape), cpu.has_avx512()
    with mock.patch.object(cpu, "has_avx512", lambda: not has):
        others = run(pass_, shape)
    if pass_ != "backward_filter":
        np.testing.assert_array_equal(others, ours)
    np.testing.assert_allclose(others, ours, rtol=1e-4, atol=1e-4)


def test_rows_of_lanes_become_vectors() -> None:
    """Whichever registers this processor has: its own kernels are written with them."""
    ours = AVX512 if cpu.has_avx512() else AVX2
    assert "_lanewise(sums, a, b, " in cpu.source_of(ours.sums)
    gradients = cpu.source_of(ours.gradients[3])
    for line in ("_lanewise(sums, d, x, ", "_move(x, flat_x, ", "_move(d, dy, ", "_folded(out, k * "):
        assert line in gradients


def test_what_it_does_not_serve() -> None:
    """The filter pass has a kernel for each width of a phase's filters."""
    assert set(conv.serves((1, 3, 9, 9), (4, 3, 3, 3), (2, 2))["vector_direct"].values()) == {"yes"}
    assert "9" in conv.serves((1, 3, 9, 9), (4, 3, 1, 9))["vector_direct"]["backward_filter"]
    assert conv.serves((1, 3, 9, 9), (4, 3, 1, 9))["vector_direct"]["forward"] == "yes"
    assert conv.serves((1, 3, 9, 9), (4, 3, 1, 9), (1, 2))["vector_direct"]["backward_filter"] == "yes"
    assert "dilated" in conv.serves((1, 3, 9, 9), (4, 3, 3, 3), dilation=(2, 2))["vector_direct"]["forward"]

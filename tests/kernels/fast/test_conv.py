"""Convolution: every algorithm, every pass, every shape it claims, against the plain kernels; and what it refuses.

Most inputs are small whole numbers.  Then every sum is exact in float32 whatever its order (Winograd's too: its
fractions are halves and quarters), and a result must be *equal* to the plain kernels'.  Where the order of summation is
what is tested, inputs are normally distributed, and results must agree with themselves to the last bit.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import conv as plain
from kernels.checks.arguments import LARGEST, KernelError
from kernels.checks.conv_shape import PASSES, ConvShape, Pair, Shape4
from kernels.fast import conv
from kernels.fast.conv import implicit_gemm
from kernels.targets import cpu
from kernels.targets.launch import bind, launch
from tests.messages import raises_naming

Array = np.ndarray

# images, channels, height, width, filters, filter height, filter width, stride, pad[, groups[, dilation]]
AWKWARD = {
    "larger than the map": (2, 9, 1, 2, 3, 5, 5, (1, 1), (2, 2)),
    "padding wider than the filter": (1, 2, 4, 3, 2, 2, 2, (1, 1), (3, 4)),
    "stride larger than the filter": (2, 8, 11, 13, 3, 2, 1, (5, 3), (0, 0)),
    "primes": (3, 5, 11, 13, 7, 3, 5, (2, 3), (1, 2)),
    "more channels than a tile": (1, 150, 4, 5, 3, 3, 3, (1, 1), (1, 1)),
    "a sum in slices": (3, 2, 17, 19, 3, 3, 3, (1, 1), (1, 1)),
    "depthwise": (3, 6, 9, 8, 6, 3, 3, (1, 1), (1, 1), 6),
    "depthwise, stride 2": (2, 5, 9, 8, 5, 3, 3, (2, 2), (0, 0, 1, 1), 5),
    "groups larger than a tile": (1, 20, 5, 6, 140, 3, 3, (2, 1), (1, 1), 2),
    "dilated": (2, 9, 11, 10, 4, 3, 3, (1, 1), (2, 2), 1, (2, 2)),
    "dilated by 3 and 2": (2, 10, 13, 9, 4, 3, 3, (1, 1), (3, 0, 1, 2), 1, (3, 2)),
    "dilated groups": (2, 6, 13, 12, 8, 3, 3, (2, 1), (3, 2), 2, (3, 2)),
}
each_algorithm = pytest.mark.parametrize("algorithm", conv.ALGORITHMS)
each_from_ptx = pytest.mark.parametrize(
    "algorithm",
    [name if name == "vector_direct" else pytest.param(name, marks=pytest.mark.ptx) for name in conv.ALGORITHMS],
)
each_pass = pytest.mark.parametrize("pass_", PASSES)

SLICED = (3, 3, 17, 19, 9, 3, 3, (1, 1), (1, 1))  # all algorithms serve it; 969 terms in backward_filter's sums


def shape_of(case: tuple[Any, ...]) -> ConvShape:
    n, c, h, w, k, r, s, stride, pad, groups, *dilation = case if len(case) > 9 else (*case, 1)
    return ConvShape.of((n, c, h, w), (k, c // groups, r, s), stride, pad, *dilation)


def sizes_of(shape: ConvShape) -> tuple[Shape4, Shape4, Pair, tuple[int, ...], Pair]:
    return shape.x_shape, shape.w_shape, *shape.walk


def inputs_of(pass_: str, shape: ConvShape, seed: int = 0, normal: bool = False) -> list[Array]:
    rng = np.random.default_rng(seed)
    x, w, b, dy = (
        rng.standard_normal(sizes, dtype=np.float32) if normal else rng.integers(-4, 5, sizes).astype(np.float32)
        for sizes in (shape.x_shape, shape.w_shape, (shape.filters,), shape.y_shape)
    )
    return {"forward": [x, w, b], "backward_data": [dy, w], "backward_filter": [x, dy]}[pass_]


def outputs_of(shape: ConvShape) -> dict[str, Array]:
    return {
        pass_: np.full(sizes, np.nan, np.float32)
        for pass_, sizes in zip(PASSES, (shape.y_shape, shape.x_shape, shape.w_shape), strict=True)
    }


def run(pass_: str, shape: ConvShape, inputs: list[Any], algorithm: str, images: int | None = None) -> Array:
    """The pass with room for `images` images.  NaN is in output and workspace before, and stays after the workspace."""
    need = conv.workspace_bytes(pass_, *sizes_of(shape), algorithm, images=images) // 4
    guarded = np.full(need + 64, np.nan, np.float32)
    like = outputs_of(shape)[pass_]
    around = np.full(like.size + 64, np.nan, np.float32)
    out = around[: like.size].reshape(like.shape)
    workspace = guarded[:need] if need else None
    getattr(conv, pass_)(*inputs, out, *shape.walk, algorithm, workspace)
    assert np.isnan(guarded[need:]).all(), "wrote past its workspace"
    assert np.isnan(around[like.size :]).all(), "wrote past its output"
    return out


@cache
def by_plain_kernels(pass_: str, shape: ConvShape, seed: int = 0) -> Array:
    out = outputs_of(shape)[pass_]
    getattr(plain, pass_)(*inputs_of(pass_, shape, seed), out, *shape.walk)
    return out


def check_against_plain(pass_: str, shape: ConvShape, algorithm: str, seed: int = 0, images: int | None = None) -> None:
    """Equal to the plain kernels; or refused with the reason for which the algorithm does not serve the shape."""
    inputs = inputs_of(pass_, shape, seed)
    reason = conv.ALGORITHMS[algorithm].why_not(pass_, shape)
    if reason is None:
        found = run(pass_, shape, inputs, algorithm, images)
        np.testing.assert_array_equal(found, by_plain_kernels(pass_, shape, seed), err_msg=f"{shape}")
    else:
        with pytest.raises(KernelError) as refusal:
            run(pass_, shape, inputs, algorithm)
        assert reason in str(refusal.value)


# --- Right results --------------------------------------------------------------------------------------------------


@each_pass
@each_from_ptx
def test_awkward_shapes(algorithm: str, pass_: str) -> None:
    for case in AWKWARD.values():
        check_against_plain(pass_, shape_of(case), algorithm)


@st.composite
def shapes(draw: st.DrawFn) -> ConvShape:
    def pair(least: int, most: int) -> tuple[int, int]:
        return draw(st.integers(least, most)), draw(st.integers(least, most))

    plain = draw(st.booleans())  # half of the shapes are such that Winograd serves them
    height, width = pair(1, 12)
    pad = (*pair(1, 2), *pair(1, 2)) if plain else (*pair(0, 3), *pair(0, 3))
    r, s = (3, 3) if plain else pair(1, 6)
    dilation = (1, 1) if plain else draw(st.sampled_from([(1, 1), (2, 2), (3, 1), (2, 4)]))
    height = max(height, 1 + dilation[0] * (r - 1) - pad[0] - pad[2])
    width = max(width, 1 + dilation[1] * (s - 1) - pad[1] - pad[3])
    groups = 1 if plain else draw(st.sampled_from([1, 1, 2, 5]))
    depth, filters = draw(st.integers(1, 20 // groups)), groups * draw(st.integers(1, 20 // groups))
    stride = (1, 1) if plain else pair(1, 4)
    x_shape = (draw(st.integers(1, 3)), groups * depth, height, width)
    return ConvShape.of(x_shape, (filters, depth, r, s), stride, pad, dilation)


@each_pass
@each_algorithm
@given(shape=shapes(), seed=st.integers(0, 2**32 - 1), images=st.sampled_from([None, 1]))
def test_any_shape(algorithm: str, pass_: str, shape: ConvShape, seed: int, images: int | None) -> None:
    check_against_plain(pass_, shape, algorithm, seed, images)


# --- The same to the last bit ---------------------------------------------------------------------------------------


@each_pass
@each_from_ptx
def test_from_run_to_run_and_however_many_images_fit(algorithm: str, pass_: str) -> None:
    shape = shape_of(SLICED)
    inputs = inputs_of(pass_, shape, normal=True)
    whole = run(pass_, shape, inputs, algorithm)
    for images in (None, *range(1, shape.images + 1)):
        np.testing.assert_array_equal(run(pass_, shape, inputs, algorithm, images), whole, err_msg=f"{images} images")


#: Tiles of 128 rows are for more outputs than tests have, and their kernels take long to compile.
LARGE_TILES = (pytest.mark.emulated, pytest.mark.slow)


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("few_tiles", [
    pytest.param(implicit_gemm.FEW_TILES, id="64 rows"), pytest.param(0, id="128 rows", marks=LARGE_TILES),
])  # fmt: skip
def test_implicit_gemm_needs_no_workspace_for_the_same_bits(
    few_tiles: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the number of cores matter: without a workspace they share smaller tiles."""
    monkeypatch.setattr(implicit_gemm, "FEW_TILES", few_tiles)
    shape = shape_of((3, 3, 17, 19, 100, 3, 3, (1, 1), (1, 1)))
    count, length = implicit_gemm.slices(shape)
    assert count == 3 and (count - 1) * length < 3 * 17 * 19 <= count * length
    x, dy = inputs_of("backward_filter", shape, normal=True)
    unsplit = np.full(shape.w_shape, np.nan, np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(implicit_gemm, "thread_count", lambda: 1)
        split = run("backward_filter", shape, [x, dy], "implicit_gemm")
        patch.setattr(implicit_gemm, "thread_count", lambda: cores)
        conv.backward_filter(x, dy, unsplit, *shape.walk)
    np.testing.assert_array_equal(split, unsplit)


def test_no_tile_is_half_empty_and_no_core_idle_on_a_cpu() -> None:
    def rows(filters: int, blocks: int, cores: int) -> int:
        return implicit_gemm.rows_on_cpu(64, filters, blocks, cores)

    assert [rows(64, 1, cores) for cores in (1, 2, 64)] == [64, 32, 32]
    assert [rows(64, blocks, 8) for blocks in (4, 5)] == [32, 64]
    assert [rows(filters, 100, 2) for filters in (6, 32, 33, 64, 96, 97)] == [32, 32, 64, 64, 32, 64], "half empty"
    assert implicit_gemm.rows_on_cpu(128, 96, 100, 2) == 128


@pytest.mark.ptx
def test_partial_results_are_added_in_ascending_order() -> None:
    partials = np.random.default_rng(0).standard_normal((40, 300), dtype=np.float32)
    want, reverse = partials.cumsum(0)[-1], partials[::-1].cumsum(0)[-1]
    assert (want != reverse).any(), "the order would not show"
    dw = np.full(300, np.nan, np.float32)
    launch(implicit_gemm.conv_sum_partials, 2, partials, dw, 300, 40)
    np.testing.assert_array_equal(dw, want)


# --- Implicit GEMM: what it chooses ---------------------------------------------------------------------------------


def kernels_of(pass_: str, shape: ConvShape, algorithm: str = "implicit_gemm") -> list[str]:
    """The names of the kernels that an algorithm launches, in order."""
    out, work = outputs_of(shape)[pass_], conv.workspace_bytes(pass_, *sizes_of(shape), algorithm) // 4
    workspace = np.empty(work, np.float32) if work else None
    given = *inputs_of(pass_, shape), out, *shape.walk, algorithm, workspace
    return [each.kernel.name for each in bind(getattr(conv, pass_), *given)]


def test_the_tile_follows_from_the_shape() -> None:
    assert kernels_of("forward", shape_of((1, 3, 9, 9, 8, 3, 3, (1, 1), (0, 0)))) == ["conv_gather_by_table_64"]
    assert kernels_of("forward", shape_of((1, 16, 9, 9, 8, 3, 3, (1, 1), (0, 0)))) == ["conv_gather_by_tap_64"]
    assert kernels_of("backward_data", shape_of((1, 3, 9, 9, 8, 3, 3, (1, 1), (0, 0)))) == ["conv_gather_by_tap_64"]
    assert kernels_of("backward_data", shape_of((1, 3, 9, 9, 8, 3, 3, (2, 1), (0, 0)))) == ["conv_gather_by_tap_64"] * 2
    assert kernels_of("backward_filter", shape_of((1, 3, 9, 9, 8, 3, 3, (1, 1), (0, 0)))) == ["conv_filter_gradient_32"]
    depthwise, square = AWKWARD["depthwise"], AWKWARD["dilated"]
    assert kernels_of("forward", shape_of(depthwise)) == ["conv_gather_in_groups_64"]
    assert kernels_of("backward_filter", shape_of(depthwise)) == ["conv_filter_gradient_in_groups_64"]
    assert kernels_of("forward", shape_of(square)) == ["conv_gather_by_table_64"], "one dilation for both axes"
    assert kernels_of("forward", shape_of(AWKWARD["dilated by 3 and 2"])) == ["conv_gather_in_groups_64"]
    assert kernels_of("backward_filter", shape_of(SLICED)) == ["conv_filter_gradient_32", "conv_sum_partials"]
    assert implicit_gemm.tile_rows(128, 512 * 128) == 128
    assert implicit_gemm.tile_rows(128, 512 * 128 - 128) == 64, "too few tiles"
    assert implicit_gemm.tile_rows(192, 512 * 128) == 64, "a quarter of the rows would be for nothing"


def test_a_long_sum_is_cut_into_as_many_slices_as_blocks_are_left_for_a_tile() -> None:
    """The weights are a matrix of filters × values a filter; each of its tiles is a block a slice."""
    for filters, channels, groups, rows, tiles in (
        (256, 256, 1, 64, 4 * 18),  # 2304 values: 18 tiles of 128 columns
        (64, 64, 1, 64, 1 * 5),
        (256, 256, 4, 64, 4 * 1 * 5),
    ):
        shape = shape_of((64, channels, 56, 56, filters, 3, 3, (1, 1), (1, 1), groups))
        assert implicit_gemm.gradient_rows(shape) == rows
        count, length = implicit_gemm.slices(shape)
        assert count == implicit_gemm.BLOCKS // tiles and (count - 1) * length < 64 * 56 * 56 <= count * length


@each_pass
@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_cpu_has_kernels_for_depthwise_filters_of_3_and_5(stride: int, side: int, pass_: str) -> None:
    shape = shape_of((2, 3, 9, 8, 3, side, side, (stride, stride), (side // 2, side // 2), 3))
    name = f"conv_depthwise_{pass_}_{side}x{side}" + ("" if stride == 1 else "_strided")
    if (stride, side, pass_) == (2, 5, "backward_data"):
        name = "conv_grouped_backward_data"  # it gains nothing
    assert kernels_of(pass_, shape, "direct") == [name]


@pytest.mark.ptx
@pytest.mark.emulated
@pytest.mark.slow
@each_pass
def test_tiles_of_128_rows(pass_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implicit_gemm, "FEW_TILES", 0)
    monkeypatch.setattr(implicit_gemm, "thread_count", lambda: 1)
    for case in ((2, 100, 5, 6, 120, 3, 3, (1, 1), (1, 1)), (2, 66, 7, 6, 65, 3, 2, (2, 1), (1, 0))):
        shape = shape_of(case)
        assert any(name.endswith("_128") for name in kernels_of(pass_, shape))
        check_against_plain(pass_, shape, "implicit_gemm")


@given(
    size=st.integers(1, 20),
    filter_size=st.integers(1, 9),
    stride=st.integers(1, 6),
    pad=st.integers(0, 5),
    dilation=st.integers(1, 6),
)
def test_phases_meet_every_input_once_and_every_pair_of_input_and_tap(
    size: int, filter_size: int, stride: int, pad: int, dilation: int
) -> None:
    """Input h and tap r belong to output p exactly where h + pad = p·stride + r·dilation."""
    found: Counter[tuple[int, int, int]] = Counter()
    inputs: Counter[int] = Counter()
    for phase in implicit_gemm.phases(size, filter_size, stride, pad, dilation):
        for t, i in itertools.product(range(phase.count), range(phase.taps)):
            found[phase.first + t * stride, phase.tap + i * phase.step, phase.source + t + i * phase.lead] += 1
        inputs.update(phase.first + t * stride for t in range(phase.count))
    everything = itertools.product(range(size), range(filter_size))
    met = {(h, r): h + pad - r * dilation for h, r in everything}
    want = {(h, r, place // stride): 1 for (h, r), place in met.items() if place % stride == 0}
    assert found == want
    assert inputs == dict.fromkeys(range(size), 1)


@pytest.mark.emulated
@pytest.mark.slow
def test_checked() -> None:
    """Every index inside its array, nothing read before it is written, and no thread ahead of another."""
    with cpu.checked(order="reverse"):
        for pass_, algorithm in itertools.product(PASSES, ("direct", "implicit_gemm")):
            cases = AWKWARD["depthwise, stride 2"], AWKWARD["dilated groups"], AWKWARD["dilated by 3 and 2"], SLICED
            for case in ((2, 9, 5, 6, 7, 3, 2, (2, 1), (1, 2)), (1, 3, 7, 5, 66, 3, 3, (1, 1), (1, 1)), *cases):
                check_against_plain(pass_, shape_of(case), algorithm)


# --- Workspace, and refusals ----------------------------------------------------------------------------------------


@each_pass
@each_algorithm
def test_one_byte_too_few_is_refused(algorithm: str, pass_: str) -> None:
    shape = shape_of(SLICED)
    inputs = inputs_of(pass_, shape)
    out = np.zeros_like(outputs_of(shape)[pass_])

    def call(elements: int) -> None:
        workspace = np.zeros(elements, np.float32) if elements else None
        getattr(conv, pass_)(*inputs, out, *shape.walk, algorithm, workspace)

    least = conv.minimum_workspace_bytes(pass_, *sizes_of(shape), algorithm)
    need = conv.workspace_bytes(pass_, *sizes_of(shape), algorithm, images=1)
    call(least // 4)
    if least:
        with raises_naming(KernelError, "workspace", least, 0):
            call(0)
    if need > 4:
        with raises_naming(KernelError, algorithm, "workspace", need, need - 4):
            call(need // 4 - 1)


def test_the_algorithms_that_need_no_workspace() -> None:
    sizes = sizes_of(shape_of(SLICED))
    for pass_, algorithm in itertools.product(PASSES, ("direct", "implicit_gemm")):
        assert conv.minimum_workspace_bytes(pass_, *sizes, algorithm) == 0
    assert conv.workspace_bytes("forward", *sizes) == conv.workspace_bytes("backward_data", *sizes) == 0
    assert conv.workspace_bytes("backward_filter", *sizes) == 3 * 4 * 9 * 3 * 3 * 3


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype)


class OnTheGPU:
    """Looks like a device array; nothing may touch its memory."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(np.float32), len(shape)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (0, False), "version": 3}


X, W, B, Y = zeros(2, 3, 8, 8), zeros(4, 3, 3, 3), zeros(4), zeros(2, 4, 6, 6)


@pytest.mark.parametrize(
    ("change", "says"),
    {
        "misspelt algorithm": ({"algorithm": "implicit_gem"}, ("implicit_gem", "implicit_gemm")),
        "unknown algorithm": ({"algorithm": "fft"}, ("fft", *conv.ALGORITHMS)),
        "output of another shape": ({"y": zeros(2, 4, 8, 8)}, ("y", (2, 4, 8, 8), (2, 4, 6, 6))),
        "bias of another shape": ({"b": zeros(3)}, ("b", (3,), (4,))),
        "channels that differ": ({"w": zeros(4, 2, 3, 3)}, ("w", 2, "x", 3, "channels")),
        "double precision": ({"x": zeros(2, 3, 8, 8, dtype=np.float64)}, ("x", "float64", "float32")),
        "a list": ({"w": [[1.0]]}, ("w", "list")),
        "gaps": ({"x": zeros(2, 3, 8, 16)[..., ::2]}, ("x", "strides")),
        "a matrix": ({"x": zeros(8, 8)}, ("x", (8, 8), 4)),
        "filter too large": ({"w": zeros(4, 3, 9, 3)}, ("9×3", "8×8")),
        "stride 0": ({"stride": (0, 1)}, ("stride", (0, 1), 2, 1)),
        "one stride": ({"stride": 2}, ("stride", 2)),
        "half a stride": ({"stride": (1.5, 1)}, ("stride", (1.5, 1))),
        "negative padding": ({"pad": (0, -1)}, ("pad", (0, -1), 2, 0)),
        "not all on one device": ({"w": OnTheGPU(4, 3, 3, 3)}, ("x", "CPU", "w", "GPU")),
        "workspace of another type": ({"workspace": zeros(4, dtype=np.int32)}, ("workspace", "int32")),
        "not served": ({"algorithm": "winograd", "stride": (2, 2), "y": zeros(2, 4, 3, 3)}, ("winograd", (2, 2))),
    }.values(),
)
def test_refusals(change: dict[str, Any], says: tuple[object, ...]) -> None:
    arguments = {"x": X, "w": W, "b": B, "y": np.full_like(Y, 7), **change}
    with raises_naming(KernelError, *says):
        conv.forward(**arguments)
    assert (arguments["y"] == 7).all() or "y" in change, "written before it was refused"


def test_arrays_too_large_to_index_are_refused() -> None:
    side = 1 << 15
    with raises_naming(KernelError, "y", LARGEST):
        ConvShape.of((2, 1, side, side // 2), (4, 1, 1, 1))

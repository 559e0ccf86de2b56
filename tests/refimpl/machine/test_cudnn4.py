"""The catalogues `cudnn4` and `cudnn5`: workspaces by hand, conditions, and what is published of vDNN's VGG-16(256)."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given

from refimpl.machine import TITAN_X
from refimpl.machine.catalogues import cudnn4, options
from refimpl.machine.convolution import Convolution
from refimpl.machine.work import Tiling, Work
from refimpl.names import networks as zoo
from refimpl.network import Call
from refimpl.network.accounting import network_wide_bytes
from tests.refimpl.machine.conv_calls import convolutions, passes

GIB = 1 << 30


def named(call: Call) -> dict[str, int]:
    """Algorithm → bytes of workspace."""
    return {o.algorithm: o.workspace_bytes for o in options("cudnn4", call)}


def test_the_fft_workspace_by_hand() -> None:
    # 60 → 64 rows, 33 + 2·2 = 37 → 64 columns: 33 points a row; 7 + 7·4 + 4 = 39 planes
    assert named(passes((7, 1, 60, 33), 4, (5, 5), pad=(0, 2))[2])["FFT"] == 39 * 64 * 33 * 8


@pytest.mark.parametrize(
    ("x", "filters", "window", "logged"),
    [((12, 4, 128, 128), 5, (64, 64), 9_445_376), ((12, 4, 256, 256), 5, (32, 64), 37_502_976)],
)
def test_the_fft_workspace_is_a_tenth_below_two_logs(
    x: tuple[int, int, int, int], filters: int, window: tuple[int, int], logged: int
) -> None:
    # github.com/Theano/Theano, pull request 6348: "dim 12,4,128,128 … filt 5,4,64,64 … ws:9445376"
    workspace = named(passes(x, filters, window)[0])["FFT"]
    assert 0.89 < workspace / logged < 0.91


@pytest.mark.parametrize(
    ("height", "pad", "stride", "has_fft"),
    [(254, 1, 1, True), (255, 1, 1, False), (256, 0, 1, True), (64, 1, 2, False)],
)
def test_fft_wants_stride_1_and_at_most_256_rows(height: int, pad: int, stride: int, has_fft: bool) -> None:
    for call in passes((1, 3, height, 30), 2, (3, 3), (stride, stride), (pad, pad)):
        full = 2 * (call.function == "conv.backward_data" and pad == 0)  # rows more, around dy
        assert ("FFT" in named(call)) == (has_fft and height + full <= 256)


@given(calls=convolutions())
def test_backward_data_transforms_dy_with_a_filter_around_it(calls: list[Call]) -> None:
    """Where each pixel of dx is a sum over a filter's places on dy; "same" convolutions have one size in all passes.

    cuDNN R3 took 3 to 7 times as long backward as forward on three unpadded ones (`convolutions.csv`).
    """
    forward, data, filter_ = (Convolution.of(call) for call in calls)
    assert cudnn4.fft_map(forward) == cudnn4.fft_map(filter_) == forward.padded
    if not cudnn4.fft_walks(data):
        return
    height, width = cudnn4.fft_map(data)
    (down, right), (rows, columns) = data.pad[:2], (data.filter_height, data.filter_width)
    around = 2 * (rows - 1 - down), 2 * (columns - 1 - right)
    assert (height, width) == (data.out_height + around[0], data.out_width + around[1])
    if (2 * down, 2 * right) == (rows - 1, columns - 1):
        assert (height, width) == data.padded


@given(calls=convolutions(largest=300))
def test_workspaces_and_work_are_never_negative(calls: list[Call]) -> None:
    for call in calls:
        for option in options("cudnn4", call):
            assert option.workspace_bytes >= 0
            assert all(work.flops >= 0 and work.nbytes > 0 and work.times > 0 for work in option.work)


def test_vgg16_with_256_images_as_vdnn_counts_it() -> None:
    """28 GB are published; 21.7 GiB are counted without workspace, 26.8 with FFT below 224², 30.8 with FFT there."""
    network = zoo.build("vgg16", 256)
    calls = [call for step in network.steps for call in step.calls if call.choosable]
    fastest = [TITAN_X.choices(call)[0] for call in calls]
    everywhere = [cudnn4.fft_workspace_bytes(Convolution.of(call)) for call in calls]
    totals = [
        network_wide_bytes(network, workspace) / GIB
        for workspace in (0, max(choice.workspace_bytes for choice in fastest), max(everywhere))
    ]
    assert totals == pytest.approx([21.7, 26.8, 30.8], abs=0.06)


def test_on_vgg16_fft_runs_on_the_small_maps_and_never_on_the_largest() -> None:
    network = zoo.build("vgg16", 256)
    for call in (call for step in network.steps for call in step.calls if call.choosable):
        height, algorithm = Convolution.of(call).height, TITAN_X.choices(call)[0].algorithm
        assert height == 112 or (algorithm == "FFT") == (height < 112)


def test_what_each_algorithm_has_to_do_by_hand() -> None:
    """x is 2·3·28·28, w 5·3·3·3 and y 2·5·28·28: 12,679 numbers, and 135 multiply-adds for each place of each image."""
    flops, nbytes, a_map = 2 * 2 * 28 * 28 * 135, 4 * 12_679, 4 * 28 * 28
    columns = 27 * a_map  # of one image: 3 channels at 9 taps; written and read
    points, planes = 32 * 17, 31
    spectra = 8 * points * planes
    by_fft = [
        (planes * 2.5 * 1024 * 10, nbytes + spectra, 3),  # 32² points: 10 steps of halving
        (6 * 2 * 3 * 5 * points, spectra, 1),
    ]
    tiles = ceil(2 * 28 * 28 / 128)  # of 128 rows; every one is wide enough
    widths = (128, 64, 32)

    def cut(rows: int, steps: float, widths: tuple[int, ...] = widths) -> tuple[Tiling, ...]:
        return tuple(Tiling(2 * 128 * width * steps * rows, rows) for width in widths)

    def fft(speed: float) -> tuple[int, list[Work]]:
        return spectra, [Work("products", *numbers, "transforms", speed=speed) for numbers in by_fft]

    found = [
        {one.algorithm: (one.workspace_bytes, [*one.work]) for one in options("cudnn4", call)}
        for call in passes((2, 3, 28, 28), 5, (3, 3), pad=(1, 1))
    ]
    direct = Work("products", flops, nbytes, tilings=cut(tiles, 27 + 44))
    image = tuple(Tiling(2 * one.flops, one.tiles) for one in cut(7, 27 + 44))
    assert found[0] == {
        "IMPLICIT_GEMM": (0, [direct._replace(early=True)]), "IMPLICIT_PRECOMP_GEMM": (a_map, [direct]),
        "GEMM": (columns, [Work("products", flops, nbytes + 2 * 2 * columns, 4, "transforms", tilings=image)]),
        "FFT": fft(1.0), "FFT_TILING": fft(0.5),
    }  # fmt: skip
    cleared = Work("products", 0, 2 * 3 * a_map)
    added = Work("products", flops, nbytes, speed=0.78, tilings=cut(tiles, 5 + 110))
    gathered = Work("products", flops, nbytes, tilings=cut(tiles, 45 + 44, widths[:2]))
    assert found[1] == {
        "ALGO_0": (0, [cleared, added]), "ALGO_1": (a_map, [gathered]), "FFT": fft(1.0), "FFT_TILING": fft(0.5),
    }  # fmt: skip
    parts = 2 * 28 * 28 / 1024
    summed = tuple(Tiling(flops, tiles * parts) for flops, tiles in cut(1, 2 * 28 * 28))
    weights = Work("weights", flops, nbytes, traffic="transforms", tilings=summed)
    assert found[2] == {
        "ALGO_0": (0, [weights._replace(early=True)]), "ALGO_1": (0, [weights._replace(early=True)]),
        "ALGO_3": (a_map, [weights]), "FFT": fft(1.0),
    }  # fmt: skip


@pytest.mark.parametrize("catalogue", ["cudnn4", "cudnn5"])
def test_a_bias_is_added_by_a_kernel_of_its_own(catalogue: str) -> None:
    """Of each algorithm forward, which reads and writes y; backward has none."""
    network = zoo.build("tiny-vgg", 2)
    for call in (call for step in network.steps for call in step.calls if call.family == "conv" and call.choosable):
        conv = Convolution.of(call)
        assert conv.bias == (call.function == "conv.forward")
        add = Work("products", 0, 8 * conv.images * conv.filters * conv.pixels)
        assert all((option.work[-1] == add) == conv.bias for option in options(catalogue, call))


def test_winograd_is_for_3x3_filters_and_multiplies_less() -> None:
    """16 multiplications for 36 fused, 36 for 144 with a workspace; dw has the latter alone."""
    for window, stride in (((3, 3), (1, 1)), ((5, 5), (1, 1)), ((3, 3), (2, 2)), ((3, 1), (1, 1))):
        for call in passes((2, 32, 28, 28), 64, window, stride, (1, 1)):
            more = [one for one in options("cudnn5", call) if one not in options("cudnn4", call)]
            serves = window == (3, 3) and stride == (1, 1)
            expected = ["WINOGRAD"] * (call.function != "conv.backward_filter") + ["WINOGRAD_NONFUSED"]
            assert [one.algorithm for one in more] == (expected if serves else [])
            for one in more:
                work = one.work[-1]
                share = {"WINOGRAD": 16 / 36, "WINOGRAD_NONFUSED": 1 / 4}[one.algorithm]
                assert work.flops == pytest.approx(share * Convolution.of(call).flops)
                assert min(tiling.flops for tiling in work.tilings) >= 0.99 * work.flops and one.workspace_bytes > 0


def test_large_planes_and_tiles_run_at_half_speed_and_tiles_one_after_another() -> None:
    for height, speed in ((126, 1.0), (127, 0.5)):  # with its padding 128, and 129
        forward = passes((1, 1, height, 30), 1, (3, 3), pad=(1, 1))[0]
        whole = next(one for one in options("cudnn4", forward) if one.algorithm == "FFT")
        assert [work.speed for work in whole.work] == [speed, speed]
    forward = passes((1, 1, 61, 30), 1, (3, 3), pad=(1, 1))[0]
    tiled = next(one for one in options("cudnn4", forward) if one.algorithm == "FFT_TILING")
    assert [(work.times, work.speed) for work in tiled.work] == [(9, 0.5), (3, 0.5)]  # three tiles, three planes each
    assert tiled.work[0].flops == 3 * 3 * 2.5 * 1024 * 10 and tiled.work[1].nbytes == 3 * tiled.workspace_bytes

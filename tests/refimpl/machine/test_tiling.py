"""Tiles of a product, counted block by block; and the seconds that a machine makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES, TITAN_X
from refimpl.machine.model import work_of
from refimpl.machine.tiling import AROUND, ROWS, SPLIT, WIDTHS, matrix_tilings, split_tilings, tilings
from refimpl.machine.work import Tiling, Work
from refimpl.names import networks as zoo

SIZES = st.integers(1, 700)


def block_by_block(rows: int, columns: int, steps: float, width: int) -> Tiling:
    """The slow twin: walk over the result, a block at a time, and add up what each multiplies."""
    flops, tiles = 0.0, 0
    for _ in range(0, rows, ROWS):
        for _ in range(0, columns, width):
            flops, tiles = flops + 2 * ROWS * width * steps, tiles + 1
    return Tiling(flops, tiles)


@given(rows=SIZES, columns=SIZES, depth=SIZES, products=st.integers(1, 3))
def test_tiles_are_whole_blocks_of_the_result(rows: int, columns: int, depth: int, products: int) -> None:
    found = tilings(rows, columns, depth, products=products)
    for width, (flops, tiles) in zip(WIDTHS, found, strict=True):
        one = block_by_block(rows, columns, depth + AROUND, width)
        assert (flops, tiles) == (products * one.flops, products * one.tiles)
        assert flops >= products * 2 * rows * columns * depth
    split = split_tilings(rows, columns, depth, products=products)
    whole = tilings(rows, columns, depth, products=products, around=0)
    assert split == tuple(Tiling(flops, tiles * max(1, depth / SPLIT)) for flops, tiles in whole)
    assert set(matrix_tilings(rows, columns, depth)) == {*tilings(rows, columns, depth), *tilings(columns, rows, depth)}


def test_a_kernel_reaches_half_of_its_rate_with_half_tiles_a_multiprocessor() -> None:
    """And nearly all of it with many more; of several ways to cut a product the fastest is taken."""
    machine = replace(TITAN_X, launch_seconds=0.0)
    reached = machine.efficiency
    rate = machine.flops * reached.products
    half = reached.half_tiles * machine.multiprocessors

    def seconds(*cut: Tiling, kind: str = "products", early: bool = False) -> float:
        return machine.work_seconds(Work(kind, 1e12, 0, early=early, tilings=cut))  # type: ignore[arg-type]

    assert seconds(Tiling(1e12, half)) == pytest.approx(2 * 1e12 / rate)
    assert seconds(Tiling(1e12, 100 * half)) == pytest.approx(1.01 * 1e12 / rate)
    assert seconds(Tiling(1e12, half), Tiling(1.2e12, 10 * half)) == pytest.approx(1.1 * 1.2e12 / rate)
    slower = {"weights": reached.weights, "products": 1.0}
    for kind, share in slower.items():
        assert seconds(Tiling(1e12, half), kind=kind) == pytest.approx(2 * 1e12 / rate / share)
    assert seconds(Tiling(1e12, half), early=True) == pytest.approx(2 * 1e12 / rate / reached.early)
    uncounted = replace(machine, efficiency=replace(reached, half_tiles=0.0))
    assert uncounted.work_seconds(Work("products", 1e12, 0, tilings=(Tiling(5e12, 1),))) == pytest.approx(1e12 / rate)


def test_a_fully_connected_layer_is_a_product_of_its_sizes() -> None:
    """Each pass sums over another of images, inputs and outputs; one of few images is slow."""
    steps = [step for step in zoo.build("vgg16", 16).steps if step.layer.name == "fc6"]
    calls = {call.function: call for step in steps for call in step.calls}
    images, inputs, outputs = 16, 25088, 4096
    for name, sizes in {
        "fc.forward": (images, outputs, inputs), "fc.backward_filter": (outputs, inputs, images),
        "fc.backward_data": (images, inputs, outputs),
    }.items():  # fmt: skip
        work = work_of(calls[name])
        assert work.tilings == matrix_tilings(*sizes) and work.flops == 2 * images * inputs * outputs
    bias = work_of(calls["fc.backward_bias"])
    assert not bias.tilings


def test_batch_normalisation_reads_its_map_again() -> None:
    calls = [call for step in zoo.build("resnet50", 2).steps for call in step.calls if call.family == "batchnorm"]
    shares = {call.function: work_of(call).nbytes / call.nbytes for call in calls}
    assert shares["batchnorm.forward"] == 1.5 and shares["batchnorm.backward"] == pytest.approx(5 / 3)


def test_every_machine_counts_tiles_and_every_cpu_none() -> None:
    from refimpl.machine.here import CPU_EFFICIENCY

    assert all(machine.efficiency.half_tiles > 0 for machine in MACHINES.values()) and not CPU_EFFICIENCY.half_tiles

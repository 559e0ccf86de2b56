"""The tables and the picture of docs/how-low.md are what its command makes of the stored rows."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from PIL import Image

import refimpl
from refimpl.points.many_plans import Row, read
from refimpl.studies.grid.rows import fault
from tests.test_docs import script

how_low = script("how_low")
STORED = read(how_low.ROWS, fault)[0].values()


@pytest.mark.matrix  # half a minute of plans, for rows that are stored
def test_the_page_and_the_picture_are_what_the_command_makes_of_its_rows() -> None:
    rows = how_low.Rows(STORED)
    page = how_low.PAGE.read_text(encoding="utf-8")
    assert how_low.rewritten(page, rows) == page, "python docs/how_low.py"
    assert Image.open(how_low.PICTURE).info["Description"] == how_low.described(rows), "python docs/how_low.py"


def test_the_figures_are_monets() -> None:
    figures = how_low.published()
    assert len(figures) == 30 and len({one.network for one in figures}) == 5


def test_momentum_on_the_device_is_beside_their_memory() -> None:
    one = how_low.Published("mobilenetv2", 2, 1.0, 0.0)
    parameters = how_low.build(one.name, 2).parameter_count
    assert one.budget(one.name) == how_low.GIB + 4 * parameters


def test_plain_pytorch_needs_more_than_its_memory_in_decimal_gigabytes() -> None:
    """Weights, gradients, maps and the 8-byte positions of its max pooling, without any workspace."""
    with how_low.FIGURES.open(encoding="utf-8", newline="") as file:
        plain = [one for one in csv.DictReader(file) if one["library"] == "PyTorch 1.5"]
    too_many = 0
    for one in plain:
        network = how_low.build(f"{how_low.BUILDERS}:{one['network']}", int(one["batch"]))
        setup = refimpl.presets.baseline(liveness="layer-wise", algorithms="memory")
        peak = refimpl.plan(network, setup, how_low.GPU, how_low.ENOUGH).peak_bytes
        momentum = sum(tensor.nbytes for tensor in network.resident if tensor.kind == "momentum")
        pooled = [layer for layer in network.layers if layer.kind == "pool" and layer.options["mode"] == "max"]
        needed = peak - momentum + sum(2 * layer.y.nbytes for layer in pooled)
        assert needed < float(one["gb"]) * how_low.GIB
        too_many += needed > float(one["gb"]) * 1e9
    assert too_many == 4


def row(network: str, setup: str, budget: Any, seconds: float | None) -> Row:
    return {
        "network": network, "setup": setup, "machine": how_low.GPU, "budget": str(budget), "batch": 176,
        "budget_bytes": budget, "largest": False, "fits": seconds is not None, "seconds": seconds,
    }  # fmt: skip


def test_the_fewest_words_that_are_enough_count_and_programs_for_less_memory_too() -> None:
    one = how_low.Published("vgg16", 176, 5.0, 4.0)
    name, budget = one.name, one.budget(one.name)
    baseline = row(name, "baseline", how_low.ENOUGH, 100.0)

    def ours(*rows: Row) -> tuple[float | None, str]:
        found, network = how_low.Rows([*rows, baseline]).ours(one)
        return found and round(found), network

    cut, leaner = how_low.CUT, f"{name}:positions"
    assert ours(row(name, cut, budget, None)) == (None, "")
    assert ours(row(name, cut, budget + 1, 101.0)) == (None, "")
    assert ours(row(leaner, cut, budget, 102.0), row(name, cut, budget, 103.0)) == (3, name)
    assert ours(row(leaner, cut, budget, 102.0), row(name, cut, budget, 106.0)) == (2, leaner)
    assert ours(row(leaner, cut, budget, 107.0), row(name, cut, budget, 106.0)) == (6, name)
    assert ours(row(name, cut, budget, 106.0), row(name, cut, budget - 1, 105.0)) == (5, name)

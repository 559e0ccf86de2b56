"""Time and memory by type of layer: the published shares, and the rule that gives them."""

from __future__ import annotations

from itertools import chain
from statistics import median

import pytest

from refimpl.names.networks import build
from refimpl.studies.reproduce.published import Found, Published
from refimpl.studies.reproduce.superneurons import figures, published
from refimpl.studies.reproduce.superneurons.by_type import (
    STRUCTURE,
    TYPES,
    by_type,
    deviations,
    fitted_cost,
    kernel_seconds,
    misfit,
    needed_bytes,
    share,
)

pytestmark = pytest.mark.superneurons


@pytest.fixture(scope="module")
def found() -> Found:
    return by_type(lambda name: None)


def test_the_memory_of_all_networks_is_met_to_the_last_digit_but_alexnets(found: Found) -> None:
    needs = [figure for figure in found.figures if figure.published.source == published.NEEDS]
    assert len(needs) == 4 + 3 + 3 + 4 * 4
    for figure in needs:
        assert figure.met == (not figure.published.what.startswith("AlexNet"))
        assert not figure.met or figure.ours == pytest.approx(figure.published.value, abs=0.015)


def test_alexnets_shares_are_met_with_a_gradient_of_its_own_for_lrn() -> None:
    """The claim in the documentation: one more tensor for every LRN, as large as its output."""
    alexnet = figures.network("alexnet")
    needed = needed_bytes(alexnet)
    needed["LRN"] += sum(layer.y.nbytes for layer in alexnet.layers if layer.kind == "lrn")
    for kind, figure in published.MEMORY_SHARES["alexnet"].items():
        assert share(needed, kind) == pytest.approx(figure.value, abs=0.015)


def test_one_fixed_cost_brings_the_shares_of_time_from_79_to_18_per_cent(found: Found) -> None:
    """And those of the layers that are calls of a library, which are all but DROPOUT and SOFTMAX, to 7 %."""
    times = [figure for figure in found.figures if figure.published.source == published.TIMES]
    cost = fitted_cost(found.rows)
    assert cost == pytest.approx(25e-3, rel=0.03)
    assert len(times) == 44 and sum(figure.met for figure in times) == 24
    before, after = (deviations(found.rows, seconds) for seconds in (0.0, cost))
    of_all = [median(chain.from_iterable(apart.values())) for apart in (before, after)]
    assert of_all == pytest.approx([0.79, 0.18], abs=0.01)
    simple = [apart for kind, apart in after.items() if kind not in ("DROPOUT", "SOFTMAX")]
    assert median(chain.from_iterable(simple)) == pytest.approx(0.074, abs=0.005)
    assert [abs(figure.deviation) for figure in times] == pytest.approx(
        [abs(share(row.seconds(cost), kind) / theirs.value - 1)
         for row in found.rows for kind, theirs in published.TIME_SHARES[row.network].items()]
    )  # fmt: skip


def test_the_fitted_cost_has_the_least_misfit(found: Found) -> None:
    cost = fitted_cost(found.rows)
    assert all(misfit(found.rows, cost) <= misfit(found.rows, cost * factor) for factor in (0.5, 0.99, 1.01, 2))


def test_a_cost_that_was_put_in_is_found_again(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {
        row.network: {
            kind: Published("", share(row.seconds(3e-3), kind), "%", "D", "")
            for kind in row.kernel_seconds if row.kernel_seconds[kind]
        }
        for row in found.rows
    }  # fmt: skip
    monkeypatch.setattr(published, "TIME_SHARES", shares)
    assert fitted_cost(found.rows) == pytest.approx(3e-3, rel=2e-3)


def test_the_calls_of_a_library_by_hand(found: Found) -> None:
    """Two a layer, forward and backward, and five of a CONV and an FC."""
    resnet = next(row for row in found.rows if row.network == "resnet50")
    assert resnet.calls == {
        "CONV": 5 * 53, "POOL": 2 * 2, "ACT": 2 * 49, "LRN": 0, "BN": 2 * 53, "FC": 5, "DROPOUT": 0, "SOFTMAX": 2,
        STRUCTURE: 2 * (16 + 16),
    }  # fmt: skip
    vgg = next(row for row in found.rows if row.network == "vgg16")
    assert (vgg.calls["CONV"], vgg.calls["FC"], vgg.calls["DROPOUT"]) == (5 * 13, 5 * 3, 2 * 2)


def test_every_network_has_a_row_with_shares_that_add_up(found: Found) -> None:
    assert [row.network for row in found.rows] == [*figures.NETWORKS]
    for row in found.rows:
        for parts in (row.kernel_seconds, row.seconds(1e-3), row.needed_bytes):
            assert sum(share(parts, kind) for kind in parts) == pytest.approx(100)
            assert parts["CONV"] > 0 and parts["SOFTMAX"] > 0


def test_structure_layers_have_no_type_and_a_shared_tensor_counts_for_each_step() -> None:
    tiny = build("tiny-resnet:superneurons", 2)
    assert {layer.kind for layer in tiny.layers} - TYPES.keys() == {"fork", "join"}
    relu = next(layer for layer in tiny.layers if layer.kind == "relu")
    forward, backward = ({*step.uses} for step in (relu.forward, relu.backward))
    assert forward & backward == {relu.x, relu.y}
    steps = [step for step in tiny.steps if step.layer.kind == "relu"]
    assert needed_bytes(tiny)["ACT"] == sum(tensor.nbytes for step in steps for tensor in step.uses)


def test_the_seconds_of_all_types_are_those_of_the_kernels() -> None:
    for name in ("tiny-vgg", "tiny-resnet"):
        program = figures.planned(build(f"{name}:superneurons", 2), figures.FASTEST)
        seconds = kernel_seconds(program)
        assert sum(seconds.values()) == pytest.approx(program.simulate().busy("compute"))
        assert (seconds[STRUCTURE] > 0) == (name == "tiny-resnet")

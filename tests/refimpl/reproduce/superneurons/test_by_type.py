"""Time and memory by type of layer: the published shares, and the rule that gives them."""

from __future__ import annotations

import pytest

from refimpl.network.zoo import build
from refimpl.reproduce.published import Found
from refimpl.reproduce.superneurons import figures, published
from refimpl.reproduce.superneurons.by_type import TYPES, by_type, kernel_seconds, needed_bytes, share

pytestmark = pytest.mark.superneurons


@pytest.fixture(scope="module")
def found() -> Found:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "NETWORKS", {"alexnet": 200, "vgg16": 32, "vgg19": 32, "resnet50": 32})
        return by_type(lambda name: None)


def test_the_memory_of_vgg_and_resnet_is_met_to_the_last_digit_and_alexnets_is_missed(found: Found) -> None:
    needs = [figure for figure in found.figures if figure.published.source == published.NEEDS]
    assert len(needs) == 4 + 3 + 4
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


def test_the_share_of_time_is_that_of_a_model_and_missed(found: Found) -> None:
    times = [figure for figure in found.figures if figure.published.source == published.TIMES]
    assert len(times) == 7 + 6 + 6
    met = [figure.published.what for figure in times if figure.met]
    assert met == ["ResNet-50, POOL: share of time"]


def test_every_network_has_a_row_with_shares_that_add_up(found: Found) -> None:
    assert [row.network for row in found.rows] == ["alexnet", "vgg16", "vgg19", "resnet50"]
    for row in found.rows:
        for parts in (row.seconds, row.needed_bytes):
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


def test_the_seconds_of_all_types_are_those_of_the_kernels_but_the_structure_layers() -> None:
    chain = figures.planned(build("tiny-vgg:superneurons", 2), figures.FASTEST)
    assert sum(kernel_seconds(chain).values()) == pytest.approx(chain.simulate().busy("compute"))
    forked = figures.planned(build("tiny-resnet:superneurons", 2), figures.FASTEST)
    assert sum(kernel_seconds(forked).values()) < forked.simulate().busy("compute")

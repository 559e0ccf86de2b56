"""The order of the steps: depth first, each layer after all that lead to it."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings

from refimpl.names.networks import build
from refimpl.network import VDNN, Network
from refimpl.network.routes import depth_first
from tests.refimpl.drawn_networks import networks


def test_the_route_of_the_paper() -> None:
    """SuperNeurons' example of an execution order: its graph, its two answers."""
    before, after = defaultdict(list), defaultdict(list)
    for edge in ("ab", "bc", "bd", "ce", "df", "fg", "fh", "ei", "gi", "hi", "ij"):
        after[edge[0]].append(edge[1])
        before[edge[1]].append(edge[0])
    assert "".join(depth_first("a", before.__getitem__, after.__getitem__)) == "abcedfghij"
    assert "".join(depth_first("j", after.__getitem__, before.__getitem__)) == "jiecghfdba"


def test_on_a_chain_backward_runs_forward_reversed() -> None:
    for name in ("vgg16", "alexnet:superneurons"):
        network = build(name, 1)
        for i, layer in enumerate(network.layers, 1):
            assert (layer.forward.number, layer.backward.number) == (i, 2 * network.depth + 1 - i)


def elsewhere(network: Network) -> int:
    """Layers whose backward is not at the mirrored place."""
    return sum(layer.backward.number != 2 * network.depth + 1 - layer.forward.number for layer in network.layers)


def test_on_a_forked_network_it_need_not() -> None:
    network = build("resnet50:superneurons", 1)
    assert (elsewhere(network), network.depth) == (40, 191)
    assert elsewhere(build("resnet50", 1)) == 0


@given(networks(layers=40))
@settings(max_examples=15)
def test_every_layer_behind_all_that_lead_to_it(network: Network) -> None:
    """And every layer once each way, its number its position."""
    assert [step.number for step in network.steps] == list(range(1, 2 * network.depth + 1))
    assert [step.layer for step in network.steps[: network.depth]] == network.layers
    assert {step.layer for step in network.steps[network.depth :]} == set(network.layers)
    for layer in network.layers:
        assert network.steps[layer.forward.number - 1] is layer.forward and layer.forward.forward
        assert network.steps[layer.backward.number - 1] is layer.backward and not layer.backward.forward
        for producer in layer.producers:
            if producer.kind != "data":
                assert producer.forward.number < layer.forward.number
                assert producer.backward.number > layer.backward.number


@given(networks(layers=20, conventions=VDNN))
@settings(max_examples=10)
def test_without_a_route_of_its_own_backward_is_forward_reversed(network: Network) -> None:
    assert elsewhere(network) == 0

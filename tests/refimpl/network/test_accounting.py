"""The static baselines: their formulas, computed from the layers by other code, and the figures that are published."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given

from refimpl.names.networks import build
from refimpl.network import SUPERNEURONS, VDNN, Network
from refimpl.network.accounting import network_wide, network_wide_bytes
from tests.refimpl.drawn_networks import networks

MIB, GIB = 2**20, 2**30


def by_hand(network: Network) -> int:
    """vDNN's formula, from shapes alone: ΣW + ΣdW + ΣX, and two buffers of the largest dY."""
    weights = sum(4 * prod(p.weight.shape) for _, _, p in network.parameters())
    maps = [4 * prod(layer.shape) for layer in network.layers if not layer.in_place]
    # In place, and the first layer's, which is not computed, are no gradient maps; nor is the last one's input's.
    largest = max(4 * prod(layer.shape) for layer in network.layers[:-2])
    return 2 * weights + 4 * prod(network.input.shape) + sum(maps) + 2 * largest


@pytest.mark.parametrize("name", ["alexnet", "overfeat", "vgg16", "vgg116"])
def test_vdnn_on_a_chain(name: str) -> None:
    network = build(name)
    assert network_wide_bytes(network) == by_hand(network)
    assert network_wide_bytes(network, workspace_bytes=12345) == by_hand(network) + 12345


def test_published_and_derived_figures() -> None:
    vgg = build("vgg16", 256)
    assert f"{network_wide_bytes(vgg) / GIB:.1f}" == "21.7"
    assert f"{vgg.managed_bytes / GIB:.1f}" == "28.9"  # what never releasing a gradient map would come to: no baseline
    parts = network_wide(vgg, workspace_bytes=GIB)
    assert parts["gradient map"] == 2 * vgg.layer("conv1_1").y.nbytes and parts["workspace"] == GIB
    assert parts["weight"] == parts["weight gradient"] == 4 * 138_357_544
    assert f"{network_wide_bytes(build('alexnet:superneurons', 200)) / MIB:.3f}" == "2189.437"


@given(networks(layers=20, conventions=SUPERNEURONS))
def test_superneurons_counts_every_managed_tensor_and_nothing_else(network: Network) -> None:
    assert network_wide_bytes(network) == sum(tensor.nbytes for tensor in network.managed)


@given(networks(layers=20, conventions=VDNN))
def test_vdnn_on_any_network(network: Network) -> None:
    parts = network_wide(network)
    assert parts["weight"] == 4 * network.parameter_count
    assert parts["map"] + sum(t.nbytes for t in network.managed if t.kind == "gradient map") == network.managed_bytes
    assert network_wide_bytes(network) == sum(parts.values())

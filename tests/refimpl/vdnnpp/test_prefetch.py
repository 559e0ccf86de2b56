"""vDNN++'s prefetch: which layer's backward copies which map in."""

from __future__ import annotations

import pytest
from hypothesis import given

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, plan
from refimpl.vdnnpp import ALL, CONV, WINDOW, OffloadInputsOf, static
from tests.refimpl.drawn_networks import networks

pytestmark = pytest.mark.vdnnpp

TITAN_X = MACHINES["titan-x"]
PLENTY = 1 << 40


def prefetched(network: Network, module: OffloadInputsOf) -> dict[str, str]:
    """Map → the layer whose backward copies it in."""
    program = plan(network, static("test", module), TITAN_X, PLENTY)
    return {i.tensor.name: network.steps[i.step - 1].layer.name for i in program.instructions
            if i.op == "copy in" and i.step > network.depth and i.tensor in program.fates}  # fmt: skip


def by_the_authors_code(network: Network, module: OffloadInputsOf) -> dict[str, str]:
    """The twin, for a chain: arrays by layer number, as in the authors' code."""
    layers = list(network.layers)
    offloads = [layer in module.layers(network) for layer in layers]
    done = [False] * len(layers)

    def find_prefetch_layer(current: int) -> int:
        for i in range(current - 1, -1, -1):
            if offloads[i] and not done[i]:
                done[i] = True
                return i
            if layers[i].kind == "conv":
                return -1
        return -1

    found = {}
    for current in range(len(layers) - 1, 0, -1):
        if layers[current].kind not in ("relu", "softmax"):
            number = find_prefetch_layer(current)
            if number >= 0:
                found[layers[number].inputs[0].name] = layers[current].name
    return found


@pytest.mark.parametrize("module", [CONV, ALL], ids=lambda module: module.name)
@pytest.mark.parametrize("name", ["alexnet:vdnnpp", "vgg16:vdnnpp", "vdnnpp-demo"])
def test_the_authors_chains(name: str, module: OffloadInputsOf) -> None:
    network = build(name, 2)
    found = prefetched(network, module)
    assert found == by_the_authors_code(network, module)
    assert len(found) == len(module.layers(network)), "nothing is copied in on demand"


@given(networks())
def test_a_relus_and_a_softmaxs_backward_ask_for_nothing(network: Network) -> None:
    """On any network, forked ones included; each map is prefetched once."""
    context = Context(network, TITAN_X)
    context.decide("offload", "test", ALL.bind(context).offloads())
    bound = WINDOW.bind(context)
    asked = [(step, tensor) for step in network.steps for tensor in bound.due(step)]
    assert all(not step.forward and step.layer.kind not in ("relu", "softmax") for step, _ in asked)
    tensors = [tensor for _, tensor in asked]
    assert len(tensors) == len(set(tensors)) and set(tensors) <= set(context.fates)

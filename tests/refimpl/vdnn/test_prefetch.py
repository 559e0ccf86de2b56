"""vDNN's prefetch window: the nearest layer that offloaded, never beyond the next CONV, one a layer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import Builder, Layer, Network
from refimpl.planner import Context, DoesNotFit, Setup, plan
from refimpl.slots.window import Window
from refimpl.vdnn.offload import ALL, LITERAL, WINDOW
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import setup

pytestmark = pytest.mark.vdnn

GIB = 2**30
TITAN_X = MACHINES["titan-x"]
WINDOWS = st.sampled_from((WINDOW, LITERAL))


def vdnn(window: Window = WINDOW) -> Setup:
    return setup(offload=ALL, prefetch=window, join=True, copy_streams="shared")


def fetched(network: Network, wanted: Setup) -> dict[str, str]:
    """Map → the layer in whose backward step it is copied in, and why."""
    found = {}
    for i in plan(network, wanted, TITAN_X, 60 * GIB).instructions:
        if i.op == "copy in" and i.why != "batch":
            found[i.tensor.name] = f"{network.steps[i.step - 1].layer.name}: {i.why}"
    return found


def chain() -> Network:
    b = Builder("chain", (2, 3, 16, 16))
    for number in (1, 2):
        b.conv(4, 3, pad=1, name=f"conv{number}")
        b.relu(name=f"relu{number}")
        b.pool(2, name=f"pool{number}")
    b.fc(3, name="fc")
    b.softmax(name="softmax")
    return b.build()


def test_a_layers_backward_prefetches_the_nearest_map_and_stops_at_a_conv() -> None:
    """fc's search looks at pool2 first; pool2's own does not search; relu2's finds conv2, and so on."""
    assert fetched(chain(), vdnn()) == {
        "conv2": "softmax: prefetch",  # X of pool2, whose forward sent it; softmax's backward is the first to search
        "pool1": "fc: prefetch",  # X of conv2
        "conv1": "conv2: prefetch",  # X of pool1: everything nearer has come
        "input": "relu1: prefetch",
    }


def test_read_literally_a_pooling_searches_too() -> None:
    """pool2's search comes before relu2's and conv2's, and finds the next map one layer earlier."""
    assert fetched(chain(), vdnn(LITERAL)) == {
        "conv2": "softmax: prefetch",
        "pool1": "fc: prefetch",
        "conv1": "conv2: prefetch",
        "input": "pool1: prefetch",
    }


def test_the_window_ends_at_a_conv_that_sent_nothing() -> None:
    """A CONV that sent nothing hides all layers before it: their maps are not prefetched."""
    b = Builder("hidden", (2, 3, 16, 16))
    b.conv(4, 3, pad=1, name="first")
    b.pool(2, name="pool")
    b.conv(4, 3, pad=1, name="last")
    b.fc(3)
    b.softmax()
    network = b.build()
    bound = WINDOW.bind(context_with_offloads(network, {"first"}))
    last, pool = network.layer("last"), network.layer("pool")
    fc = network.layer("fc1")
    assert bound.find_prefetch_layer(fc) is None  # `last` is a CONV: the search ends there
    assert bound.find_prefetch_layer(last) is pool  # it sent the map `first`
    assert bound.find_prefetch_layer(last) is None  # it is marked; the next one looked at is a CONV


def context_with_offloads(network: Network, names: set[str]) -> Context:
    context = Context(network, TITAN_X)
    context.decide("offload", "test", {t: "test" for t in network.managed if t.name in names})
    return context


def test_vgg16_of_256_images_fits_12_gib_by_one_reading_and_not_by_the_other() -> None:
    network = build("vgg16", 256)
    assert plan(network, vdnn(WINDOW), TITAN_X, 12 * GIB).peak_bytes < 12 * GIB
    with raises_naming(DoesNotFit, "pool1"):
        plan(network, vdnn(LITERAL), TITAN_X, 12 * GIB)


# -- whatever the network ----------------------------------------------------------------------------------------------


def found_by(network: Network, window: Window) -> list[tuple[Layer, Layer]]:
    """(Searching layer, layer that it finds), in backward order, under vDNN-all."""
    context = Context(network, TITAN_X)
    context.decide("offload", "test", ALL.bind(context).offloads())
    bound = window.bind(context)
    sent = {x: network.steps[context.last_forward_use(x) - 1].layer for x in context.fates}
    found = []
    for step in network.steps:
        senders = {sent[x] for x in bound.due(step)}
        assert len(senders) <= 1, "the maps of one layer at most"
        assert not (senders and step.forward), "nothing is prefetched in forward"
        found += [(step.layer, sender) for sender in senders]
    return found


@given(networks(layers=16), WINDOWS)
def test_every_layer_is_found_at_most_once(network: Network, window: Window) -> None:
    senders = [sender for _, sender in found_by(network, window)]
    assert len(senders) == len(set(senders))


@given(networks(layers=16), WINDOWS)
def test_no_search_looks_beyond_the_next_conv(network: Network, window: Window) -> None:
    layers = network.layers
    for n, sender in found_by(network, window):
        between = layers[layers.index(sender) + 1 : layers.index(n)]
        assert layers.index(sender) < layers.index(n)
        assert all(layer.kind != "conv" for layer in between)

"""The last consumer sends: a map leaves once, in the forward of the layer that brings its reference count to 0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.network import Builder, Layer, Network, Tensor
from refimpl.planner import Context
from refimpl.slots.last_consumer import LastConsumerSends
from tests.refimpl.drawn_networks import networks

pytestmark = pytest.mark.vdnn

TITAN_X = MACHINES["titan-x"]
KINDS = st.lists(st.sampled_from(("conv", "pool", "concat", "lrn", "batchnorm", "join")), unique=True)


def forked() -> Network:
    """The map of `trunk` is read by three layers of two kinds, a CONV first."""
    b = Builder("forked", (2, 3, 8, 8))
    trunk = b.conv(4, 3, pad=1, name="trunk")
    first = b.conv(4, 1, name="first")
    second = b.pool(2, 1, name="second", after=trunk)
    third = b.conv(4, 1, name="third", after=trunk)
    b.concat(b.pool(8, mode="average", after=first), b.pool(7, mode="average", after=second),
             b.pool(8, mode="average", after=third))  # fmt: skip
    b.fc(3)
    b.softmax()
    return b.build()


def sends(network: Network, chosen: list[Layer]) -> dict[str, list[str]]:
    """Layer → the maps that it sends."""
    bound = LastConsumerSends(chosen, Context(network, TITAN_X))
    assert not any(bound.leaves(step) for step in network.steps[network.depth :])
    found = {step.layer.name: [x.name for x in bound.leaves(step)] for step in network.steps[: network.depth]}
    return {layer: maps for layer, maps in found.items() if maps}


@pytest.mark.parametrize("chosen", [("first",), ("second",), ("third",), ("first", "second", "third")])
def test_any_chosen_reader_is_enough_and_the_last_reader_sends(chosen: tuple[str, ...]) -> None:
    network = forked()
    assert sends(network, [network.layer(name) for name in chosen]) == {"third": ["trunk"]}


def test_no_chosen_reader_no_offload() -> None:
    network = forked()
    assert sends(network, [network.layer("trunk")]) == {"trunk": ["input"]}
    assert sends(network, []) == {}


def test_a_map_that_has_a_fate_keeps_it() -> None:
    network = forked()
    context = Context(network, TITAN_X)
    dropped = network.layer("trunk").y
    context.decide("drop", "test", {dropped: "test"})
    assert dropped not in LastConsumerSends(network.layers, context).offloads()


def test_the_reason_names_the_first_chosen_reader() -> None:
    network = forked()
    bound = LastConsumerSends([network.layer("second"), network.layer("third")], Context(network, TITAN_X))
    assert bound.offloads() == {network.layer("trunk").y: "an input of second"}


class Refcounts:
    """The paper's counters: each forward read counts down; the layer that reaches 0 may offload."""

    def __init__(self, network: Network, kinds: list[str]) -> None:
        self.sent: dict[str, list[str]] = {}
        readers = {x: [y for y in network.layers if x in y.inputs] for x in network.managed}
        refcount = {x: len(found) for x, found in readers.items()}
        for layer in network.layers:
            for x in (x for x in dict.fromkeys(layer.inputs) if x.managed):
                refcount[x] -= 1
                if refcount[x] == 0 and self._offloads(network, x, [y.kind for y in readers[x]], kinds):
                    self.sent.setdefault(layer.name, []).append(x.name)

    @staticmethod
    def _offloads(network: Network, x: Tensor, readers: list[str], kinds: list[str]) -> bool:
        again = any(x in step.uses for step in network.steps[network.depth :])
        return again and any(kind in kinds for kind in readers)


@given(networks(), KINDS)
def test_the_last_use_is_where_the_paper_counts_to_zero(network: Network, kinds: list[str]) -> None:
    chosen = [layer for layer in network.layers if layer.kind in kinds]
    found = {layer: sorted(maps) for layer, maps in sends(network, chosen).items()}
    assert found == {layer: sorted(maps) for layer, maps in Refcounts(network, kinds).sent.items()}


@given(networks(), KINDS)
def test_a_map_leaves_once_in_forward_and_only_if_backward_needs_it(network: Network, kinds: list[str]) -> None:
    context = Context(network, TITAN_X)
    bound = LastConsumerSends([layer for layer in network.layers if layer.kind in kinds], context)
    leaving = [(x, step) for step in network.steps for x in bound.leaves(step)]
    assert len({x for x, _ in leaving}) == len(leaving) == len(bound.offloads())
    for x, step in leaving:
        assert step.forward and x in step.uses and context.first_backward_use(x)
        assert not any(x in later.uses for later in network.steps[step.number : network.depth])

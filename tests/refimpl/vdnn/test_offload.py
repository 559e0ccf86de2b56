"""vDNN's offload: the consumer's act, on its X, by the last consumer, and never a ReLU's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.memory.tiers import pinned_size
from refimpl.names.networks import build
from refimpl.network import Builder, Layer, Network, Tensor
from refimpl.planner import Context, plan
from refimpl.slots.last_consumer import LastConsumerSends
from refimpl.vdnn import ALL, CONV, OffloadInputs, static
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import leaving

pytestmark = pytest.mark.vdnn

TITAN_X = MACHINES["titan-x"]


def forked() -> Network:
    b = Builder("forked", (2, 3, 8, 8))
    b.conv(4, 3, pad=1, name="a")
    trunk = b.relu()
    left = b.pool(2, 1, name="left")
    b.conv(4, 1, name="b", after=trunk)
    right = b.pool(2, 1, name="right")
    b.concat(left, right)
    b.fc(3)
    b.softmax()
    return b.build()


def test_a_chain_sends_every_convolutions_and_poolings_input_in_its_own_forward() -> None:
    network = build("tiny-vgg", 2)
    convs = {layer.x.name: layer.name for layer in network.layers if layer.kind == "conv"}
    pools = {layer.x.name: layer.name for layer in network.layers if layer.kind == "pool"}
    assert leaving(network, CONV) == convs
    assert leaving(network, ALL) == convs | pools


def test_a_forked_map_leaves_if_any_reader_is_chosen_and_only_with_the_last_one() -> None:
    network = forked()
    order = [layer.name for layer in network.layers]
    assert order.index("left") < order.index("b")
    assert leaving(network, CONV) == {"input": "a", "a": "b"}
    assert leaving(network, ALL) == {"input": "a", "a": "b", "b": "right", "left": "concat1", "right": "concat1"}


def test_all_is_every_map_that_is_a_buffer_of_its_own() -> None:
    """GoogLeNet keeps no map that its feature extraction reads; 603 MiB of them only CONCATs read."""
    network = build("googlenet", 128)
    context = Context(network, TITAN_X)
    kept = set(context.maps_across()) - set(ALL.bind(context).offloads())
    assert {x.name for x in kept} == {"average", "softmax"}
    without = OffloadInputs(("conv", "pool"), "before", "").bind(Context(network, TITAN_X)).offloads()
    assert sum(x.nbytes for x in ALL.bind(context).offloads().keys() - without.keys()) == 603.3125 * 2**20


# -- the last consumer sends: a map leaves once, in the forward of the layer that brings its reference count to 0 ------


KINDS = st.lists(st.sampled_from(("conv", "pool", "concat", "lrn", "batchnorm", "join")), unique=True)


def sends(network: Network, chosen: list[Layer]) -> dict[str, list[str]]:
    """Layer → the maps that it sends."""
    bound = LastConsumerSends(chosen, Context(network, TITAN_X))
    assert not any(bound.leaves(step) for step in network.steps[network.depth :])
    found = {step.layer.name: [x.name for x in bound.leaves(step)] for step in network.steps[: network.depth]}
    return {layer: maps for layer, maps in found.items() if maps}


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


# -- vDNN on the host: one pinned buffer for every offloaded map, fixed before the first iteration ---------------------


@pytest.mark.parametrize(("offload", "gib"), [(ALL, 14.355), (CONV, 8.518)], ids=("all", "conv"))
def test_pinned_memory_is_what_is_offloaded_the_batch_and_the_results(offload: OffloadInputs, gib: float) -> None:
    """VGG-16(256): all (m) has 14.5 GiB of pinned memory, of which the batch is 0.14."""
    network = build("vgg16", 256)
    program = plan(network, static("test", offload), TITAN_X, UNLIMITED)
    maps = [x for x, fate in program.fates.items() if fate.name == "offload" and x is not network.input]
    assert sum(x.nbytes for x in maps) == program.counts.offloaded_bytes
    assert program.counts.offloaded_bytes / 2**30 == pytest.approx(gib, abs=0.001)
    others = {network.input, network.labels, network.losses}
    assert others == set(program.pinned)
    assert program.pinned_bytes == sum(pinned_size(x.nbytes) for x in (*maps, *others))

"""vDNN's offload: the consumer's act, on its X, by the last consumer, and never a ReLU's."""

from __future__ import annotations

import pytest
from hypothesis import given

from refimpl.machine import MACHINES
from refimpl.network import Builder, Network, Tensor
from refimpl.network.zoo import build
from refimpl.planner import PlanContext, plan
from refimpl.vdnn.offload import ALL, CONV, OffloadInputs
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import setup

pytestmark = pytest.mark.vdnn

GIB = 2**30
TITAN_X = MACHINES["titan-x"]


def leaving(network: Network, module: OffloadInputs) -> dict[str, str]:
    """Map → the layer whose forward sends it out."""
    bound = module.bind(PlanContext(network, TITAN_X))
    return {x.name: step.layer.name for step in network.steps for x in bound.leaves(step)}


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


class Refcounts:
    """The paper's own words for it, as a twin: each forward read counts down, and at 0 the map may leave."""

    def __init__(self, network: Network, kinds: tuple[str, ...]) -> None:
        self.sent: dict[str, str] = {}
        readers = {x: [y for y in network.layers if x in y.inputs] for x in network.managed}
        refcount = {x: len(found) for x, found in readers.items()}
        for layer in network.layers:
            for x in (x for x in layer.inputs if x.managed):
                refcount[x] -= 1
                if refcount[x] == 0 and self._offloads(network, x, [y.kind for y in readers[x]], kinds):
                    self.sent[x.name] = layer.name

    @staticmethod
    def _offloads(network: Network, x: Tensor, readers: list[str], kinds: tuple[str, ...]) -> bool:
        again = any(x in step.uses for step in network.steps[network.depth :])
        return again and any(kind in kinds for kind in readers)


@given(networks())
def test_the_last_use_is_where_the_paper_counts_to_zero(network: Network) -> None:
    for module in (ALL, CONV):
        assert leaving(network, module) == Refcounts(network, module.kinds).sent


@pytest.mark.parametrize(("module", "gib"), [(CONV, 1.263), (ALL, 2.803)], ids=lambda value: str(value))
def test_bytes_offloaded_of_googlenet(module: OffloadInputs, gib: float) -> None:
    """Beside the batch; under conv it would be 0.82 GiB if the last reader's kind decided."""
    moving = setup(offload=module, join=True, copy_streams="shared")
    network = build("googlenet", 128)
    program = plan(network, moving, TITAN_X, 60 * GIB)
    assert program.counts.offloaded_bytes / GIB == pytest.approx(gib, abs=0.001)
    assert program.counts.offloaded_bytes == program.counts.on_demand_bytes


def test_all_is_every_map_that_is_a_buffer_of_its_own() -> None:
    """GoogLeNet keeps no map that its feature extraction reads; 603 MiB of them only CONCATs read."""
    network = build("googlenet", 128)
    context = PlanContext(network, TITAN_X)
    kept = set(context.maps_across()) - set(ALL.bind(context).offloads())
    assert {x.name for x in kept} == {"average", "softmax"}
    without = OffloadInputs(("conv", "pool"), "before", "").bind(PlanContext(network, TITAN_X)).offloads()
    assert sum(x.nbytes for x in ALL.bind(context).offloads().keys() - without.keys()) == 603.3125 * 2**20

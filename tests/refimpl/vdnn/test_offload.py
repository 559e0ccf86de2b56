"""vDNN's offload: the consumer's act, on its X, by the last consumer, and never a ReLU's."""

from __future__ import annotations

import pytest
from hypothesis import given

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import Builder, Network
from refimpl.planner import Context, plan
from refimpl.vdnn.offload import ALL, CONV, OffloadInputs
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import setup

pytestmark = pytest.mark.vdnn

GIB = 2**30
TITAN_X = MACHINES["titan-x"]


def leaving(network: Network, module: OffloadInputs) -> dict[str, str]:
    """Map → the layer whose forward sends it out."""
    bound = module.bind(Context(network, TITAN_X))
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


ZOO = [
    ("lenet", 2), ("tiny-vgg", 2), ("tiny-resnet", 2), ("tiny-inception", 2), ("alexnet", 2), ("overfeat", 2),
    ("googlenet", 2), ("vgg16", 2), ("resnet50", 2), ("alexnet:superneurons", 2), ("tiny-inception:superneurons", 2),
    ("tiny-resnet:vdnnpp", 2),
]  # fmt: skip


@pytest.mark.parametrize("module", [ALL, CONV], ids=lambda module: module.name)
@pytest.mark.parametrize(("name", "batch"), ZOO, ids=lambda value: str(value))
def test_offloaded_are_the_inputs_of_the_chosen_kinds_that_backward_needs(
    name: str, batch: int, module: OffloadInputs
) -> None:
    network = build(name, batch)
    context = Context(network, TITAN_X)
    read = {x for layer in network.layers if layer.kind in module.kinds for x in layer.inputs}
    assert set(module.bind(context).offloads()) == read & set(context.maps_across())
    relus = {layer.name for layer in network.layers if layer.in_place}
    assert relus.isdisjoint(leaving(network, module).values()), "a layer in place never sends"


@given(networks())
def test_vdnn_conv_offloads_a_part_of_what_vdnn_all_does(network: Network) -> None:
    some, every = (set(one.bind(Context(network, TITAN_X)).offloads()) for one in (CONV, ALL))
    assert some <= every


@pytest.mark.parametrize(
    ("kinds", "maps"),
    [(("pool",), ["conv1", "conv2"]), (("fc",), ["pool2"]), ((), []), (("relu",), ["conv1", "conv2"])],
)
def test_other_kinds_may_be_chosen(kinds: tuple[str, ...], maps: list[str]) -> None:
    b = Builder("chain", (2, 3, 8, 8))
    for number in (1, 2):
        b.conv(4, 3, pad=1, name=f"conv{number}")
        b.relu()
        b.pool(2, name=f"pool{number}")
    b.fc(3)
    b.softmax()
    assert sorted(leaving(b.build(), OffloadInputs(kinds, "some", ""))) == maps  # type: ignore[arg-type]


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
    context = Context(network, TITAN_X)
    kept = set(context.maps_across()) - set(ALL.bind(context).offloads())
    assert {x.name for x in kept} == {"average", "softmax"}
    without = OffloadInputs(("conv", "pool"), "before", "").bind(Context(network, TITAN_X)).offloads()
    assert sum(x.nbytes for x in ALL.bind(context).offloads().keys() - without.keys()) == 603.3125 * 2**20

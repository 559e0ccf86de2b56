"""vDNN++'s static policies: which maps leave, on the papers' chains, where the last layer matters, and as drawn."""

from __future__ import annotations

import pytest
from hypothesis import given

from refimpl import vdnn
from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.network.conventions import VDNNPP
from refimpl.planner import plan
from refimpl.vdnnpp import ALL, ALTERNATE_CONV, CONV, VDNN_ALL, OffloadInputsOf, static
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import leaving

pytestmark = pytest.mark.vdnnpp

TITAN_X = MACHINES["titan-x"]
PLENTY = 1 << 40
SETS = (ALL, VDNN_ALL, CONV, ALTERNATE_CONV)


def numbers(network: Network, module: OffloadInputsOf) -> set[int]:
    """The layers whose inputs leave, CONV, POOL and FC numbered in order from 0."""
    counted = [layer.name for layer in network.layers if layer.kind in ("conv", "pool", "fc")]
    return {counted.index(sender) for sender in leaving(network, module).values()}


# -- the authors' chains -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module", "expected"),
    [
        ("vgg16", CONV, {0, 1, 3, 4, 6, 7, 8, 10, 11, 12, 14, 15, 16}),
        ("vgg16", ALL, {*range(18)}),
        ("vgg16", ALTERNATE_CONV, {0, 3, 6, 8, 11, 14, 16}),
    ],
)
def test_the_authors_chains(name: str, module: OffloadInputsOf, expected: set[int]) -> None:
    network = build(f"{name}:vdnnpp", 2)
    assert numbers(network, module) == expected
    program = plan(network, static("test", module), TITAN_X, PLENTY)
    away = {tensor.name for tensor, fate in program.fates.items() if fate.name == "offload"}
    assert away == set(leaving(network, module))
    copied = {i.tensor.name for i in program.instructions if i.op == "copy out" and i.why == "offload"}
    assert copied == away - {"input"}, "the batch's host copy exists"


# -- forked networks ---------------------------------------------------------------------------------------------------


class Plainly:
    """What leaves, by the words of the policy alone: a twin without a planner.

    A map that a chosen layer reads, that some layer reads again in backward, sent when its last reader has run.
    """

    def __init__(self, network: Network, kinds: tuple[str, ...], every: int) -> None:
        layers = list(network.layers)
        last = [layer for layer in layers if layer.kind not in ("softmax", "relu")].pop()
        chosen = [layer for layer in layers if layer.kind in kinds]
        if last in chosen:
            chosen.remove(last)
        backward = [tensor for step in network.steps[network.depth :] for tensor in step.uses]
        self.sent = {}
        for number, layer in enumerate(chosen):
            for x in layer.inputs if number % every == 0 else ():
                forward = [step for step in network.steps[: network.depth] if x in step.uses]
                if x.managed and x in backward:
                    self.sent[x.name] = forward[-1].layer.name


@given(networks() | networks(conventions=VDNNPP))
def test_drawn_networks(network: Network) -> None:
    for module in SETS:
        assert leaving(network, module) == Plainly(network, module.kinds, module.every).sent
    assert leaving(network, VDNN_ALL).items() <= leaving(network, vdnn.ALL).items()


def test_on_the_authors_chains_vdnns_list_is_all_and_on_a_forked_network_less() -> None:
    for name in ("alexnet:vdnnpp", "vgg16:vdnnpp", "vdnnpp-demo"):
        chain = build(name, 2)
        assert leaving(chain, VDNN_ALL) == leaving(chain, ALL) == leaving(chain, vdnn.ALL)
    forked = build("resnet50", 64)
    nbytes = {x.name: x.nbytes for step in forked.steps for x in step.uses}
    ours, theirs = (sum(nbytes[name] for name in leaving(forked, module)) for module in (ALL, VDNN_ALL))
    assert leaving(forked, VDNN_ALL) == leaving(forked, vdnn.ALL) and ours > 2 * theirs

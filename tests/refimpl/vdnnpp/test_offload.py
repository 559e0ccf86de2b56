"""vDNN++'s static policies: which maps leave, on the papers' chains, where the last layer matters, and as drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.network.conventions import VDNNPP
from refimpl.planner import SetupError, plan
from refimpl.vdnnpp import ALL, ALTERNATE_CONV, CONV, OffloadInputsOf, static
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import leaving

pytestmark = pytest.mark.vdnnpp

TITAN_X = MACHINES["titan-x"]
PLENTY = 1 << 40
SETS = (ALL, CONV, ALTERNATE_CONV)


def numbers(network: Network, module: OffloadInputsOf) -> set[int]:
    """The layers whose inputs leave, CONV, POOL and FC numbered in order from 0."""
    counted = [layer.name for layer in network.layers if layer.kind in ("conv", "pool", "fc")]
    return {counted.index(sender) for sender in leaving(network, module).values()}


# -- the authors' chains -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module", "expected"),
    [
        ("alexnet", CONV, {0, 2, 4, 5, 6}),
        ("alexnet", ALL, {*range(8)}),
        ("alexnet", ALTERNATE_CONV, {0, 4, 6}),
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


# -- the last layer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ("conv conv pool conv softmax", {ALL: "012", CONV: "01", ALTERNATE_CONV: "0"}),
        ("conv conv pool conv relu softmax", {ALL: "012", CONV: "01", ALTERNATE_CONV: "0"}),
        ("conv pool conv pool relu softmax", {ALL: "012", CONV: "02", ALTERNATE_CONV: "0"}),
        ("conv relu conv relu conv fc softmax", {ALL: "024", CONV: "024", ALTERNATE_CONV: "04"}),
    ],
)
def test_the_last_layer_that_is_not_softmax_or_relu_keeps_its_input(
    kinds: str, chosen: dict[OffloadInputsOf, str]
) -> None:
    """It is needed again at once.  After an FC, which no policy offloads, all others count."""
    layers = [SimpleNamespace(kind=kind, number=str(number)) for number, kind in enumerate(kinds.split())]
    for module, numbers in chosen.items():
        found: Any = module.layers(SimpleNamespace(layers=layers))  # type: ignore[arg-type]
        assert "".join(layer.number for layer in found) == numbers


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


@pytest.mark.parametrize("every", [0, -1])
def test_at_least_every_layer_is_counted(every: int) -> None:
    with raises_naming(SetupError, "every", every, 1):
        OffloadInputsOf(("conv",), "mine", "mine", every)

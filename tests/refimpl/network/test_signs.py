"""ReLU by sign: backward reads a bit an element in place of its map."""

from __future__ import annotations

import pytest

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import VDNN, Builder, Conventions, Network
from refimpl.network.conventions import SUPERNEURONS
from refimpl.slots.context import Context
from tests.refimpl.network.test_lean import branched


def test_backward_reads_signs_and_dy_alone() -> None:
    network = branched().leaner("signs")
    layer = network.layer("relu1")
    signs = layer.kept["signs"]
    assert network.name == "branched:signs" and signs in network.managed
    assert signs.nbytes == layer.y.nbytes // 32 and not layer.in_place
    assert layer.forward.writes == (layer.y, signs) and layer.forward.reads == (layer.x,)
    (call,) = layer.backward.calls
    dy = call.arguments["dy"]
    assert call.reads == (signs,) and call.updates == (dy,) and call.arguments["dx"] is dy
    assert not branched().layer("relu1").kept


@pytest.mark.parametrize("conventions", [VDNN, SUPERNEURONS], ids=["vdnn", "superneurons"])
def test_which_relu_keeps_signs(conventions: Conventions) -> None:
    b = Builder("some", (2, 3, 8, 8), conventions)
    b.conv(4, 3, pad=1)
    before_conv = b.relu()
    x = b.conv(4, 3, pad=1)
    before_join = b.relu(at_most=6, after=x)
    branch = b.relu(after=b.conv(4, 1, after=x))
    b.join(before_join, branch)
    both = b.relu(after=b.conv(4, 1))
    b.join(both, b.conv(4, 1, after=both))
    pooled = b.relu(after=b.conv(4, 1))
    b.concat(b.pool(1, after=pooled), pooled)
    alone = b.relu(after=b.conv(4, 1))
    b.pool(2)
    b.fc(2)
    b.softmax()
    usual = b.build()

    def keep(network: Network) -> set[str]:
        found = {layer for layer in network.layers if layer.kept and layer.kind == "relu"}
        read = {tensor for step in network.steps[network.depth :] for tensor in step.uses}
        assert read.isdisjoint(layer.y for layer in found)
        return {layer.name for layer in found}

    forked = {both.name, pooled.name} if conventions.fork_layers else set()  # a fork's copies are read, not its input
    assert keep(usual.leaner("signs")) == {before_join.name, branch.name} | forked
    assert keep(usual.leaner("signs", "positions")) == {before_join.name, branch.name, pooled.name} | forked
    assert before_conv.name not in forked and alone.name not in forked


def test_less_waits_for_backward() -> None:
    """GoogLeNet's ReLUs are put side by side, and the concat's map is what convolutions read."""

    def waiting(name: str) -> int:
        return sum(tensor.nbytes for tensor in Context(build(name, 2), MACHINES["v100"]).maps_across())

    assert waiting("googlenet:positions:signs") < 0.6 * waiting("googlenet")

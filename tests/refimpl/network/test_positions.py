"""Max pooling by position: backward reads a byte an output in place of x and y."""

from __future__ import annotations

from refimpl.network import Builder
from tests.refimpl.network.test_lean import pooled


def test_backward_reads_positions_and_dy_alone() -> None:
    network = pooled().leaner("positions")
    layer = network.layer("pool1")
    positions = layer.kept["positions"]
    assert network.name == "pooled:positions" and positions in network.managed
    assert positions.nbytes == layer.y.nbytes // 4
    assert layer.forward.writes == (layer.y, positions)
    (call,) = layer.backward.calls
    assert call.reads == (positions, call.arguments["dy"]) and layer.x not in call.operands
    assert layer.forward.calls[0].arguments["rectified"] and network.layer("relu1").backward.calls == ()
    assert network.layer("pool2").backward.calls[0].function == "pool.backward"  # an average: as it is
    assert positions not in network.inference().managed
    other = network.trained_by("adamw", frozen=("conv1.*",))
    assert other.conventions.lean == ("positions",) and not other.layer("pool1").kept  # nothing is learnt below it
    assert not pooled().layer("pool1").kept


def test_a_relu_has_no_backward_where_a_pooling_by_position_alone_reads_it() -> None:
    b = Builder("rectified", (2, 3, 8, 8))
    b.conv(4, 3, pad=1)
    alone = b.relu()
    b.pool(2)
    two = b.relu(after=b.conv(4, 3, pad=1))
    b.join(b.pool(1, after=two), two)
    most = b.relu(after=b.conv(4, 1), at_most=0.5)
    b.pool(2)
    averaged = b.relu(after=b.conv(4, 1))
    b.pool(2, mode="average")
    b.fc(2)
    b.softmax()
    network = b.build().leaner("positions")
    calls = {
        x.name: [call.function for call in network.layer(x.name).backward.calls] for x in (alone, two, most, averaged)
    }
    assert calls.pop(alone.name) == [] and all(one == ["relu.backward"] for one in calls.values())
    rectified = [layer.name for layer in network.layers if "rectified" in layer.forward.calls[0].arguments]
    assert rectified == ["pool1"]

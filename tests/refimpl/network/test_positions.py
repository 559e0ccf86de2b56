"""Max pooling by position: backward reads a byte an output in place of x and y."""

from __future__ import annotations

from refimpl.names.networks import build
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
    assert network.layer("pool2").backward.calls[0].function == "pool.backward"  # an average: as it is
    assert positions not in network.inference().managed
    other = network.trained_by("adamw", frozen=("conv1.*",))
    assert other.conventions.lean == ("positions",) and not other.layer("pool1").kept  # nothing is learnt below it
    assert not pooled().layer("pool1").kept


def test_each_convention_of_a_paper_can_have_it() -> None:
    for name in ("tiny-vgg:vdnnpp", "tiny-unet", "tiny-inception:superneurons"):
        network = build(f"{name}:positions", 2)
        assert network.name == f"{name}:positions"
        assert any(layer.kept for layer in network.layers if layer.kind == "pool")

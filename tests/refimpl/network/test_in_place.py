"""Batch normalisation, dropout and joins in place: which map is overwritten, and which is not."""

from __future__ import annotations

import pytest

from refimpl.network import VDNN, Builder, Conventions, Layer, Network
from refimpl.network.conventions import SUPERNEURONS, VDNNPP
from refimpl.vdnnpp.compression import never_negative
from tests.refimpl.network.test_lean import ended, joined


def test_dx_overwrites_dy() -> None:
    network = joined().leaner("in-place")
    for name in ("batchnorm1", "dropout1"):
        usual, leaner = (one.layer(name).backward for one in (joined(), network))
        (call,) = leaner.calls[:1]
        dy = call.arguments["dy"]
        assert call.arguments["dx"] is dy and dy in call.updates and dy not in (*call.reads, *call.writes)
        assert len(usual.writes) == 1 and leaner.writes == ()
    assert network.layer("batchnorm1").backward.uses == (network.layer("conv3").y, call_dy(network, "batchnorm1"))


def call_dy(network: Network, name: str) -> object:
    return network.layer(name).backward.calls[0].arguments["dy"]


def test_a_join_overwrites_an_input_that_nothing_else_needs() -> None:
    network = joined().leaner("in-place")
    join, around, through = (network.layer(name) for name in ("join1", "conv1", "batchnorm1"))
    assert join.in_place and join.y is through.y and join.y is network.layer("relu2").y  # conv2 reads conv1's
    (call,) = join.forward.calls
    assert call.arguments["inputs"] == (through.y, around.y) and call.arguments["y"] is through.y
    assert call.reads == (around.y,) and call.updates == (through.y,)
    (copied,) = join.backward.calls
    assert copied.function == "join.backward" and copied.reads == (call_dy(network, "batchnorm1"),)
    assert network.managed_bytes < joined().managed_bytes and not joined().layer("join1").in_place


@pytest.mark.parametrize("conventions", [VDNN, VDNNPP, SUPERNEURONS], ids=["vdnn", "vdnnpp", "superneurons"])
def test_whose_output_it_may_overwrite(conventions: Conventions) -> None:
    def taken(*kinds: str, also: bool = False) -> list[int]:
        """The place of the input that a join of layers of these kinds overwrites; `also`: another layer reads it."""
        b = Builder("some", (2, 3, 6, 6), conventions)
        x = b.conv(4, 3, pad=1)
        made: list[Layer] = []
        for kind in kinds:
            y = b.conv(4, 1, after=x)
            made.append(y if kind == "conv" else getattr(b, kind)(after=y))
        join = b.join(*made)
        if also:
            b.join(join, b.conv(4, 1, after=made[0]))
        network = ended(b).leaner("lean")
        join = network.layer(join.name)
        return [place for place, x in enumerate(join.inputs) if x is join.y]

    assert taken("conv", "batchnorm") == [0]
    assert taken("relu", "batchnorm") == [1]  # the ReLU's backward reads its output, its own layer's or part of another
    assert taken("relu", "sigmoid") == []
    assert taken("relu", "batchnorm", "conv") == []  # a sum of three keeps its order
    assert taken("conv", "batchnorm", "conv") == [0]
    # Where a map is read by two layers, a fork's copy is not.
    assert taken("conv", "relu", also=True) == ([0] if conventions.fork_layers else [])


def test_a_layer_overwrites_no_output_of_a_fused_relu() -> None:
    """Its backward reads it, whatever the convolution forgets."""
    b = Builder("fused", (2, 3, 6, 6), VDNNPP)
    conv = b.conv(4, 3, pad=1)
    b.relu()
    b.sigmoid()
    network = ended(b)
    assert conv.has_relu and not network.layer("sigmoid1").in_place


def test_what_is_added_to_a_map_may_be_negative() -> None:
    """So vDNN++ does not compress the sum, though the map that it overwrites was never negative."""
    b = Builder("added", (2, 3, 6, 6), VDNN)
    x = b.conv(4, 3, pad=1)
    b.relu()
    dropped = b.dropout()
    b.join(dropped, b.conv(4, 1, after=x))
    usual = ended(b)
    network = usual.leaner("in-place")
    assert usual.layer("dropout1").y in never_negative(usual)
    assert network.layer("join1").y is network.layer("dropout1").y
    assert network.layer("join1").y not in never_negative(network)

"""What a plan of a network as PyTorch keeps it does not count, on stand-ins for its layers, worked by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from refimpl.report import uncounted


def tensor(kind: str = "map", nbytes: int = 4, shape: tuple[int, ...] = (1,)) -> Any:
    return SimpleNamespace(kind=kind, nbytes=nbytes, shape=shape)


def layer(operator: str = "", y: Any = None, uses: Any = (), inputs: Any = (), **more: Any) -> Any:
    operation = SimpleNamespace(operator=operator, backward_levels=(), **more) if operator else None
    return SimpleNamespace(operation=operation, y=y, shape=y and y.shape, uses=uses, inputs=inputs)


def test_a_convolution_by_columns_takes_a_number_for_each_tap_of_each_output() -> None:
    """2 images of 3 channels of 4×5 outputs; a tap is one of 7 channels' 3×2."""
    weight = SimpleNamespace(weight=tensor(shape=(3, 7, 3, 2)))
    bias = SimpleNamespace(weight=tensor(shape=(3,)))
    conv = layer("convolution", tensor(nbytes=4 * 2 * 3 * 4 * 5, shape=(2, 3, 4, 5)), [bias, weight])
    small = layer("conv1d", tensor(nbytes=48, shape=(1, 3, 4)), [SimpleNamespace(weight=tensor(shape=(3, 1, 1)))])
    others = [layer(), layer("addmm", conv.y, [weight]), layer("conv2d", conv.y, [bias])]
    assert uncounted._columns([small, conv, *others]) == 4 * (2 * 4 * 5) * (7 * 3 * 2)
    assert uncounted._columns(others) == 0


def test_a_recurrent_layer_keeps_gates_cell_and_output_of_every_step() -> None:
    """5 steps of 2 texts, both directions, 3 wide: 12 rows of gates."""
    hidden = [
        SimpleNamespace(source=name, storage=SimpleNamespace(shape=shape))
        for name, shape in (
            ("weight_hh_l0", (12, 3)), ("weight_ih_l0", (12, 8)), ("weight_hh_l0_reverse", (12, 3)),
            ("bias_hh_l0", (12,)),
        )
    ]  # fmt: skip
    makes = [tensor(shape=(5, 2, 6))]
    lstm, relu = layer("lstm", state=hidden, makes=makes), layer("relu", state=hidden, makes=makes)
    (found,) = uncounted._reserves([layer(), relu, lstm])
    assert (found.least, found.most, found.allocated) == (0, 2 * 10 * (12 + 6) * 4, True)
    (both,) = uncounted._reserves([lstm, layer("gru", state=hidden[:1], makes=makes)])
    assert both.most == 2 * 10 * (12 + 6) * 4 + 20 * (12 + 6) * 4
    assert uncounted._reserves([relu]) == []

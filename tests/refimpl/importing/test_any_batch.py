"""A network at a third batch, derived from two exports: it is the one that an export there makes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import refimpl
from refimpl.importing.any_batch import Batches, Line, NotLinear
from refimpl.network import Network
from tests.matrix import some

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.refimpl.importing.beside_pytorch import model  # noqa: E402
from tests.refimpl.importing.test_any_module import LONG, Maps, Odd, Windows, Words  # noqa: E402

FEW, MORE, THIRD, MANY = 2, 12, 40, 77


class Halved(nn.Module):
    """Another operator from ten images on."""

    def __init__(self) -> None:
        super().__init__()
        self.end = nn.Linear(12, 8)

    def forward(self, x: Any) -> Any:
        x = self.end(x.flatten(1)[:, :12])
        return x.cumsum(1) if len(x) < 10 else x.cumsum(1).tanh()


def images(make: Callable[[], Any], batch: int | None, **how: Any) -> Network:
    torch.manual_seed(0)
    return refimpl.networks.from_torch(make(), (batch or MORE, 3, 32, 32), **how)


def tokens(batch: int | None) -> Network:
    return refimpl.networks.from_torch(Words(), torch.zeros(batch or MORE, LONG, dtype=torch.int64))


CASES: dict[str, Callable[[int | None], Network]] = {
    "windows": partial(images, Windows), "with a loss": partial(images, Maps, keeps="pytorch", loss="softmax"),
    "autocast": partial(images, Odd, keeps="pytorch-cpu", autocast="bfloat16"), "tokens": tokens,
}  # fmt: skip


def everything(network: Network) -> Any:
    """All that a plan can depend on."""

    def names(*tensors: Any) -> list[str]:
        return [one.name for several in tensors for one in several]

    tensors = [(one.name, one.shape, one.dtype, one.kind) for one in (*network.managed, *network.resident)]
    layers = [(one.name, one.kind, one.shape, one.options, one.operation) for one in network.layers]
    calls = [
        (step.direction, call.function, call.flops, call.scratch, names(call.reads, call.writes, call.updates))
        for step in network.steps
        for call in step.calls
    ]
    return network.name, network.batch, network.cannot_run, network.opaque, tensors, layers, calls


def counting(build: Callable[[int | None], Network]) -> tuple[Batches, list[int | None]]:
    """Batches, and a list that grows by each batch that is built."""
    asked: list[int | None] = []

    def counted(batch: int | None) -> Network:
        asked.append(batch)
        return build(batch)

    return Batches(counted), asked


@pytest.mark.parametrize("case", [*some(CASES, "tokens"), pytest.param("swin", marks=pytest.mark.campaign)])
def test_a_derived_network_is_the_exported_one(case: str) -> None:
    build = (CASES | {"swin": lambda batch: images(lambda: model("swin_t"), batch)})[case]
    networks, asked = counting(build)
    networks(FEW), networks(None), networks(THIRD)
    derived = networks(MANY)
    assert asked == [FEW, None, THIRD] and networks.linear
    assert everything(derived) == everything(build(MANY))
    assert networks(FEW) is networks(FEW) and networks(MORE) is networks.built[MORE]


def test_one_image_has_an_export_of_its_own() -> None:
    """PyTorch makes a view where an axis of one element moves, and a copy where it has several."""
    networks, asked = counting(partial(images, Odd))
    networks(FEW), networks(MORE), networks(1), networks(1)
    assert asked == [FEW, MORE, 1]


def test_the_first_network_that_is_derived_is_compared_with_its_export() -> None:
    """Both exports call the same operators, and the third batch others."""
    build = partial(images, Halved)
    networks, asked = counting(build)
    assert [everything(networks(batch)) for batch in (2, 6)] == [everything(build(batch)) for batch in (2, 6)]
    assert [everything(networks(batch)) for batch in (30, 31)] == [everything(build(batch)) for batch in (30, 31)]
    assert asked == [2, 6, 30, 31] and not networks.linear


def test_numbers_that_are_on_no_line_through_two_batches() -> None:
    line = Line(5, 13, 30)
    assert line((7, 10 + 5 * 3, -1, "sum"), (7, 10 + 13 * 3, -1, "sum")) == (7, 10 + 30 * 3, -1, "sum")
    for mine, its in ((25, 169), (3, 7), (80, 72), ("sum", "mean"), ((5, 2), (13,)), (5, 5.0)):
        with pytest.raises(NotLinear):
            line(mine, its)
    with pytest.raises(NotLinear):
        line.shape((5, 5), (13, 13))
    assert line.levels((40, 27), (104, 11)) == (240, -23)

"""Kinds of layers in small PyTorch modules: imported both ways, an iteration of each beside PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl import NetworkError
from tests.messages import raises_naming

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.refimpl.importing.beside_pytorch import (  # noqa: E402
    beside_pytorch,
    described,
    exported,
    same_weights,
)

SHAPE = (4, 3, 6, 6)


class Around(nn.Module):
    """Operators between a convolution of six channels and a linear layer."""

    def __init__(self, between: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.between = nn.Conv2d(3, 6, 3, padding=1), between
        with torch.no_grad():
            features = between(self.first(torch.zeros(SHAPE))).flatten(1).shape[1]
        self.end = nn.Linear(features, 10)

    def forward(self, x: Any) -> Any:
        return self.end(self.between(self.first(x)).flatten(1))


class Permute(nn.Module):
    """The axes in another order."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Any) -> Any:
        return x.permute(self.axes)


class Rearranged(nn.Module):
    """Rows among the channels and channels among the rows."""

    def forward(self, x: Any) -> Any:
        return x.view(4, 2, 3, 6, 6).transpose(1, 3).reshape(4, 18, 2, 6)


class Gate(nn.Module):
    """Squeeze and excitation, with linear layers as 1×1 convolutions."""

    def __init__(self, end: Any) -> None:
        super().__init__()
        self.squeeze, self.one, self.two = nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.end = end

    def forward(self, x: Any) -> Any:
        return x * self.end(self.two(functional.silu(self.one(self.squeeze(x)))))


class LayerScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(-1, 1, 6).reshape(6, 1, 1))

    def forward(self, x: Any) -> Any:
        return x * self.scale


def shuffled(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, -1, h, w)


def channels_last(x: Any) -> Any:
    x = x.permute(0, 2, 3, 1)
    x = x * torch.sigmoid(x.mean((1, 2), keepdim=True))
    return torch.cat([x, functional.silu(x)], 3).permute(0, 3, 1, 2)


def halves(x: Any) -> Any:
    left, right = x.chunk(2, dim=1)
    return (left + right)[:, :, 1:5]


class Chain(nn.Module):
    """Functions and modules, one after another."""

    def __init__(self, *parts: Callable[[Any], Any]) -> None:
        super().__init__()
        self.parts, self.modules_of = parts, nn.ModuleList(part for part in parts if isinstance(part, nn.Module))

    def forward(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x


#: What is between → the kinds of layers that it becomes.
CASES: dict[str, tuple[Callable[[], Callable[[Any], Any]], list[str]]] = {
    "larger": (
        lambda: Chain(
            nn.Upsample(scale_factor=(2, 1.5), mode="bilinear"), nn.Upsample(scale_factor=2),
            nn.ConvTranspose2d(6, 4, 3, 2, padding=1, output_padding=1),
            nn.ConvTranspose2d(4, 4, (2, 3), groups=2, bias=False),
        ),
        ["upsample", "upsample", "conv_transpose", "conv_transpose"],
    ),
    "layer norm, linear, group norm, of one group and plain": (
        lambda: Chain(
            Permute(0, 2, 3, 1), nn.LayerNorm(6), nn.Linear(6, 8), nn.GELU(), Permute(0, 3, 1, 2), nn.GroupNorm(2, 8),
            nn.GroupNorm(1, 8, affine=False),
        ),
        ["layernorm", "conv", "gelu", "groupnorm", "groupnorm"],
    ),
    "permuted rows": (lambda: nn.Sequential(Permute(0, 2, 3, 1), nn.Flatten()), []),
    "rows among the channels": (lambda: Rearranged(), []),
    "columns and images first": (
        lambda: nn.Sequential(Permute(3, 0, 2, 1), nn.Linear(6, 4), nn.GELU(), Permute(1, 2, 0, 3), nn.Flatten()),
        ["conv", "gelu"],
    ),
    "positions as rows, and their mean": (
        lambda: lambda x: functional.silu(x.flatten(2).transpose(1, 2).reshape(144, 6)).view(4, 36, 6).mean(1),
        ["silu", "pool"],
    ),
    "channels last: gate, concatenation": (lambda: channels_last, ["pool", "sigmoid", "mul", "silu", "concat"]),
    "shuffled, in another order, split": (
        lambda: Chain(shuffled, lambda x: x[:, [3, 1, 0, 5, 4, 2]], lambda x: torch.cat(x.split([4, 2], 1)[::-1], 1)),
        ["channel_shuffle", "permute_channels", "take", "take", "concat"],
    ),
    "halves, sliced, padded; zeros around, pooled": (
        lambda: Chain(
            halves, lambda x: functional.pad(x, (1, 0, 2, 1), value=0.5), nn.ZeroPad2d((1, 1, 0, 0)), nn.MaxPool2d(2)
        ),
        ["take", "take", "join", "take", "pad", "pad", "pool"],
    ),
    "a gate, SiLU written out, layer scale": (
        lambda: Chain(Gate(nn.Sigmoid()), lambda x: torch.sigmoid(x) * x, LayerScale()),
        ["pool", "conv", "silu", "conv", "sigmoid", "mul", "silu", "scale"],
    ),
}  # fmt: skip


def imported(case: tuple[Callable[[], Callable[[Any], Any]], list[str]]) -> tuple[Any, refimpl.Network]:
    """The module, and the network that it becomes: an iteration of it is as PyTorch's."""
    make, kinds = case
    torch.manual_seed(0)
    module = Around(make())
    network = refimpl.networks.from_torch(module, SHAPE)
    assert [layer.kind for layer in network.layers] == ["conv", *kinds, "fc", "softmax"]
    beside = beside_pytorch(module, torch.randn(SHAPE), network)
    assert beside.agrees, beside
    return module, network


@pytest.mark.parametrize("case", CASES)
def test_an_iteration_is_pytorchs_and_both_ways_are_the_same_network(case: str, tmp_path: Path) -> None:
    module, network = imported(CASES[case])
    exported(module, SHAPE, tmp_path / "a.onnx")
    filed = refimpl.networks.from_onnx(tmp_path / "a.onnx", batch=4)
    assert described(filed) == described(network) and same_weights(filed, network)


class Audio(nn.Module):
    """A network over one axis: 3 channels, 20 moments."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(3, 6, 5, stride=2, padding=2, bias=False)
        self.norm = nn.BatchNorm1d(6)
        self.second = nn.Conv1d(6, 8, 3, padding="same", dilation=2, groups=2)
        self.pool = nn.MaxPool1d(2)
        self.larger = nn.ConvTranspose1d(8, 4, 3, stride=2, output_padding=1)
        self.average, self.end = nn.AvgPool1d(3, 2, padding=1), nn.Linear(4, 10)

    def forward(self, x: Any) -> Any:
        x = self.pool(self.second(functional.silu(self.norm(self.first(x)))))
        return self.end(self.average(self.larger(functional.pad(x, (1, 0), value=0.5))).mean(2))


def test_a_network_over_one_axis_is_one_of_maps_one_column_wide(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, shape = Audio(), (4, 3, 20)
    network = refimpl.networks.from_torch(module, shape)
    kinds = [layer.kind for layer in network.layers]
    convolved = ["conv", "batchnorm", "silu", "conv", "pool", "pad", "conv_transpose"]
    assert kinds == [*convolved, "pool", "pool", "fc", "softmax"]
    beside = beside_pytorch(module, torch.randn(shape), network)
    assert beside.agrees, beside
    filed = refimpl.networks.from_onnx(exported(module, shape, tmp_path / "a.onnx"), batch=4)
    assert described(filed) == described(network)


def test_what_pytorchs_exporter_writes_in_other_operators_is_imported_from_a_module() -> None:
    parts = nn.ChannelShuffle(3), nn.Flatten(), nn.LayerNorm(216, elementwise_affine=False)
    imported((lambda: nn.Sequential(*parts), ["channel_shuffle", "groupnorm"]))


#: What is between → what the refusal names.
REFUSED: dict[str, tuple[Callable[[], Callable[[Any], Any]], tuple[Any, ...]]] = {
    "layer norm of the width": (lambda: nn.LayerNorm(6), ("between", "layer normalisation", "channels")),
    "layer norm of flat maps": (lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(216)), ("between.1", "channels")),
    "permuted pooling": (
        lambda: nn.Sequential(Permute(0, 2, 3, 1), nn.MaxPool2d(2)), ("between.1", "permuted"),
    ),
    "channels, some twice": (lambda: lambda x: x[:, [0, 0, 1, 2, 3, 4]], ("6 numbers", "axis 1", "permutation")),
    "a part of the images": (lambda: lambda x: torch.cat([x[1:], x[:1]]), ("slice", "images", "channels or rows")),
    "a part of the columns": (lambda: lambda x: x[:, :, :, 1:].relu(), ("slice", "columns", "channels or rows")),
    "maps as other maps": (
        lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (12, 3, 6)), nn.MaxPool2d(2)),
        ("between.2", "6×6×6", "12×3×6", "linear"),
    ),
    "axes that are mixed": (lambda: lambda x: x[:, :5, :5].reshape(4, 3, 50), ("reshape", [4, 5, 5, 6], [4, 3, 50])),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_computed_in_another_way_is_refused(case: str) -> None:
    make, says = REFUSED[case]
    with raises_naming(NetworkError, *says):
        refimpl.networks.from_torch(Around(make()), SHAPE, keeps="own")


@pytest.mark.parametrize("stays", [0.75, 0.5])
def test_stochastic_depth_is_imported_both_ways(tmp_path: Path, stays: float) -> None:
    """0.5 is the operator's default, which an export leaves out."""

    def dropped(x: Any) -> Any:
        return x + functional.relu(x) * torch.empty(len(x), 1, 1, 1).bernoulli_(stays).div_(stays)

    module = Around(dropped)
    network = refimpl.networks.from_torch(module, SHAPE)
    assert [layer.kind for layer in network.layers] == ["conv", "relu", "drop_path", "join", "fc", "softmax"]
    assert network.layers[2].options == {"probability": 1 - stays}
    exported(module, SHAPE, tmp_path / "a.onnx")
    assert described(refimpl.networks.from_onnx(tmp_path / "a.onnx", batch=4)) == described(network)

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

from tests.refimpl.network.torchvision_models import compared, described, exported, same_weights  # noqa: E402

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


def resized(*args: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda x: functional.interpolate(x, *args, **options)


#: What is between → the kinds of layers that it becomes.
CASES: dict[str, tuple[Callable[[], Callable[[Any], Any]], list[str]]] = {
    "nearest": (lambda: nn.Upsample(scale_factor=3), ["upsample"]),
    "nearest to a size": (lambda: resized((7, 4)), ["upsample"]),
    "bilinear": (lambda: nn.Upsample(scale_factor=(2, 1.5), mode="bilinear"), ["upsample"]),
    "bilinear, aligned": (lambda: resized((9, 8), mode="bilinear", align_corners=True), ["upsample"]),
    "transposed": (lambda: nn.ConvTranspose2d(6, 4, 3, 2, padding=1, output_padding=1), ["conv_transpose"]),
    "transposed, in groups": (lambda: nn.ConvTranspose2d(6, 4, (2, 3), groups=2, bias=False), ["conv_transpose"]),
    "transposed, dilated": (lambda: nn.ConvTranspose2d(6, 5, 2, dilation=(1, 2)), ["conv_transpose"]),
    "bilinear to a size": (lambda: resized((4, 11), mode="bilinear"), ["upsample"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_iteration_is_pytorchs_and_both_ways_are_the_same_network(case: str, tmp_path: Path) -> None:
    make, kinds = CASES[case]
    torch.manual_seed(0)
    module = Around(make())
    network = refimpl.networks.from_torch(module, SHAPE)
    assert [layer.kind for layer in network.layers] == ["conv", *kinds, "fc", "softmax"]
    found = compared(module, network)["ours"]
    assert max(found.values()) < 1e-4, found
    exported(module, SHAPE, tmp_path / "a.onnx")
    filed = refimpl.networks.from_onnx(tmp_path / "a.onnx", batch=4)
    assert described(filed) == described(network) and same_weights(filed, network)


@pytest.mark.parametrize("case", ["a size that is rounded"])
def test_what_pytorch_computes_in_another_way_is_refused(case: str) -> None:
    module = Around(resized(scale_factor=1.3, mode="bilinear"))
    with raises_naming(NetworkError, "6×6", 1.3):
        refimpl.networks.from_torch(module, SHAPE)

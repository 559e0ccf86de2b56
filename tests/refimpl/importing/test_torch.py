"""PyTorch modules as networks: one iteration beside PyTorch's own, and trained weights back into a module."""

from __future__ import annotations

import copy
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl import NetworkError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.messages import raises_naming  # noqa: E402
from tests.refimpl.importing.beside_pytorch import beside_pytorch, torchvision_models  # noqa: E402

SHAPE = (4, 4, 12, 12)
PAGE = Path(__file__).parents[3] / "docs" / "your-own-network.md"


class Modules(nn.Module):
    """Every operator that is supported, as modules where PyTorch has one."""

    def __init__(self) -> None:
        super().__init__()
        self.pad = nn.ZeroPad2d((1, 0, 2, 0))
        self.first = nn.Conv2d(4, 6, 3, groups=2, dilation=(1, 2), padding=(1, 0))
        self.norm = nn.BatchNorm2d(6, momentum=0.2, eps=1e-4)
        self.relu = nn.ReLU(inplace=True)
        self.depthwise = nn.Conv2d(6, 6, 2, padding="same", groups=6, bias=False)
        self.relu6 = nn.ReLU6()
        self.lrn = nn.LocalResponseNorm(4, alpha=0.01, beta=0.5, k=2.0)
        self.max_pool = nn.MaxPool2d(3, 2, 1, ceil_mode=True)
        self.average = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        self.adaptive = nn.AdaptiveAvgPool2d((4, 1))
        self.drop = nn.Dropout(0.3)
        self.hidden = nn.Linear(48, 10)
        self.tanh = nn.Hardtanh(0.0, 6.0)
        self.last = nn.Linear(10, 5, bias=False)
        self.identity = nn.Identity()

    def forward(self, x: Any) -> Any:
        trunk = self.relu(self.norm(self.first(self.pad(x))))
        x = torch.cat([self.relu6(self.depthwise(trunk)) + trunk, trunk], 1)
        x = self.adaptive(self.average(self.max_pool(self.lrn(x))))
        x = self.tanh(self.hidden(self.drop(torch.flatten(x, 1))))
        return functional.log_softmax(self.identity(self.last(x)), dim=1)


class Small(nn.Module):
    """One convolution and one linear layer, around an operator."""

    def __init__(self, between: Any = None, channels: int = 3) -> None:
        super().__init__()
        self.conv, self.between, self.end = nn.Conv2d(4, channels, 3), between or nn.Identity(), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return self.end(self.between(self.conv(x)).mean((2, 3)))


def made() -> Any:
    torch.manual_seed(0)
    return Modules()


def batch(network: refimpl.Network, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    images = random.standard_normal(network.input.shape, dtype=np.float32)
    return images, random.integers(0, 2, network.batch).astype(np.int32)


def test_an_iteration_is_pytorchs() -> None:
    module = made()
    network = refimpl.networks.from_torch(module, SHAPE)
    assert network.parameter_count == sum(weight.numel() for weight in module.parameters())
    beside = beside_pytorch(module, torch.randn(SHAPE), network)
    assert beside.agrees, beside
    with torch.no_grad():
        module.last.weight[0, 0] += 0.01
    assert not beside_pytorch(module, torch.randn(SHAPE), network).agrees, "the network has the weights of before"


def test_the_module_is_as_it_was_and_trained_weights_come_back_exactly() -> None:
    module = made().eval()
    module.drop.train()
    before = {name: values.clone() for name, values in module.state_dict().items()}
    network = refimpl.networks.from_torch(module, SHAPE)
    assert not module.training and not module.norm.training and module.drop.training
    assert all(torch.equal(values, before[name]) for name, values in module.state_dict().items())
    with refimpl.Trainer(refimpl.plan(network, "superneurons", "h100"), "cpu") as trainer:
        other = made()
        with torch.no_grad():
            other.hidden.weight.zero_()
        trainer.to_torch(other)
        assert all(torch.equal(values, before[name]) for name, values in other.state_dict().items())
        trainer.step(*batch(network))
        trainer.to_torch(other)
        state = trainer.state()
        for name, first in network.initial.items():
            assert other.state_dict()[first.source].numpy().tobytes() == state[name].tobytes(), name
        assert not torch.equal(other.hidden.weight, module.hidden.weight)
        strange = copy.deepcopy(other)
        strange.last = nn.Linear(3, 3)
        kept = {name: values.clone() for name, values in strange.state_dict().items()}
        with raises_naming(NetworkError, "last.weight", "torch.float32"):
            trainer.to_torch(strange)
        assert all(torch.equal(values, kept[name]) for name, values in strange.state_dict().items())


class Several(Small):
    def forward(self, x: Any) -> Any:
        x = super().forward(x)
        return x, x + x


class Unknown(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cos(torch.sin(torch.cos(torch.fmod(x, 2.0))))


class TwoInputs(Small):
    def forward(self, x: Any, y: Any = None) -> Any:
        return super().forward(x + y)


def exported(module: Any, path: Path) -> Path:
    """The file that the page about networks of one's own says how to export."""
    (export,) = re.findall(r"```python\n(torch.onnx.export.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    export = export.replace('"my_model.onnx"', repr(str(path))).replace("1, 3, 32, 32", ", ".join(map(str, SHAPE)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, on the age of this exporter
        exec(compile(export, PAGE.name, "exec"), {"torch": torch, "module": module})
    return path


class Limits(Small):
    """Padding, limits and a local response normalisation, which exporters write in several operators."""

    def __init__(self, size: int, as_tensors: bool) -> None:
        super().__init__()
        self.size, self.as_tensors = size, as_tensors

    def forward(self, x: Any) -> Any:
        x = self.conv(functional.pad(x, (2, 1, 0, x.shape[3] % 5)))
        x = x.clamp(torch.tensor(0.0), torch.tensor(6.0)) if self.as_tensors else functional.hardtanh(x, 0.0, 6.0)
        return self.end(functional.local_response_norm(x, self.size, 0.5, 0.75, 2.0).mean((2, 3)))


@pytest.mark.parametrize(("size", "as_tensors"), [(2, True), (5, False)])
def test_what_the_documented_export_spells_out_is_understood(size: int, as_tensors: bool, tmp_path: Path) -> None:
    module = Limits(size, as_tensors).train()
    beside = beside_pytorch(module, torch.randn(SHAPE))
    assert beside.agrees, beside
    file = exported(module, tmp_path / "my_model.onnx")
    for network in (beside.network, refimpl.networks.from_onnx(file, SHAPE[0])):
        conv, relu, lrn, *others = network.layers
        assert [layer.kind for layer in (conv, relu, lrn, *others)] == ["conv", "relu", "lrn", "pool", "fc", "softmax"]
        assert conv.options["pad"] == (0, 2, 2, 1) and relu.options["at_most"] == 6
        assert lrn.options == beside.network.layers[2].options and lrn.options["size"] == size


def test_rows_of_numbers_are_taken_as_they_are() -> None:
    module = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3))
    beside = beside_pytorch(module, torch.randn(4, 20))
    assert beside.agrees, beside
    images, labels = np.zeros((4, 20), np.float32), np.zeros(4, np.int32)
    with refimpl.Trainer(refimpl.plan(beside.network, "baseline", "h100"), "cpu") as trainer:
        maps = trainer.evaluate(images[:, :, None, None], labels).predictions
        assert maps.tobytes() == trainer.evaluate(images, labels).predictions.tobytes()
        with raises_naming(refimpl.RunError, (4, 19), (4, 20)):
            trainer.step(images[:, 1:], labels)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Small(Unknown()),
            ("Small", "aten.cos.default", 2, "aten.fmod.Scalar", "aten.sin.default"),
        ),
        (Several, ("Several", 2, "FILE.onnx:NODE", "output=NODE")),
        (TwoInputs, ("torch.export", "TwoInputs")),
        (lambda: nn.Conv2d(4, 3, 1), (3, 12)),
        (lambda: 3, ("int", "torch.nn.Module")),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_in_one_line(make: Any, says: tuple[object, ...]) -> None:
    with raises_naming(NetworkError, *says) as caught:
        refimpl.networks.from_torch(make(), SHAPE, keeps="own")
    assert "\n" not in str(caught.value)


def test_what_needs_no_gradient_is_frozen_and_what_is_one_weight_is_shared() -> None:
    module = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(576, 3)
    )
    module[0].weight.requires_grad_(False)
    module[2] = module[0]
    network = refimpl.networks.from_torch(module, SHAPE)
    assert [parameter.frozen for _, _, parameter in network.parameters()] == [True, False, False, False]
    assert network.parameter_count == sum(parameter.numel() for parameter in module.parameters())
    assert network.trained_by("adamw").learning.frozen == network.learning.frozen != ()
    beside = beside_pytorch(module, torch.randn(SHAPE))
    assert beside.agrees, beside


def test_one_weight_of_layers_with_their_own_biases_or_none_is_shared() -> None:
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(576, 12), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12, bias=False), nn.Linear(12, 12)
    )
    module[2].weight = module[4].weight = module[5].weight
    beside = beside_pytorch(module, torch.randn(SHAPE))
    assert beside.network.parameter_count == sum(parameter.numel() for parameter in module.parameters())
    assert beside.agrees, beside


@pytest.mark.parametrize("loss", ["pixel_softmax", "mean_squared_error"])
def test_a_network_that_ends_in_maps_is_told_its_loss(loss: str) -> None:
    module = nn.Sequential(nn.Conv2d(4, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 3, 1))
    network = refimpl.networks.from_torch(module, SHAPE, loss=loss)
    assert network.layers[-1].kind == loss and network.predictions.shape == (SHAPE[0], 3, *SHAPE[2:])
    with raises_naming(NetworkError, "classifier", 3, loss):
        refimpl.networks.from_torch(module, SHAPE)
    with raises_naming(NetworkError, "mean_squared", "mean_squared_error"):
        refimpl.networks.from_torch(module, SHAPE, loss="mean_squared")


def test_without_pytorch_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with raises_naming(NetworkError, "PyTorch"):
        refimpl.networks.from_torch(object(), SHAPE)


def torchvision_or_skip() -> None:
    try:
        torchvision_models()
    except ImportError:
        pytest.skip("torchvision is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v3_small", "efficientnet_b0"])
def test_a_network_of_the_zoo_is_torchvisions_layer_for_layer(name: str) -> None:
    torchvision_or_skip()
    theirs = refimpl.networks.from_torch(getattr(torchvision_models(), name)(), (2, 3, 64, 64))
    ours = getattr(refimpl.networks, name)(2, shape=(3, 64, 64))
    found, wanted = ([(layer.kind, layer.shape) for layer in network.layers] for network in (ours, theirs))
    assert found == wanted
    for layer, its in zip(ours.layers, theirs.layers, strict=True):
        assert layer.options.keys() == its.options.keys(), layer
        for option, value in layer.options.items():
            assert its.options[option] == (pytest.approx(value) if isinstance(value, float) else value), layer

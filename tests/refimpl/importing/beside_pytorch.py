"""One step of an imported network beside the module's own, both by PyTorch's operators in double precision.

No kernel takes part: the layers of the network run as PyTorch's operators (`tests/refimpl/by_torch.py`).  So what is
compared is what the importer has understood, and rounding decides nothing: neither the side of a ReLU nor the largest
number of a window.  That our kernels compute what PyTorch's operators do is tested kind by kind, in `test_kinds.py`.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch.nn import functional

import refimpl
from refimpl.importing.torch_module import fill_module
from refimpl.network import Network
from refimpl.network.initial_state import initial_state
from tests.refimpl.by_torch import _dropout, run_torch
from tests.refimpl.plainly import SETTINGS, Arrays, new_state

DESCENT = SETTINGS | {"rate": 0.5, "momentum": 0.0, "decay": 0.0}


class Beside(NamedTuple):
    """How far a step of an imported network is from the module's own."""

    network: Network
    loss: float  #: the largest difference of the losses, over the largest loss
    weight: float  #: the largest difference of a weight or a running statistic that came back; of one above 1 its share

    @property
    def agrees(self) -> bool:
        return self.loss < 1e-6 and self.weight < 2e-6


def first_state(network: Network) -> Arrays:
    """The weights that it was imported with, and all else that training has before its first step."""
    return new_state(network) | {tensor.name: values for tensor, values in initial_state(network, 0)}


def after_a_step(network: Network, data: np.ndarray, labels: np.ndarray) -> Arrays:
    return run_torch(network, first_state(network), data, labels, DESCENT)


def beside_pytorch(module: Any, given: Any, network: Network | None = None) -> Beside:
    """Train both for a step of plain gradient descent at rate 0.5, and write our weights into a copy of the module.

    Args:
        module: in float32, with no drawn numbers but those of dropout, which is drawn as our kernels draw it.
        given: its input: images, or whole numbers.
        network: that was made of it (None: `from_torch` makes it).
    """
    whole = given.dtype == torch.int64
    network = network or refimpl.networks.from_torch(module, given if whole else tuple(given.shape))
    (output,) = network.outputs
    labels = np.random.default_rng(0).integers(0, output.classes, output.labels.shape).astype(np.int32)
    data = given.numpy().astype(np.int32 if whole else np.float32).reshape(network.input.shape)
    after = after_a_step(network, data, labels)
    trained: Arrays = {}
    for name, first in network.initial.items():
        trained[first.source] = first.as_source(after.get(name, first.values), trained.get(first.source))
    back, right = copy.deepcopy(module), copy.deepcopy(module).double().train()
    fill_module(back, {name: values.astype(np.float32) for name, values in trained.items()})

    drops = iter(sorted((one for one in network.layers if one.kind == "dropout"), key=lambda layer: layer.number))

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return _dropout(DESCENT)(next(drops), x) if training and p else x

    with mock.patch.object(functional, "dropout", dropout):
        made = right(given if whole else given.double())
    logits = getattr(made, "logits", made)
    losses = functional.cross_entropy(
        logits.flatten(0, -2), torch.from_numpy(labels).flatten().long(), reduction="none"
    )
    losses.mean().backward()
    torch.optim.SGD(right.parameters(), DESCENT["rate"]).step()
    losses = losses.detach().view(network.batch, -1).mean(1).numpy()  # of an image's tokens the mean
    apart = np.abs(after[output.losses.name].ravel() - losses)
    found, wanted = back.state_dict(), right.state_dict()
    kept = [name for name, values in wanted.items() if values.ndim]  # not the number of batches
    weight = max(float(((found[name] - wanted[name]).abs() / wanted[name].abs().clamp(min=1)).max()) for name in kept)
    return Beside(network, float(apart.max() / losses.max()), weight)


def described(network: Network) -> list[Any]:
    """All of a network but its names."""

    def rounded(options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in options.items()}

    numbers = {layer: number for number, layer in enumerate(network.layers)}
    return [
        (layer.kind, rounded(layer.options), layer.shape, [numbers.get(producer) for producer in layer.producers])
        for layer in network.layers
    ]


def same_weights(one: Network, other: Network) -> bool:
    pairs = list(zip(one.initial.values(), other.initial.values(), strict=True))
    return all(a.values.tobytes() == b.values.tobytes() for a, b in pairs)


def exported(module: torch.nn.Module, shape: tuple[int, ...], path: Path) -> Path:
    """The module as an ONNX file that keeps batch normalisation and dropout; it moves the module's statistics."""
    how = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.train(), (torch.randn(shape),), path, **how)
    return path


def torchvision_models() -> Any:
    """torchvision's models.

    One that was built for another PyTorch lacks its own operators, which no model here calls, and says so when it is
    imported: they are declared before.

    Raises:
        ImportError: it is not installed.
    """
    if "torchvision" not in sys.modules and find_spec("torchvision"):
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou) -> Tensor")
    import torchvision

    return torchvision.models


def model(name: str, **options: Any) -> torch.nn.Module:
    """A model of torchvision with ten classes, whose biases are drawn; it drops no branch."""
    torch.manual_seed(0)
    given: dict[str, Any] = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    given |= {"stochastic_depth_prob": 0.0} if name in ("efficientnet_b0", "convnext_tiny") else {}
    module: torch.nn.Module = getattr(torchvision_models(), name)(weights=None, num_classes=10, **given, **options)
    for layer in module.modules():
        if getattr(layer, "bias", None) is not None:
            torch.nn.init.uniform_(layer.bias, -1.0, 1.0)
    return module

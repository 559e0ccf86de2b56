"""torchvision's models imported both ways, and one iteration of each beside PyTorch's in double precision.

`pytest -m campaign tests/refimpl/importing/test_models.py` asks all of them, `-k resnet18` one.

The models have drawn weights and small images: enough images that batch normalisation has tens of values a channel even
in the last maps, because with eight it magnifies rounding several times more.  Normalisations are drawn as trained
networks have them (`draw`): with all their weights at 1, a residual network of 152 layers magnifies rounding so much
that PyTorch's single precision, too, is 1.4e-3 from its double precision.

A tensor's error is the norm of the difference over the norm of PyTorch's.  Some gradients are zero by mathematics: what
a bias adds to a channel is taken off again by a batch normalisation that follows (`zero_by_mathematics`).  Such a
gradient is a sum whose terms cancel, so its error is taken relative to what the terms make where they do not cancel:
the gradient of the weight of the same layer, a sum of the same terms, each times an input.

A gradient jumps where a number before a ReLU changes its sign, and where another number of a window becomes the
largest.  Of all these numbers a few are so near to that point that rounding decides, and each of them moves
gradients by up to some per cent: two single precisions differ by that, and both are right.  So PyTorch takes the sides
that we took (`OurSides`), in both precisions; what is left is a difference of rounding.  That our sides are right ones
is measured too: where double precision would take the other one, how far the number is from the point of the jump.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.nn import functional

import refimpl
from refimpl.network import Layer, Network
from refimpl.planner import DoesNotFit, Launch
from tests.refimpl.by_torch import _dropout

RATE = 0.01
AGREES = 1e-4
BLOCKS = ("BasicBlock", "Bottleneck", "InvertedResidual", "_InvertedResidual", "ResBottleneckBlock")  #: residual ones
#: Model → height and width of its images: the smallest that its poolings can share out; the cheap ones first.
MODELS = {
    "mobilenet_v3_small": 64, "mobilenet_v3_large": 64, "efficientnet_b0": 64, "regnet_y_400mf": 64,
    "convnext_tiny": 64, "shufflenet_v2_x1_0": 64,
    "squeezenet1_1": 64, "squeezenet1_0": 64, "mobilenet_v2": 64, "mnasnet0_5": 64, "mnasnet1_0": 64,
    "regnet_x_400mf": 64, "resnet18": 64, "resnet34": 64, "densenet121": 64, "googlenet": 64, "regnet_x_1_6gf": 64,
    "resnet50": 64, "resnext50_32x4d": 64, "resnet101": 64, "wide_resnet50_2": 64, "inception_v3": 107,
    "resnet152": 64, "alexnet": 224, "vgg11": 224, "vgg11_bn": 224, "vgg13": 224, "vgg13_bn": 224, "vgg16": 224,
    "vgg16_bn": 224, "vgg19": 224, "vgg19_bn": 224,
}  # fmt: skip
#: Height and width → images: a channel of the last maps has 64 values (16 in Inception, 98 in VGG).
IMAGES = {64: 16, 107: 16, 224: 2}
AUXILIARY = ("googlenet", "inception_v3")  #: have classifiers beside the end
STOCHASTIC = ("efficientnet_b0", "convnext_tiny")  #: drop branches at random, as PyTorch draws them
POLICIES = ("vdnn-all", "vdnn-conv", "vdnn-dyn", "vdnnpp-all", "vdnnpp-conv", "superneurons", "accudnn", "combined")


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
    torch.manual_seed(0)
    given: dict[str, Any] = {"aux_logits": False, "init_weights": True} if name in AUXILIARY else {}
    given |= {"stochastic_depth_prob": 0.0} if name in STOCHASTIC else {}
    module: torch.nn.Module = getattr(torchvision_models(), name)(weights=None, num_classes=10, **given, **options)
    draw(module)
    return module


def draw(module: torch.nn.Module) -> None:
    """Biases, and weights of batch normalisations: around 1, but at the end of a residual branch well below.

    So no residual branch is as large as the sum it is added to, and no weight is a one or a zero.
    """

    def norms(block: torch.nn.Module) -> list[torch.nn.Module]:
        named = block.named_modules()
        return [norm for name, norm in named if isinstance(norm, torch.nn.BatchNorm2d) and "downsample" not in name]

    ends = {norms(block)[-1] for block in module.modules() if type(block).__name__ in BLOCKS}
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.weight, *((0.1, 0.4) if layer in ends else (0.5, 1.5)))
        if getattr(layer, "bias", None) is not None:
            torch.nn.init.uniform_(layer.bias, -1.0, 1.0)


def settle(module: torch.nn.Module, shape: tuple[int, ...]) -> None:
    """Running statistics of a batch: with means of 0 and variances of 1, deep models answer 0 and 1 in evaluation."""
    norms = [norm for norm in module.modules() if isinstance(norm, torch.nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        module.train()(torch.randn(16, *shape[1:]))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def exported(module: torch.nn.Module, shape: tuple[int, ...], path: Path) -> None:
    """The module as an ONNX file that keeps batch normalisation and dropout; it moves the module's statistics."""
    how = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.train(), (torch.randn(shape),), path, **how)


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


def layers_of(network: Network, *kinds: str) -> list[Layer]:
    """The layers in the order of the module's calls."""
    return sorted((layer for layer in network.layers if layer.kind in kinds), key=lambda layer: layer.number)


def max_pools(network: Network) -> list[Layer]:
    return [layer for layer in layers_of(network, "pool") if layer.options["mode"] == "max"]


class OurSides:
    """Stand-ins for PyTorch's ReLU, ReLU6 and max pooling: each takes the side of the jump that we took.

    Args:
        relus: our outputs of the ReLUs, in the order of the module's calls.
        pooled: our inputs of the max poolings.
    """

    def __init__(self, relus: Sequence[np.ndarray], pooled: Sequence[np.ndarray]) -> None:
        self._relus, self._pooled = iter(relus), iter(pooled)
        self.others = 0  #: numbers for which PyTorch would take the other side
        self.furthest = 0.0  #: that such a number is from the jump, over the root mean square of its map

    def relu(self, x: Any, inplace: bool = False) -> Any:
        return self._clamped(x, np.inf)

    def hardtanh(self, x: Any, min_val: float = 0.0, max_val: float = 6.0, inplace: bool = False) -> Any:
        return self._clamped(x, max_val)

    def _clamped(self, x: Any, most: float) -> Any:
        ours = torch.tensor(next(self._relus))
        assert ours.shape == x.shape
        y = torch.where((ours > 0) & (ours < most), x, ours.clamp(0, most).to(x.dtype))
        self._note(x, y, x.clamp(0, most))
        return y

    def max_pool2d(self, x: Any, *window: Any, **options: Any) -> Any:
        ours = torch.tensor(next(self._pooled))
        assert ours.shape == x.shape
        _, places = functional.max_pool2d_with_indices(ours, *window, **options)
        y = x.flatten(2).gather(2, places.flatten(2)).view(places.shape)
        self._note(x, y, functional.max_pool2d_with_indices(x, *window, **options)[0])
        return y

    def _note(self, x: Any, y: Any, own: Any) -> None:
        apart = (y - own).detach().abs()
        self.others += int((apart > 0).sum())
        self.furthest = max(self.furthest, float(apart.max() / x.detach().square().mean().sqrt()))


@contextmanager
def ours_for(network: Network, sides: OurSides | None) -> Iterator[None]:
    """PyTorch draws what the network's dropout layers draw in the first iteration, and takes our sides, if any."""
    layers = iter(layers_of(network, "dropout"))
    drawn = _dropout({"seed": 0, "iteration": 0})

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return drawn(next(layers), x) if training and p else x

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(functional, "dropout", dropout))
        for name in ("relu", "hardtanh", "max_pool2d") if sides else ():
            patches.enter_context(mock.patch.object(functional, name, getattr(sides, name)))
        yield


def by_torch(
    module: torch.nn.Module,
    network: Network,
    batch: tuple[np.ndarray, np.ndarray],
    precision: Any,
    sides: OurSides | None = None,
) -> Any:
    """Probabilities in evaluation; losses, gradients, and all weights and statistics after one step of SGD."""
    module = copy.deepcopy(module).to(precision)
    images, labels = torch.tensor(batch[0], dtype=precision), torch.tensor(batch[1]).long()
    with torch.no_grad():
        found = {"evaluation": {"": module.eval()(images).softmax(1).numpy()}}
    with ours_for(network, sides):
        losses = functional.cross_entropy(module.train()(images), labels, reduction="none")
    losses.mean().backward()
    found["training"] = {"": losses.detach().numpy()}
    found["gradients"] = {name: weight.grad.numpy().copy() for name, weight in module.named_parameters()}
    torch.optim.SGD(module.parameters(), lr=RATE).step()
    state = {name: values.numpy() for name, values in module.state_dict().items() if values.ndim}
    found["step"] = {name: values for name, values in state.items() if "running" not in name}
    found["statistics"] = {name: values for name, values in state.items() if "running" in name}
    return found


def by_us(network: Network, batch: tuple[np.ndarray, np.ndarray]) -> Any:
    """The same by the Trainer, and as "sides" the maps that `OurSides` is given."""
    program = refimpl.plan(network, "baseline", "here")  # it keeps every map
    with refimpl.Trainer(program, "cpu", rate=RATE, momentum=0.0) as trainer:
        found: dict[str, Any] = {"evaluation": {"": trainer.evaluate(*batch).predictions}}
        trainer.step(*batch)
        at = dict(program.resident)
        for launch in program.instructions:
            if isinstance(launch, Launch):
                at.update(zip(launch.call.operands, launch.addresses, strict=True))
        losses, relus, pools = network.losses, layers_of(network, "relu"), max_pools(network)
        read = [losses, *(layer.y for layer in relus), *(layer.x for layer in pools)]
        first, *maps = [trainer.device.read(at[tensor], tensor.shape, tensor.dtype) for tensor in read]
        found["training"] = {"": first}
        found["sides"] = maps[: len(relus)], maps[len(relus) :]
        state = trainer.state()
        weights = trainer.weights()
    found["gradients"] = {
        first.source: first.as_source(state[f"d({name})"])
        for name, first in network.initial.items()
        if f"d({name})" in state
    }
    found["step"] = {name: values for name, values in weights.items() if "running" not in name}
    found["statistics"] = {name: values for name, values in weights.items() if "running" in name}
    return found


def zero_by_mathematics(network: Network) -> set[str]:
    """Sources of the biases whose gradients are zero: the same number added to a whole channel changes nothing."""

    def removed(layer: Layer) -> bool:
        """Whether what is added to a channel of the layer's map is taken off by all layers that read it."""
        return all(
            reader.kind == "batchnorm"
            or (reader.kind == "groupnorm" and reader.options["groups"] == reader.shape[1])
            or (
                (reader.kind == "join" or (reader.kind == "conv" and not any(reader.options["pad"])))
                and removed(reader)
            )
            for reader in layer.consumers
        )

    return {
        network.initial[parameter.weight.name].source
        for layer in network.layers
        for name, parameter in layer.parameters.items()
        if name in ("b", "beta") and removed(layer)
    }


def errors(network: Network, found: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, float]:
    """The largest error of a tensor, by what was compared."""
    zero = zero_by_mathematics(network)
    worst = {}
    for what, tensors in right.items():
        assert found[what].keys() == tensors.keys(), what
        norms = {name: float(np.linalg.norm(values)) for name, values in tensors.items()}
        if what == "gradients":
            for name in zero:
                weight = norms[name.removesuffix("bias") + "weight"]
                assert norms[name] < 1e-9 * weight, name
                norms[name] = weight
        differences = ((name, float(np.linalg.norm(found[what][name] - values))) for name, values in tensors.items())
        worst[what] = max((difference / norms[name] for name, difference in differences), default=0.0)
    return worst


def compared(module: torch.nn.Module, network: Network) -> dict[str, Any]:
    """Our errors on one batch, those of PyTorch's own single precision, and how right our sides are."""
    random = np.random.default_rng(0)
    images = random.standard_normal(network.input.shape, dtype=np.float32)
    batch = images, random.integers(0, 10, network.batch).astype(np.int32)
    ours = by_us(network, batch)
    sides = OurSides(*ours["sides"])
    right = by_torch(module, network, batch, torch.float64, sides)
    own = by_torch(module, network, batch, torch.float32, OurSides(*ours["sides"]))
    return {
        "ours": errors(network, ours, right), "pytorch": errors(network, own, right),
        "other_sides": sides.others, "furthest": sides.furthest,
    }  # fmt: skip


def planned(network: Network) -> list[str]:
    """The policies whose programs fit a Titan X and are verified."""
    fits = []
    for policy in POLICIES:
        try:
            refimpl.plan(network, policy, "titan-x").verify()
        except DoesNotFit:
            continue
        fits.append(policy)
    return fits


def row(name: str) -> dict[str, Any]:
    """Everything about one model."""
    size = MODELS[name]
    shape = (IMAGES[size], 3, size, size)
    module = model(name)
    settle(module, shape)
    with TemporaryDirectory() as folder:
        exported(module, shape, path := Path(folder) / f"{name}.onnx")
        filed = refimpl.networks.from_onnx(path, batch=shape[0])
    network = refimpl.networks.from_torch(module, shape)
    return {
        "parameters_equal": network.parameter_count == sum(p.numel() for p in module.parameters()),
        "same_both_ways": same_weights(network, filed)  # the exporter makes one concatenation of two in Inception
        and (name == "inception_v3" or described(network) == described(filed)),
        **compared(module, network),
        "planned": planned(network), "planned_from_file": planned(filed),
    }  # fmt: skip

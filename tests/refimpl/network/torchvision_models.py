"""torchvision's models imported both ways, and one iteration of each beside PyTorch's in double precision.

    python -m tests.refimpl.network.torchvision_models rows.jsonl            # all models; rows that are there are kept
    python -m tests.refimpl.network.torchvision_models rows.jsonl resnet18   # one model
    python -m tests.refimpl.network.torchvision_models rows.jsonl --table    # the rows as a table

The models have weights that are drawn, and two small images.  A tensor's error is the norm of the difference over the
norm of PyTorch's.  A gradient that is zero by mathematics, as that of a bias before a batch normalisation, has no norm
of its own: a tensor's norm counts as at least a ten thousandth of that of all gradients (weights, statistics) together.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.nn import functional

import refimpl
from refimpl.network import Network
from refimpl.planner import DoesNotFit
from tests.refimpl.by_torch import _dropout

BATCH = 2
RATE = 0.01
AGREES = 1e-4
BATCHES = 8  #: that are tried at most
LEAST = 1e-4  #: that a tensor's norm counts for, of the norm of all
#: Model → height and width of its images: the smallest that its poolings can share out; the cheap ones first.
MODELS = {
    "squeezenet1_1": 64, "squeezenet1_0": 64, "mobilenet_v2": 64, "mnasnet0_5": 64, "mnasnet1_0": 64,
    "regnet_x_400mf": 64, "resnet18": 64, "resnet34": 64, "densenet121": 64, "googlenet": 64, "regnet_x_1_6gf": 64,
    "resnet50": 64, "resnext50_32x4d": 64, "resnet101": 64, "wide_resnet50_2": 64, "inception_v3": 107,
    "resnet152": 64, "alexnet": 224, "vgg11": 224, "vgg11_bn": 224, "vgg13": 224, "vgg13_bn": 224, "vgg16": 224,
    "vgg16_bn": 224, "vgg19": 224, "vgg19_bn": 224,
}  # fmt: skip
AUXILIARY = ("googlenet", "inception_v3")  #: have classifiers beside the end
MERGED = ("inception_v3",)  #: the exporter makes one concatenation of two
POLICIES = ("vdnn-all", "vdnn-conv", "vdnn-dyn", "vdnnpp-all", "vdnnpp-conv", "superneurons", "accudnn", "combined")


def model(name: str) -> torch.nn.Module:
    import torchvision

    torch.manual_seed(0)
    given = {"aux_logits": False, "init_weights": True} if name in AUXILIARY else {}
    return getattr(torchvision.models, name)(weights=None, num_classes=10, **given)


def exported(module: torch.nn.Module, shape: tuple[int, ...], path: Path) -> None:
    """The module as an ONNX file that keeps batch normalisation and dropout; it moves the module's statistics."""
    how = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.train(), (torch.zeros(shape),), path, **how)


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


@contextmanager
def our_dropout(network: Network) -> Iterator[None]:
    """PyTorch draws what the network's dropout layers draw in the first iteration, in the order of its calls."""
    layers = iter([layer for layer in network.layers if layer.kind == "dropout"])
    drawn = _dropout({"seed": 0, "iteration": 0})

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return drawn(next(layers), x) if training and p else x

    with mock.patch.object(functional, "dropout", dropout):
        yield


def by_torch(module: torch.nn.Module, network: Network, batch: tuple[np.ndarray, np.ndarray], precision: Any) -> Any:
    """Probabilities in evaluation; losses, gradients, and all weights and statistics after one step of SGD."""
    module = copy.deepcopy(module).to(precision)
    images, labels = torch.tensor(batch[0], dtype=precision), torch.tensor(batch[1]).long()
    with torch.no_grad():
        found = {"evaluation": {"": module.eval()(images).softmax(1).numpy()}}
    with our_dropout(network):
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
    """The same by the Trainer."""
    program = refimpl.plan(network, "baseline", "here")
    with refimpl.Trainer(program, "cpu", rate=RATE, momentum=0.0) as trainer:
        found = {"evaluation": {"": trainer.evaluate(*batch).predictions}}
        trainer.step(*batch)
        losses = network.losses
        found["training"] = {"": trainer.device.read(program.resident[losses], losses.shape, losses.dtype)}
        state = trainer.state()
        sources = {first.source: name for name, first in network.initial.items()}
        weights = trainer.weights()
    found["gradients"] = {source: state[f"d({name})"] for source, name in sources.items() if f"d({name})" in state}
    found["step"] = {name: values for name, values in weights.items() if "running" not in name}
    found["statistics"] = {name: values for name, values in weights.items() if "running" in name}
    return found


def errors(found: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, float]:
    """The largest error of a tensor, by what was compared."""
    worst = {}
    for what, tensors in right.items():
        assert found[what].keys() == tensors.keys(), what
        least = LEAST * np.sqrt(sum(float((values**2).sum()) for values in tensors.values()))
        relative = (np.linalg.norm(found[what][n] - r) / max(np.linalg.norm(r), least) for n, r in tensors.items())
        worst[what] = max(map(float, relative), default=0.0)
    return worst


def compared(module: torch.nn.Module, network: Network) -> dict[str, Any]:
    """Our errors, and those of PyTorch's own single precision, on one batch.

    Where a number before a ReLU is so near to 0 that rounding decides its sign, two implementations differ, and both
    are right.  So a few batches are tried until one agrees: something that is computed wrongly agrees on none.
    """
    best: dict[str, Any] = {}
    for seed in range(BATCHES):
        random = np.random.default_rng(seed)
        images = random.standard_normal(network.input.shape, dtype=np.float32)
        batch = images, random.integers(0, 10, BATCH).astype(np.int32)
        right = by_torch(module, network, batch, torch.float64)
        ours = errors(by_us(network, batch), right)
        if not best or max(ours.values()) < max(best["ours"].values()):
            own = errors(by_torch(module, network, batch, torch.float32), right)
            best = {"ours": ours, "pytorch": own, "batches": seed + 1}
        if max(ours.values()) < AGREES:
            break
    return best


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
    shape = (BATCH, 3, MODELS[name], MODELS[name])
    module = model(name)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        exported(module, shape, path)
        start = time.process_time()
        filed = refimpl.networks.from_onnx(path, batch=BATCH)
        onnx_seconds = time.process_time() - start
    start = time.process_time()
    network = refimpl.networks.from_torch(module, shape)
    torch_seconds = time.process_time() - start
    return {
        "model": name, "size": MODELS[name], "layers": len(network.layers), "parameters": network.parameter_count,
        "parameters_equal": network.parameter_count == sum(p.numel() for p in module.parameters()),
        "same_both_ways": same_weights(network, filed)
        and (name in MERGED or described(network) == described(filed)),
        **compared(module, network),
        "planned": planned(network), "seconds": {"from_torch": torch_seconds, "from_onnx": onnx_seconds},
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown; errors are ours, and PyTorch's own in single precision in brackets."""
    lines = ["| model | images | layers | parameters | evaluation | losses | gradients | one step | planned |"]
    lines += ["| --- " * 9 + "|"]
    for one in rows:
        columns = ("evaluation", "training", "gradients", "step")
        both = [f"{one['ours'][what]:.1e} ({one['pytorch'][what]:.1e})" for what in columns]
        lines.append(
            f"| {one['model']} | {one['size']}² | {one['layers']} | {one['parameters']:,} | {' | '.join(both)} "
            f"| {len(one['planned'])} of {len(POLICIES)} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    path, *names = arguments
    kept = [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []
    if names == ["--table"]:
        print(table(kept))
        return
    torch.set_num_threads(1)
    for name in names or MODELS:
        if name not in {one["model"] for one in kept}:
            start = time.process_time()
            made = row(name) | {"all_seconds": time.process_time() - start}
            with open(path, "a") as file:
                file.write(json.dumps(made) + "\n")
            print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

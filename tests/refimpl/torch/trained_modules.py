"""Small modules with everything that a plan meets, and one iteration of one beside plain PyTorch's."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import refimpl
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program
from refimpl.torch.values import StorageValue

POLICIES = ("vdnn-all", "superneurons", "accudnn", "combined, effort=5")
SHAPE = (8, 3, 16, 16)


@contextmanager
def nothing_left() -> Iterator[None]:
    """At the end all values are gone, and no cycle of references had to be collected for that."""
    gc.collect()
    gc.disable()
    try:
        yield
        assert not [one for one in gc.get_objects() if isinstance(one, StorageValue)]
    finally:
        gc.enable()


class Branches(nn.Module):
    """Branches, a concat, ReLUs in place and not, ReLU6 in place, residual additions, pooling, dropout, statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.a = nn.ModuleList(nn.Conv2d(32 if i else 16, 16, 3, padding=1) for i in range(3))
        self.b = nn.ModuleList(nn.Conv2d(32 if i else 16, 16, 1) for i in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))
        self.pool, self.drop, self.fc = nn.MaxPool2d(2), nn.Dropout(0.3), nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = functional.hardtanh(self.stem_norm(self.stem(x)), 0.0, 6.0, inplace=True)
        for i in range(3):
            p = functional.relu(self.norms[i](self.a[i](x)), inplace=True)
            q = torch.relu(self.b[i](x))
            q = q + p
            x = torch.cat([p, q], 1)
            x = self.pool(x) if i == 1 else x
        return self.fc(self.drop(x).mean((2, 3)))


#: What makes a map of the map y, by its number in the module.
MAKES: Mapping[str, Callable[[Any, Any, int], Any]] = {
    "conv": lambda made, y, i: made.convs[i](y),
    "norm": lambda made, y, i: made.norms[i](y),
    "relu": lambda made, y, i: functional.relu(y),
    "scaled": lambda made, y, i: y * 0.5,
    "dropout": lambda made, y, i: functional.dropout(y, 0.3),
    "sorted": lambda made, y, i: torch.sort(y, 1)[0],
}
#: What writes over the map y, or over a part of it; z is another map, or the same.
WRITES: Mapping[str, Callable[[Any, Any], Any]] = {
    "a part by itself": lambda y, z: y[:, :1].copy_(y[:, :1] * 2),
    "a part by another": lambda y, z: y[:, 1:].copy_(functional.relu(z[:, 1:])),
    "a part by two": lambda y, z: y[:, :2].copy_(y[:, 2:] + z[:, :2]),
    "a part added": lambda y, z: y[:, :1].add_(z[:, 1:2]),
    "a part filled": lambda y, z: y[:, -1].fill_(0.5),
    "whole by itself": lambda y, z: y.copy_(torch.tanh(y)),
    "whole by another": lambda y, z: y.copy_(z * 0.5),
    "added": lambda y, z: y.add_(z),
    "multiplied": lambda y, z: y.mul_(0.5),
    "relu": lambda y, z: y.relu_(),
    "relu6": lambda y, z: functional.hardtanh(y, 0.0, 6.0, inplace=True),
    "dropout": lambda y, z: functional.dropout(y, 0.3, inplace=True),
    "masked": lambda y, z: y.masked_fill_(z > 0, 0.5),
    "indexed": lambda y, z: y.index_copy_(1, torch.tensor([0]), z[:, 1:2]),
}


class Overwriting(nn.Module):
    """Maps that are made of others, and written over, whole or in part, before and after they are read; see `MAKES`.

    Args:
        described: of each operation its name, and how many maps before the last one y and z are.
    """

    def __init__(self, described: Sequence[tuple[str, int, int]]) -> None:
        super().__init__()
        self.described = described
        self.first, self.end = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 5)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in described)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in described)

    def forward(self, x: Any) -> Any:
        maps = [self.first(x)]
        for i, (name, *before) in enumerate(self.described):
            y, z = (maps[-1 - number % len(maps)] for number in before)
            if name in MAKES:
                maps.append(MAKES[name](self, y, i))
            else:
                WRITES[name](y, z)
        return self.end(sum(y.mean((2, 3)) for y in maps[-3:]))


def program_of(network: Network, policy: str, machine: str = "titan-x") -> Program:
    """Planned at half of what the baseline's maps need, or at the least share of tenths that fits."""
    base = refimpl.plan(network, "baseline", machine)
    managed = base.peak_bytes - network.resident_bytes
    for share in (0.5, 0.6, 0.7, 0.8, 0.9):
        try:
            return refimpl.plan(network, policy, machine, int(network.resident_bytes + share * managed))
        except DoesNotFit:
            continue
    return refimpl.plan(network, policy, machine)


class Beside:
    """A module, its batch, and iterations that all begin with the same weights and the same generator."""

    def __init__(self, module: Any, inputs: Any = SHAPE, labels: Any = None) -> None:
        """Args:
        module: in train mode.
        inputs: a tensor, or the shape of images that are drawn.
        labels: of each image or token; None: of ten classes, drawn.
        """
        torch.set_num_threads(1)  # such small maps are slower with more
        torch.manual_seed(3)
        self.module = module
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.weight, 0.5, 1.0)
        self.x = inputs if isinstance(inputs, torch.Tensor) else torch.randn(inputs)
        self.y = torch.randint(0, 10, self.x.shape[:1]) if labels is None else labels
        self._state = copy.deepcopy(module.state_dict())

    def iteration(self, step: Callable[[Any], Any], model: Any) -> dict[str, Any]:
        """The loss, all gradients and all buffers after `step(model)`, which returns the loss."""
        self.module.load_state_dict(self._state)
        self.module.zero_grad()
        torch.manual_seed(11)
        loss = step(model)
        found = {"loss": loss.detach().clone()}
        found |= {name: one.grad.clone() for name, one in self.module.named_parameters() if one.grad is not None}
        return found | {name: one.clone() for name, one in self.module.named_buffers()}

    def loss(self, model: Any) -> Any:
        """Forward, to the loss of all outputs."""
        return self.loss_of(model(self.x))

    def loss_of(self, outputs: Any) -> Any:
        """The loss of what a model returns."""
        return functional.cross_entropy(getattr(outputs, "logits", outputs).flatten(0, -2), self.y.flatten())

    def plain(self, model: Any) -> Any:
        """The usual iteration."""
        loss = self.loss(model)
        loss.backward()
        return loss


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Tensors of the same bits, and None in the same places."""
    return len(one) == len(other) and all(
        (a is None) == (b is None) and (a is None or torch.equal(a, b)) for a, b in zip(one, other, strict=True)
    )


def penalised(beside: Beside, model: Any) -> Any:
    """A loop with a gradient penalty, and so a second backward."""
    x = beside.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(functional.cross_entropy(model(x), beside.y), x, create_graph=True)
    loss = gradient.pow(2).sum()
    loss.backward()
    return loss

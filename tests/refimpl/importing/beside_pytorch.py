"""Three steps of an imported module beside PyTorch's in double precision."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np

import refimpl

RATE = 0.5


class Beside(NamedTuple):
    """How far an imported network's training is from PyTorch's."""

    network: refimpl.Network
    loss: float  #: the largest difference of a step's loss, over the loss
    weight: float  #: the largest difference of a number of a weight
    left: list[str]  #: parameters that did not come back to the last bit, or that we did not train and PyTorch did


def three_steps(module: Any, given: Any, classes: int, steps: int = 3) -> Beside:
    """Train both, and write our weights into a copy of the module.

    Args:
        module: in float32; as it trains it draws nothing.
        given: an example of its input: images, or whole numbers.
        classes: labels are 0 … classes - 1.
        steps: of plain gradient descent at rate 0.5.
    """
    import torch
    from torch.nn import functional

    whole = given.dtype == torch.int64
    network = refimpl.networks.from_torch(module, given if whole else tuple(given.shape))
    shape = network.outputs[0].labels.shape
    random = np.random.default_rng(0)
    data = given.numpy().astype(np.int32 if whole else np.float32)
    back, right = copy.deepcopy(module), copy.deepcopy(module).double().train()
    optimiser = torch.optim.SGD(right.parameters(), RATE)
    furthest = 0.0
    with refimpl.Trainer(refimpl.plan(network, "baseline", "here"), "cpu", rate=RATE, momentum=0.0) as trainer:
        for _ in range(steps):
            labels = random.integers(0, classes, shape).astype(np.int32)
            ours = trainer.step(data, labels)
            made = right(torch.from_numpy(data).long() if whole else torch.from_numpy(data).double())
            logits = getattr(made, "logits", made)
            loss = functional.cross_entropy(logits.flatten(0, -2), torch.from_numpy(labels).flatten().long())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            furthest = max(furthest, abs(ours - loss.item()) / loss.item())
        trained = trainer.weights()
        trainer.to_torch(back)
    names, error, left = dict(back.named_parameters(remove_duplicate=False)), 0.0, []
    first = dict(module.named_parameters(remove_duplicate=False))
    for name, weight in right.named_parameters(remove_duplicate=False):
        found = names[name].detach().numpy()
        error = max(error, float(np.abs(found - weight.detach().numpy()).max()))
        untrained = found.tobytes() == first[name].detach().numpy().tobytes()
        if name in trained and found.tobytes() != trained[name].tobytes():
            left.append(name)
        if untrained and float((weight - first[name].double()).abs().max()) > 1e-6:
            left.append(name)
    return Beside(network, furthest, error, left)

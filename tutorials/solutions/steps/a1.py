"""A1, liveness: what is handed in after each step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor
from tutorials.labs.lab import Case
from tutorials.labs.test_a1 import LAB as LAB
from tutorials.solutions.a1_liveness import liveness

NETWORKS = {
    "tiny-resnet": (4, 16), "tiny-unet": (8, 32), "tiny-convnext": (16, 48), "tiny-inception": (24, 96),
    "tiny-se": (8, 32), "tiny-vgg": (16, 48), "shufflenet-v2": (16, 32), "tiny-vit": (8, 32),
}  # fmt: skip
PARTS = [f"{network} {around}" for network in NETWORKS for around in LAB.around]
DRAWS, NEED = 4, 0.0
GRADIENTS = ("gradient map", "weight gradient")


def draw(part: str, numbers: random.Random) -> Case:
    network, around = part.split()
    return Case(part, network, numbers.randint(*NETWORKS[network]), around=around)


@dataclass(frozen=True)
class Rule(slots.Liveness):
    """Released by a rule: after which steps a tensor goes."""

    steps: Callable[[Context, Tensor, Sequence[Step]], Sequence[int]]
    name: ClassVar[str] = "a-rule"
    summary: ClassVar[str] = "released by a rule"
    offers: ClassVar = frozenset({"release"})

    def bind(self, context: Context) -> slots.Releases:
        found = slots.Releases()
        for tensor, uses in context.uses.items():
            for number in self.steps(context, tensor, uses) if uses else ():
                found.add(number, tensor)
        return found


def gradients(context: Context, tensor: Tensor, uses: Sequence[Step]) -> Sequence[int]:
    return [uses[-1].number] if tensor.kind in GRADIENTS else []


def unread(context: Context, tensor: Tensor, uses: Sequence[Step]) -> Sequence[int]:
    """Gradients, and maps that no step of backward reads."""
    return [uses[-1].number] if tensor.kind in GRADIENTS or uses[-1].forward else []


def last(context: Context, tensor: Tensor, uses: Sequence[Step]) -> Sequence[int]:
    return [uses[-1].number]


def fated(context: Context, tensor: Tensor, uses: Sequence[Step]) -> Sequence[int]:
    return [*([context.last_forward_use(tensor)] if tensor in context.fates else []), uses[-1].number]


ZERO: dict[str, Any] = {"liveness": Rule(gradients)}
FULL: dict[str, Any] = {"liveness": liveness}
STEPS: dict[str, dict[str, Any]] = {
    "maps that backward never reads": {"liveness": Rule(unread)},
    "after the last use": {"liveness": Rule(last)},
    "maps with a fate, after forward too": {"liveness": Rule(fated)},
}

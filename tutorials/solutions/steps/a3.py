"""A3, a recompute and a cache: what is handed in after each step."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from refimpl import Context
from refimpl.network import Tensor
from refimpl.slots.baseline import NoRecompute
from tutorials.labs.lab import Case, network_of
from tutorials.labs.test_a3 import LAB as LAB
from tutorials.labs.test_a3 import layer_wise, most_live
from tutorials.solutions.a3_recompute_and_cache import Rebuild, Rebuilding, cache, cheapest_first, makers, recompute

NETWORKS = {
    "tiny-resnet": (4, 16), "tiny-unet": (8, 32), "tiny-convnext": (16, 48), "tiny-inception": (24, 96),
    "tiny-se": (8, 32), "mobilenet-v3-small": (32, 96), "shufflenet-v2": (16, 64), "regnet-y-400mf": (16, 48),
}  # fmt: skip
BUDGETS = {network: 3 if network.startswith("tiny") else 2 for network in NETWORKS}
PARTS = [f"{network} {number} of {count}" for network, count in BUDGETS.items() for number in range(1, count + 1)]
KIB = 1 << 10
DRAWS, NEED = 6, 0.13
REACH = 0.2, 0.85  #: shares of the way from what the largest step uses to what layer-wise holds


def draw(part: str, numbers: random.Random) -> Case:
    network, number, _, count = part.split()
    batch = numbers.randint(*NETWORKS[network])
    built = network_of(network, batch)
    least = max(sum(one.nbytes for one in step.uses if one.managed) for step in built.steps) + built.resident_bytes
    most = most_live(layer_wise(network, batch))
    low, high = REACH
    share = low + (high - low) * (int(number) - numbers.random()) / int(count)
    budget = least + share * (most - least)
    return Case(part, network, batch, int(budget) // KIB * KIB)


@dataclass(frozen=True)
class Chosen(Rebuild):
    """The solution's, with other maps."""

    choose: Callable[[Context], Collection[Tensor]]

    def bind(self, context: Context) -> Rebuilding:
        found = Rebuilding(context)
        found.dropped = dict.fromkeys(self.choose(context))
        return found


def of_one_layer(context: Context) -> list[Tensor]:
    """What one cheap layer makes of a map that is kept."""
    alone = [tensor for tensor in cheapest_first(context) if len(makers(context, tensor)) == 1]
    return [tensor for tensor in alone if not any(x in alone for x in makers(context, tensor)[0].reads)]


def pools(context: Context) -> list[Tensor]:
    return [tensor for tensor in of_one_layer(context) if makers(context, tensor)[0].layer.kind == "pool"]


ZERO: dict[str, Any] = {"recompute": NoRecompute(), "cache": cache}
FULL: dict[str, Any] = {"recompute": recompute, "cache": cache}
STEPS: dict[str, dict[str, Any]] = {
    "pools are dropped": {"recompute": Chosen(pools), "cache": cache},
    "what one cheap layer makes": {"recompute": Chosen(of_one_layer), "cache": cache},
    "chains": {"recompute": Chosen(cheapest_first), "cache": cache},
}

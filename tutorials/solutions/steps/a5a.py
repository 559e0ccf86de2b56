"""A5a, an offload: what is handed in after each step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from refimpl import Context, slots
from refimpl.memory import UNLIMITED
from refimpl.network import Tensor
from refimpl.planner import Setup, plan
from tutorials.labs.lab import LAYER_WISE, Case, machine, network_of
from tutorials.labs.test_a5a import LAB as LAB
from tutorials.solutions.a5a_offload import as_many, departures, idle, longest, offload

#: With the least and the most images, and the number of budgets.
NETWORKS = {
    "tiny-resnet": (4, 16, 4), "tiny-unet": (8, 32, 4), "tiny-convnext": (16, 48, 4), "tiny-inception": (24, 96, 4),
    "tiny-se": (8, 32, 4), "tiny-vgg": (16, 48, 4), "mobilenet-v3-small": (32, 96, 3), "shufflenet-v2": (16, 64, 2),
    "regnet-y-400mf": (16, 48, 2),
}  # fmt: skip
PARTS = [f"{network} {number}" for network, (_, _, budgets) in NETWORKS.items() for number in range(budgets)]
REACH = (0.2, 0.6)  #: of the way from what everything away needs to what nothing away needs
DRAWS, NEED = 6, 0.15


def draw(part: str, numbers: random.Random, reach: tuple[float, float] = REACH) -> Case:
    network, number = part.split()
    least, most, budgets = NETWORKS[network]
    batch = numbers.randint(least, most)
    share = reach[0] + (reach[1] - reach[0]) * (int(number) + numbers.random()) / budgets
    low, high = ends(network, batch)
    return Case(part, network, batch, int(low + share * (high - low)) // 1024 * 1024)


@lru_cache(maxsize=256)
def ends(network: str, batch: int) -> tuple[int, int]:
    """The most that a step has on the device, in bytes, with every map away and with none."""

    def most(setup: Setup) -> int:
        program = plan(network_of(network, batch), setup, machine(), UNLIMITED)
        return program.network.resident_bytes + max(row.live_bytes + row.workspace_bytes for row in program.rows)

    return most(LAYER_WISE.replace(offload=Rule(every))), most(LAYER_WISE)


@dataclass(frozen=True)
class Rule(slots.Offload):
    """Maps by a rule."""

    maps: Callable[[Context], Sequence[Tensor]]
    name: ClassVar[str] = "a-rule"
    summary: ClassVar[str] = "maps by a rule"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> slots.Departures:
        return departures(context, self.maps(context))


def every(context: Context) -> Sequence[Tensor]:
    return context.maps_across()


def waiting(context: Context) -> Sequence[Tensor]:
    return [tensor for tensor in context.maps_across() if len(idle(context, tensor)) >= 2]


def largest(context: Context) -> Sequence[Tensor]:
    return as_many(context, lambda tensor: tensor.nbytes)


ZERO: dict[str, Any] = {"offload": Rule(every)}
FULL: dict[str, Any] = {"offload": offload}
STEPS: dict[str, dict[str, Any]] = {
    "1 what waits two steps": {"offload": Rule(waiting)},
    "2 as many as the budget asks for": {"offload": Rule(largest)},
    "3 the longest wait first": {"offload": Rule(longest)},
}

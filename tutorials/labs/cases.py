"""What a lab of modules asks, and its cases: networks, batches and budgets, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from refimpl.machine import Machine
from refimpl.names.least_budget import least_budget
from refimpl.names.machines import named
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import BASELINE, Setup
from refimpl.slots.algorithms import FastestThatFits
from refimpl.slots.baseline import LayerWise

KIB = 1 << 10
TRIES = 40
SMALLS, LARGES = 2, 3  #: cases of each sort

#: Networks of the cases, with the least and most images: the small ones are trained, and have a bound.
SMALL = {"lenet": (16, 96), "tiny-vgg": (8, 48), "tiny-resnet": (4, 16)}
LARGE = {
    "alexnet": (48, 160), "vgg16": (12, 48), "vgg19": (12, 32), "resnet50": (8, 24), "googlenet": (12, 40),
    "tiny-inception": (24, 96),
}  # fmt: skip

FASTEST = FastestThatFits()
#: Each tensor is released after its last use; nothing is moved or dropped.
LAYER_WISE = BASELINE.replace(name="lab", liveness=LayerWise(), algorithms=FASTEST)


@dataclass(frozen=True)
class Lab:
    """What a lab asks.  Its budgets are drawn between the least of `least` and that of `without`."""

    name: str
    slots: tuple[str, ...]  #: that the submission fills
    base: Setup  #: the modules of the other slots
    paper: Setup  #: what the submission is compared with
    without: Setup  #: a setup that needs more than every budget
    bytes: Literal["peak", "moved"]  #: that are compared
    reach: tuple[float, float]  #: of budgets, as shares of the way from `least` to `without`
    least: Setup | None = None  #: None: the paper's
    near: float = 0.3  #: seconds above the lower bound that still get all points, as a share of it
    may_fill: tuple[str, ...] = ()  #: names that it may have as well


@dataclass(frozen=True)
class LabCase:
    """What is planned."""

    network: str
    batch: int
    budget: int  #: bytes
    small: bool  #: it is trained

    @property
    def built(self) -> Network:
        return network_of(self.network, self.batch)

    def __str__(self) -> str:
        return f"{self.network}({self.batch})"


@lru_cache(maxsize=32)
def network_of(name: str, batch: int) -> Network:
    return build(name, batch)


@lru_cache(maxsize=1)
def machine() -> Machine:
    """The machine of all labs: with our own kernels, so that a program can be run, too."""
    return named("titan-x").with_catalogue("own")


def cases(lab: Lab, seed: int) -> list[LabCase]:
    """The cases of a lab: the same for the same seed."""
    numbers = random.Random(f"{lab.name} {seed}")
    small, large = drawn(lab, SMALL, True, numbers), drawn(lab, LARGE, False, numbers)
    return [next(small) for _ in range(SMALLS)] + [next(large) for _ in range(LARGES)]


def drawn(lab: Lab, networks: dict[str, tuple[int, int]], small: bool, numbers: random.Random) -> Iterator[LabCase]:
    """Cases in which the paper fits, and the lab's setup without the submission's modules does not."""
    waiting: list[str] = []
    for _ in range(TRIES):
        waiting = waiting or numbers.sample([*networks], len(networks))
        name = waiting.pop()
        network = network_of(name, numbers.randint(*networks[name]))
        low, high = (least_budget(network, one, machine(), 64 * KIB) for one in (lab.least or lab.paper, lab.without))
        share = numbers.uniform(*lab.reach)
        if low is None or high is None:
            continue
        budget = int(low + share * (high - low)) // KIB * KIB
        if low <= budget < high:
            yield LabCase(name, network.batch, budget, small)
    raise AssertionError(f"no cases for {lab.name}")

"""Cases: networks, batches and budgets, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from refimpl.machine import Machine
from refimpl.names.least_budget import least_budget
from refimpl.names.machines import named
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.studies.grade.lab_tasks import LARGE, MACHINE, SMALL, Drawn, LabTask

KIB = 1 << 10
SMALLS, LARGES = 2, 3  #: cases of each sort
TRIES = 40


@dataclass(frozen=True)
class DrawnCase:
    """What is planned."""

    network: str
    batch: int
    budget: int  #: bytes
    small: bool  #: it is trained, and has a bound

    @property
    def built(self) -> Network:
        return network_of(self.network, self.batch)

    @property
    def values(self) -> dict[str, Any]:
        """What the submission's process is told."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.network}({self.batch})"


@lru_cache(maxsize=32)
def network_of(name: str, batch: int) -> Network:
    return build(name, batch)


@lru_cache(maxsize=1)
def machine() -> Machine:
    """The machine of all labs."""
    return named(MACHINE).with_catalogue("own")


def cases(task: LabTask, seed: int) -> list[DrawnCase]:
    """The cases of a lab: the same for the same seed."""
    random_numbers = random.Random(f"{task.name} {seed}")
    small = drawn(task, SMALL, True, random_numbers)
    large = drawn(task, LARGE, False, random_numbers)
    return [next(small) for _ in range(SMALLS)] + [next(large) for _ in range(LARGES)]


def drawn(task: LabTask, networks: tuple[Drawn, ...], small: bool, numbers: random.Random) -> Iterator[DrawnCase]:
    """Cases in which the paper fits, and the lab's setup without the submission's modules does not."""
    waiting: list[Drawn] = []
    for _ in range(TRIES):
        waiting = waiting or numbers.sample(networks, len(networks))
        name, least, most = waiting.pop()
        network = network_of(name, numbers.randint(least, most))
        low, high = (
            least_budget(network, one, machine(), 64 * KIB) for one in (task.least or task.paper, task.without)
        )
        share = numbers.uniform(*task.reach)
        if low is None or high is None:
            continue
        budget = int(low + share * (high - low)) // KIB * KIB
        if low <= budget < high:
            yield DrawnCase(name, network.batch, budget, small)
    raise AssertionError(f"no cases for {task.name}")

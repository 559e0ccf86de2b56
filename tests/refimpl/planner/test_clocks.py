"""Plans do not lean on the simulated clock: made for one machine, they are as good on a machine that is unlike it.

A *perturbed* machine is a Titan X whose engines (kernels, copies out, copies in, the host's threads) are 0.5 to 3 times
as slow, and each of whose calls and copies takes another 30 % more or less.  A plan made for the Titan X is simulated
on it, beside the plan made for it.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import pytest

from refimpl.machine import HOST, MACHINES, Choice, Machine
from refimpl.memory.allocation_trace import ideal, rounded
from refimpl.names import presets
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Call, Network
from refimpl.planner import Setup, plan
from tests.refimpl.modules import instructions_of

TITAN_X = MACHINES["titan-x"]
PLENTY = 1 << 40
#: Presets whose modules ask the machine for nothing but the order of a call's algorithms by speed.  (AccUDNN's and
#: combined's ask a model of time which maps leave, and when they are copied back.)
TIMELESS = ("vdnn-dyn", "vdnnpp-all", "superneurons")
SHARES = (1.1, 2.0)  #: of the ideal pool


@dataclass(frozen=True)
class Perturbed(Machine):
    """All algorithms of a call are slower by the same factor, so that they keep their order."""

    number: int = 0  #: seed of the draws

    def choices(self, call: Call) -> tuple[Choice, ...]:
        factor = self.factor("kernels", str(call))
        return tuple(dataclasses.replace(one, seconds=factor * one.seconds) for one in super().choices(call))

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        return self.factor("kernels", str(call)) * super().seconds(call, choice)

    def copy_seconds(self, nbytes: int, direction: Literal["out", "in"], tier: str = HOST) -> float:
        return self.factor(direction, nbytes) * super().copy_seconds(nbytes, direction, tier)

    def host_seconds(self, nbytes: int) -> float:
        return self.factor("host", nbytes) * super().host_seconds(nbytes)

    def factor(self, engine: str, what: object) -> float:
        return drawn(self.number, engine, 0.5, 3.0) * drawn(self.number, (engine, what), 0.7, 1.3)


@functools.cache
def drawn(number: int, what: object, low: float, high: float) -> float:
    return random.Random(f"{number} {what}").uniform(low, high)


def ideal_bytes(network: Network, setup: Setup) -> int:
    """The least that a pool could do with: the most alive at once, where all streams join at every layer's end."""
    program = plan(network, setup.frugal.replace(join=True), TITAN_X, PLENTY)
    return ideal(program.allocation_trace()) + sum(rounded(tensor.nbytes) for tensor in network.resident)


def perturbed(number: int) -> Perturbed:
    plain = {f.name: getattr(TITAN_X, f.name) for f in dataclasses.fields(TITAN_X) if f.init}
    return Perturbed(**plain, number=number)


def the_same(network: Network, setup: Setup, share: float, numbers: Iterable[int]) -> list[bool]:
    """Whether the nominal plan and the perturbed machine's are the same program, for each of the machines."""
    budget = int(share * ideal_bytes(network, setup))
    nominal = attempt(network, setup, TITAN_X, budget)
    owns = (attempt(network, setup, perturbed(number), budget) for number in numbers)
    return [(own and instructions_of(own)) == (nominal and instructions_of(nominal)) for own in owns]


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMELESS)
def test_a_plan_is_the_same_on_every_machine(name: str) -> None:
    network, setup = build("lenet", 128), presets.setup(name)
    assert all(same for share in SHARES for same in the_same(network, setup, share, range(2)))

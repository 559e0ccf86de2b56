"""Plans do not lean on the simulated clock: made for a machine that is unlike a Titan X, they are the Titan X's.

A *perturbed* machine is a Titan X whose engines (kernels, copies out, copies in, the host's threads) are 0.5 to 3 times
as slow, and each of whose calls and copies takes another 30 % more or less.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from dataclasses import dataclass
from typing import Literal

import pytest

from refimpl.machine import HOST, MACHINES, Choice, Machine
from refimpl.names import presets
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Call
from refimpl.planner import plan
from tests.refimpl.modules import instructions_of

TITAN_X = MACHINES["titan-x"]
PLENTY = 1 << 40
#: Presets whose modules ask the machine for nothing but the order of a call's algorithms by speed.  (AccUDNN's and
#: combined's ask a model of time which maps leave, and when they are copied back.)
TIMELESS = ("vdnn-dyn", "vdnnpp-all", "superneurons")


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


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMELESS)
def test_a_plan_is_the_same_on_every_machine(name: str) -> None:
    """Within all that it takes where there is plenty, and within less, where some do not fit."""
    network, setup = build("lenet", 128), presets.setup(name)
    plain = {field.name: getattr(TITAN_X, field.name) for field in dataclasses.fields(TITAN_X) if field.init}
    roomy = plan(network, setup.frugal, TITAN_X, PLENTY).arena_bytes
    for budget in (roomy, 4 * roomy // 5):
        nominal = attempt(network, setup, TITAN_X, budget)
        assert nominal or budget < roomy
        for number in range(2):
            other = attempt(network, setup, Perturbed(**plain, number=number), budget)
            assert (other and instructions_of(other)) == (nominal and instructions_of(nominal))

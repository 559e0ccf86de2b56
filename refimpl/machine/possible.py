"""How sure a simulated time is: a program's seconds on many machines, each of which differs from the model.

A model of a machine is wrong by amounts of which only the size is known.  A *possible machine* computes, copies and
runs each kernel faster or slower than the model by factors of its own.  Their natural logarithms are drawn from normal
distributions; `Doubt` has their widths, and where these are from.  A time that a program takes on all of them is an
interval, and two programs can be compared on the same possible machines.

All machines are simulated at once: the simulator's loop runs as it does for one, and each moment is an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias
from zlib import crc32

import numpy as np

from refimpl.machine.clock import Clock, Engine
from refimpl.machine.cpu_model import CalibratedCpu
from refimpl.machine.model import Choice, Machine
from refimpl.machine.simulator import timed
from refimpl.memory.tiers import HOST
from refimpl.network import Call

MachineSeconds: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"  #: one number a possible machine

NUMBER = 64  #: possible machines


@dataclass(frozen=True)
class Doubt:
    """Standard deviations of the natural logarithms of factors: 0.1 is about 10 %.

    `compute` and `kernel` are the *unseen* errors of docs/simulate.md, of networks that no figure of a machine was
    fitted to: how far whole networks are off, and how far their parts are off from the whole
    (`refimpl.studies.reproduce.machines.figures.unseen_widths`).  `link` is that of the shares
    of their PCIe peaks which the measured links of `MACHINES` reach.  Nothing is known of the host's threads and of the
    network between ranks: they are taken to be as uncertain as the link.  What addresses change was not measured on a
    GPU.  The CPU at hand has widths of its own.
    """

    compute: float = 0.14  #: of all kernels together
    kernel: float = 0.08  #: of each algorithm of each kind of call
    simple: float = 0.08  #: of each kind of call without a choice of algorithms
    link: float = 0.19  #: of copies
    program: float = 0.0  #: of all that a program takes: other addresses, the same work


#: Of the CPU at hand, whose kernels were measured on small networks: how far it was off in training networks that it
#: had not seen, by `python -m tests.refimpl.machine.intervals_check --widths`.
CPU_DOUBT = Doubt(compute=0.05, kernel=0.19, simple=0.37, link=0.14, program=0.02)


def doubt_of(machine: Machine) -> Doubt:
    """How far possible machines differ from this one."""
    return CPU_DOUBT if isinstance(machine, CalibratedCpu) else Doubt()


class PossibleMachines:
    """What the simulator asks a machine, answered for all of them at once.

    Args:
        machine: the model.
        number: of machines.
        seed: of the factors; machines of the same seed are the same for every program.
        doubt: how far they differ; None: as far as is known of such a machine.
    """

    def __init__(self, machine: Machine, number: int = NUMBER, seed: int = 1, doubt: Doubt | None = None) -> None:
        doubt = doubt or doubt_of(machine)
        self.machine, self.name, self.ring = machine, machine.name, machine.ring
        self.allocate_seconds, self.free_seconds = machine.allocate_seconds, machine.free_seconds

        def factor(what: str, width: float) -> MachineSeconds:
            drawn = np.random.default_rng([seed, crc32(what.encode())]).standard_normal(number)
            return np.exp(width * drawn)

        compute = factor("compute", doubt.compute)

        @cache
        def kernel(name: str, has_choice: bool) -> MachineSeconds:
            return compute * factor(f"kernel {name}", doubt.kernel if has_choice else doubt.simple)

        self.kernel: Callable[[str, bool], MachineSeconds] = kernel
        self.program: Callable[[int], MachineSeconds] = lambda work: factor(f"program {work}", doubt.program)
        self.link, self.host, self.network = (factor(what, doubt.link) for what in ("link", "host", "network"))

    def seconds(self, call: Call, choice: Choice | None = None) -> MachineSeconds:
        factors = self.network if call.collective else self.kernel(kernel_of(call, choice), call.choosable)
        return self.machine.seconds(call, choice) * factors

    def of_program(self, seconds: Any) -> MachineSeconds:
        """A whole program's seconds, with what its addresses change; programs that do the same work differ in none."""
        found: MachineSeconds = seconds * self.program(crc32(seconds.tobytes()))
        return found

    def copy_seconds(self, nbytes: int, direction: Literal["out", "in"], tier: str = HOST) -> MachineSeconds:
        return self.machine.copy_seconds(nbytes, direction, tier) * self.link

    def host_seconds(self, nbytes: int) -> MachineSeconds:
        return self.machine.host_seconds(nbytes) * self.host


def kernel_of(call: Call, choice: Choice | None) -> str:
    """The kernel of a call, as in "conv.forward implicit_gemm": calls of the same kernel are off together."""
    return f"{call.function} {choice.algorithm}" if choice else call.function


class Clocks(Clock):
    """A clock for each possible machine: every moment is an array, which no later work changes."""

    later: Any = staticmethod(np.maximum)
    now: list[Any]
    _free: dict[Engine, Any]


def possible_seconds(
    instructions: Iterable[Any], streams: tuple[str, ...], machines: PossibleMachines, driver_calls: bool
) -> MachineSeconds:
    """MachineSeconds of an iteration on each possible machine."""
    clocks = Clocks(len(streams), machines.ring.shares_link)
    for _ in timed(instructions, clocks, machines, driver_calls):
        pass
    return machines.of_program(clocks.end)


def interval(values: MachineSeconds) -> tuple[float, float]:
    """From the 5th to the 95th percentile."""
    low, high = np.percentile(values, (5, 95))
    return float(low), float(high)

"""Planning by name: `refimpl.plan` for Python, and what the command asks it for.

program = plan(networks.vgg16(batch=256), presets.baseline(), machine="titan-x", budget="12GiB")
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache, lru_cache

from refimpl.machine import Machine
from refimpl.machine import machine as machine_named
from refimpl.network import Network
from refimpl.network.zoo import build
from refimpl.planner import DoesNotFit, Program, Setup
from refimpl.planner import plan as plan_bytes
from refimpl.registry.budgets import UNLIMITED, Share, parse
from refimpl.registry.presets import baseline

Budget = int | float | str | Share | None


def plan(
    network: Network | str,
    setup: Setup | None = None,
    machine: Machine | str = "titan-x",
    budget: Budget = None,
) -> Program:
    """The program of one iteration of `network` with `setup` (None: the baseline) on `machine`, within `budget`.

    `budget` is a number of bytes, a text such as "12GiB", or a share of the baseline's peak such as 0.4; None is all of
    the machine's memory.  Raises `DoesNotFit`, which says where and why, and what would fit.
    """
    network = build(network) if isinstance(network, str) else network
    machine = machine_named(machine) if isinstance(machine, str) else machine
    setup = setup or baseline()
    nbytes = budget_bytes(budget, network, machine)
    try:
        return plan_bytes(network, setup, machine, nbytes)
    except DoesNotFit as error:
        from refimpl.registry.fitting import remedies

        error.hint = str(remedies(network, setup, machine, nbytes))
        raise


def budget_bytes(budget: Budget, network: Network, machine: Machine) -> int:
    """Bytes of a budget; a share is taken of what the baseline holds at its peak, planned with unlimited memory."""
    if budget is None:
        return machine.memory_bytes
    wanted = parse(budget)
    return int(unlimited_baseline(network, machine).peak_bytes * wanted.share) if isinstance(wanted, Share) else wanted


def unlimited_baseline(network: Network, machine: Machine) -> Program:
    """The preset `baseline` as if memory had no end: what shares of the peak and slow-downs are measured against."""
    return unlimited(network, baseline(), machine)


@lru_cache(maxsize=2)
def unlimited(network: Network, setup: Setup, machine: Machine) -> Program:
    """The program with as much memory as it likes.  The last ones are kept: one question asks for them often."""
    return plan_bytes(network, setup, machine, UNLIMITED)


@cache
def gpu_at_hand() -> bool:
    """Whether there is a CUDA driver with a device here.  Asks the driver itself: importing Numba takes a second."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        count = ctypes.c_int()
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return False

"""Planning by name: `refimpl.plan`, and the names and budgets that it takes.

program = plan("vgg16", "vdnn-all", "titan-x", "12GiB")
"""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.machine import Machine, Tier
from refimpl.names import least_budget as fitting
from refimpl.names.budgets import Share, parse, tiers_named
from refimpl.names.least_budget import needed_by_baseline, remedies
from refimpl.names.machines import named as machine_named
from refimpl.names.networks import build
from refimpl.names.presets import Preset
from refimpl.names.presets import setup as preset_setup
from refimpl.network import Network, NetworkError
from refimpl.network.builder import PapersBuilder
from refimpl.planner import DoesNotFit, Program, Setup, SetupError
from refimpl.planner import plan as plan_bytes
from refimpl.text import size

Budget = int | float | str | Share | None


def plan(
    network: Network | str,
    setup: Setup | Preset | str = "baseline",
    machine: Machine | str = "titan-x",
    budget: Budget = None,
    tiers: str | Sequence[Tier] = (),
) -> Program:
    """The program of one training iteration.

    Args:
        network: a network, or a name as in "vgg16", "resnet:137", "alexnet:superneurons".
        setup: a setup, or a name as in "vdnn-all" or "vdnn-all, join=no".
        machine: a machine, a name as in "titan-x", "here", or the file of a profile or of your own machine.
        budget: bytes, a text as in "12GiB", or a share of what the baseline needs, 0.4; None: the machine's memory.
        tiers: the memories to offload to, as in "host:32GiB@8GB/s,peer:12GiB@10GB/s"; empty: the machine's.

    Returns:
        The program, not yet verified.

    Raises:
        DoesNotFit: says where and why, and what would fit.
        NetworkError, SetupError, MachineError, BudgetError: say what to write.
    """
    network, setup, machine = network_named(network), setup_named(setup), machine_with(machine, tiers)
    nbytes = budget_bytes(budget, network, machine)
    try:
        return plan_bytes(network, setup, machine, nbytes)
    except DoesNotFit as error:
        error.hint = lambda: f"{remedies(network, setup, machine, nbytes)} {share_of(budget, network, machine)}".strip()
        raise


def least_budget(
    network: Network | str,
    setup: Setup | Preset | str = "baseline",
    machine: Machine | str = "titan-x",
    tiers: str | Sequence[Tier] = (),
) -> int | None:
    """The smallest budget tried that fits.  Given to `plan` as a budget it fits, as a program's peak need not.

    Args:
        network, setup, machine, tiers: as `plan` takes them.

    Returns:
        Bytes, a multiple of 1 MiB; None where pinned memory is too small for any budget.
    """
    return fitting.least_budget(network_named(network), setup_named(setup), machine_with(machine, tiers))


def machine_with(machine: Machine | str, tiers: str | Sequence[Tier]) -> Machine:
    """A machine, by name or as it is, with other tiers if there are any; raises `MachineError`."""
    found = machine if isinstance(machine, Machine) else machine_named(machine)
    if not tiers:
        return found
    return found.with_tiers(tiers_named(tiers) if isinstance(tiers, str) else tiers)


def network_named(network: object) -> Network:
    """A network, by name or as it is; raises `NetworkError`."""
    if isinstance(network, Network):
        return network
    if isinstance(network, str):
        return build(network)
    if isinstance(network, PapersBuilder):
        raise NetworkError(f"{network.name} is a Builder; write its .build()")
    raise NetworkError(
        f"{network!r} is not a network; write a name, as in 'vgg16', or refimpl.networks.vgg16(batch=64)"
    )


def setup_named(setup: object) -> Setup:
    """A setup, by name or as it is; raises `SetupError`."""
    if isinstance(setup, Preset):
        return setup.setup
    if isinstance(setup, Setup):
        return setup
    if isinstance(setup, str):
        return preset_setup(setup)
    raise SetupError(f"{setup!r} is not a setup; write a name, as in 'vdnn-all', or refimpl.presets.vdnn_all()")


def budget_bytes(budget: Budget, network: Network, machine: Machine) -> int:
    """Bytes of a budget; a share is one of what the baseline needs, so it is the same for every setup."""
    if budget is None:
        return machine.memory_bytes
    wanted = parse(budget)
    return int(needed_by_baseline(network, machine) * wanted.share) if isinstance(wanted, Share) else wanted


def share_of(budget: Budget, network: Network, machine: Machine) -> str:
    """A sentence on what a budget is a share of; empty for a budget in bytes."""
    wanted = parse(budget) if budget is not None else None
    if not isinstance(wanted, Share):
        return ""
    needed = size(needed_by_baseline(network, machine))
    return f"The budget is {wanted.share:g} of {needed}, the least budget of the preset baseline on {network.name}."

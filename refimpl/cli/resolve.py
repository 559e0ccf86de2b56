"""What the options of `shared_options` stand for: networks, setups, machines, programs, trainers."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from refimpl.cli.parser import DEVICE_FAILED, WRONG, Fail
from refimpl.cli.shared_options import VDNNS_MACHINE
from refimpl.cli.terminal import say, search_progress, waiting
from refimpl.combined import Combined
from refimpl.machine import Machine, Ring, here
from refimpl.names import presets
from refimpl.names.budgets import several, tiers_named
from refimpl.names.by_name import plan, share_of
from refimpl.names.machines import named as machine_named
from refimpl.names.modules import assignments
from refimpl.names.networks import build
from refimpl.network.learning import OPTIMISERS
from refimpl.network.network import BUCKET_BYTES, Network
from refimpl.planner import Program, Setup
from refimpl.planner.verify import Proof, Unsafe

if TYPE_CHECKING:  # it imports Numba
    from refimpl.backend import Trainer
    from refimpl.backend.schedules import Schedule


def network(options: argparse.Namespace, name: str | None = None) -> Network:
    """A network as one of --workers trains it; the one that was named, or another."""
    built = build(options.network if name is None else name, options.batch)
    return data_parallel(options, trained_by(options, built), options.workers)


def trained_by(options: argparse.Namespace, network: Network) -> Network:
    """The network as --optimiser and --freeze have it learn; other commands lack these."""
    if "optimiser" not in options:
        return network
    learner = options.optimiser
    return network.trained_by(learner.name, learner.clip, learner.decay_on, options.freeze)


def data_parallel(options: argparse.Namespace, network: Network, ranks: int) -> Network:
    """The network as one of `ranks` ranks trains it."""
    wire = options.wire
    return network.data_parallel(ranks, (wire.bucket or BUCKET_BYTES) if wire.overlap else None)


def setup(options: argparse.Namespace) -> Setup:
    """The preset that was named, with some slots filled otherwise."""
    return watched(presets.setup(options.policy, assignments(options.assignments)))


def setup_named(options: argparse.Namespace, text: str, named: dict[str, str]) -> Setup:
    """One setup of several, changed by --set, and last by `named`; what --set says of a search is for combined's."""
    setup = presets.setup(text, assigned(options) | named)
    if isinstance(setup, Combined) and (search := searched(options)):
        setup = presets.setup(text, assigned(options) | search | named)
    return watched(setup)


def assigned(options: argparse.Namespace) -> dict[str, str]:
    """Slot → module of --set."""
    return {slot: text for slot, text in assignments(options.assignments).items() if slot not in presets.SEARCH}


def searched(options: argparse.Namespace) -> dict[str, str]:
    """What --set says of combined's search."""
    return {name: text for name, text in assignments(options.assignments).items() if name in presets.SEARCH}


def watched(setup: Setup) -> Setup:
    """The setup; the search of the preset combined shows how far it is."""
    return replace(setup, watch=search_progress()) if isinstance(setup, Combined) else setup


def machine(options: argparse.Namespace, default: str = "") -> Machine:
    """The machine that was named; without a name `default`, or the GPU at hand, or vDNN's."""
    found = machine_named(options.machine or default or ("here" if here.gpu_at_hand() else VDNNS_MACHINE))
    if getattr(options, "kernels", "fast") == "plain":
        found = found.with_catalogue("plain")
    if "wire" in options:
        found = found.with_ring(Ring(options.wire.rate, options.wire.latency, options.wire.shares_link))
    return found.with_tiers(tiers_named(options.tiers)) if options.tiers is not None else found


def program(options: argparse.Namespace) -> Program:
    """The program of the network that was named, with the setup, machine and budget that were; it is proved safe."""
    found = plan(network(options), setup(options), machine(options), options.budget)
    proved(found)
    return found


def proved(program: Program) -> Proof:
    """The program's proof.  A program that has none is a fault of the planner or of a module, and is not shown."""
    try:
        return program.verify()
    except Unsafe as error:
        raise Fail(f"the planned program is not safe, which is a fault of a module: {error}", WRONG) from None


def say_share(options: argparse.Namespace, network: Network, machine: Machine) -> None:
    """A line on what the budget is a share of, if it is one; of several budgets a line each."""
    for budget in several(options.budget):
        if line := share_of(budget, network, machine):
            say(line)


# -- to be run ---------------------------------------------------------------------------------------------------------


def runnable(
    options: argparse.Namespace, network: Network, default: str = "", algorithms: Mapping[str, str] | None = None
) -> Program:
    """A program that can be run: with our own algorithms, and proved safe.

    Args:
        options: of the command.
        network: what is trained.
        default: names a machine.
        algorithms: of another run, by the names of calls; None: which are fastest here.
    """
    found = machine(options, default or running_on(options))
    if found.catalogue not in ("own", "plain"):
        if str(options.machine).endswith(f":{found.catalogue}"):
            raise Fail(f"the catalogue {found.catalogue} can be simulated and not run; give --machine NAME:own")
        found = found.with_catalogue("own")
    program = plan(network, setup(options), found.with_algorithms(algorithms or {}), options.budget)
    proved(program)
    return program


def running_on(options: argparse.Namespace) -> str:
    """The machine that a program is planned for, where none is named."""
    return "h100" if options.backend == "emulated" else "here"


def backend_of(options: argparse.Namespace) -> str:
    """The backend that was named; without a name, that of the GPU at hand."""
    return str(options.backend) if options.backend != "auto" else "cuda" if here.gpu_at_hand() else "cpu"


def gpu(options: argparse.Namespace) -> Any:
    """Numba's CUDA, on the GPU or on an emulated one; None: the CPU's."""
    from kernels.targets import emulated

    if (backend := backend_of(options)) == "emulated":
        if reason := emulated.why_not():
            raise Fail(reason, DEVICE_FAILED)
        emulated.start()
    if backend == "cpu":
        return None
    from kernels.targets.shim import cuda

    warnings.filterwarnings("ignore", "Grid size")  # one that does not fill a GPU
    return cuda


def trainer(program: Program, options: argparse.Namespace, **learning: Any) -> Trainer:
    """A trainer on the chosen backend; the first time, its kernels are compiled, which takes a while."""
    backend = backend_of(options)
    with waiting(f"preparing {program.network.name} for {backend}; the first time its kernels are compiled"):
        from refimpl.backend import Trainer

        return Trainer(program, backend, **learning)


def learning(options: argparse.Namespace) -> dict[str, Any]:
    """The optimiser's settings that were given."""
    numbers = dict(options.optimiser.numbers)
    given = {"seed": options.seed, "rate": options.rate}
    if {"beta1", "beta2"} & numbers.keys():
        defaults = OPTIMISERS[options.optimiser.name].defaults
        given["betas"] = tuple(numbers.pop(name, defaults[name]) for name in ("beta1", "beta2"))
    return {name: value for name, value in (given | numbers).items() if value is not None}


def schedule(options: argparse.Namespace, iterations: int | None = None) -> Schedule | None:
    """The schedule of --schedule; None: it was not given."""
    from refimpl.backend.run_errors import RunError
    from refimpl.backend.schedules import Schedule

    if options.schedule is None:
        return None
    try:
        return Schedule.parse(options.schedule, iterations=iterations)
    except RunError as error:
        raise Fail(f"--schedule: {error}") from None

"""`refimpl plan`: does it fit, and how; the listing, the pictures, the JSON document that scripts read."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DOES_NOT_FIT, DONE, Parser, writable
from refimpl.cli.picture_option import checked, draw
from refimpl.cli.terminal import print_json, say, show_table, tell, waiting, wrapped
from refimpl.files import replace_text
from refimpl.importing.any_batch import Batches
from refimpl.machine import Machine
from refimpl.names.by_name import budget_bytes, share_of
from refimpl.names.largest_batch import Largest, unlimited_baseline
from refimpl.names.largest_batch import largest as largest_size
from refimpl.names.least_budget import least_budget, remedies
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Setup, plan
from refimpl.planner.verify import Proof
from refimpl.text import counted

EXAMPLES = (
    "refimpl plan vgg16 --batch 256 --budget 12GiB",
    "refimpl plan vgg16 --batch 64 --policy superneurons --largest-batch",
    "refimpl plan vgg16 --batch 64 --set liveness=layer-wise --set algorithms=memory --budget 0.6",
    "refimpl plan tiny-resnet --listing",
    "refimpl plan tiny-resnet --step 5 --step fc --instructions",
    "refimpl plan resnet:137 --json > plan.json",
    "refimpl plan vgg16 --batch 100 --workers 8 --network 1GB/s",
    "refimpl plan alexnet --policy vdnn-all --save-fates alexnet.fates",
    "refimpl plan alexnet --set fates=alexnet.fates --budget 1.3GiB",
    "refimpl plan alexnet --policy combined --set effort=500 --budget 1.3GiB",
    "refimpl plan vgg16 --batch 64 --optimiser adamw --freeze 'conv*'",
    "refimpl plan alexnet --picture alexnet.png --draw timeline",
)


def add(parser: Parser) -> None:
    parser.describe(
        "Plan one iteration of training: whether it fits, what it holds and moves, how long it takes. "
        "Every program is proved safe before it is shown.  Exit status: 0 it fits, 3 it does not.",
        EXAMPLES,
    )  # fmt: skip
    shared_options.network(parser)
    shared_options.setup(parser)
    shared_options.machine(parser)
    shared_options.kernels(parser)
    shared_options.budget(parser)
    parser.add_argument("--listing", action="store_true", help="list the program, step by step, with reasons")
    parser.add_argument(
        "--step", action="append", default=[], metavar="STEP", help="list one step: a number or a layer"
    )
    parser.add_argument("--instructions", action="store_true", help="list every instruction, with addresses")
    parser.add_argument("--steps", action="store_true", help="a table of the books at every step")
    parser.add_argument("--least", action="store_true", help="the least budget that this setup fits in, too")
    parser.add_argument("--largest-batch", action="store_true", help="the largest batch that fits the budget, too")
    parser.add_argument(
        "--save-fates", metavar="FILE", help="write the fate of every map, to be edited and given to --set fates=FILE"
    )
    shared_options.picture(parser)
    parser.add_argument("--no-verify", action="store_false", dest="verify", help="show the program without proving it")
    shared_options.optimiser(parser)
    shared_options.cluster(parser)
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    picture = checked(options.picture)
    fates = options.save_fates and writable("--save-fates", options.save_fates)
    network, setup, machine = resolve.network(options), resolve.setup(options), resolve.machine(options)
    budget = budget_bytes(options.budget, network, machine)
    try:
        program = plan(network, setup, machine, budget)
    except DoesNotFit as error:
        return misfit(error, network, setup, machine, budget, options)
    proof = resolve.proved(program) if options.verify else None
    timeline = program.simulate()
    if fates:
        from refimpl.combined import text

        replace_text(fates, text(program))
    if picture:
        draw(options.draw, program, timeline, picture)
    least_bytes = least(network, setup, machine) if options.least else None
    most = largest(options, setup, machine, budget) if options.largest_batch else None
    if options.json:
        from refimpl.report.json import plan_json

        document = plan_json(program, timeline, unlimited_baseline(network, machine).planned_seconds)
        also = {"least_budget_bytes": least_bytes} if options.least else {}
        print_json(document | also | (batch_json(most) if most else {}))
    elif options.listing or options.instructions or options.step:
        for step in options.step or [None]:
            number = int(step) if step and step.isdecimal() and len(step) < 10 else None  # more is no step: a name
            say(program.listing(step if number is None else number, options.instructions))
    else:
        from refimpl.report.tables import plan_table, steps_table, tried_table
        from refimpl.text import size

        if options.steps:
            show_table(steps_table(program, timeline))
        show_table(plan_table(program, timeline, unlimited_baseline(network, machine).planned_seconds))
        if program.tried:
            show_table(tried_table(program))
        slots = ", ".join(f"{slot}={module}" for slot, module in program.setup.slots.items())
        wrapped(f"Setup: {slots}; algorithms of the catalogue {machine.catalogue}.")
        resolve.say_share(options, network, machine)
        if least_bytes is not None:
            say(f"Least budget: {size(least_bytes)}, the smallest tried that fits.")
        if most is not None:
            tried = counted(len(most.tried), "batch")
            say(f"Largest batch: {counted(most.size, 'image')}, the most that fit of {tried} tried.")
        say(proved_line(proof) if proof else "Not proved safe: --no-verify.")
        if fates:
            say(f"Fates: {fates}; edit a line, and plan with --set fates={fates}")
        if picture:
            say(f"Picture: {picture}")
    return DONE


def least(network: Network, setup: Setup, machine: Machine) -> int | None:
    """The least budget tried that fits, bytes; with a word on the terminal, for on a deep network it takes a while."""
    with waiting("looking for the least budget"):
        return least_budget(network, setup, machine)


def largest(options: argparse.Namespace, setup: Setup, machine: Machine, budget: int) -> Largest:
    """The largest batch tried that fits."""
    with waiting("looking for the largest batch"):
        return largest_size(Batches(partial(built, options)), setup, machine, budget)


def built(options: argparse.Namespace, batch: int | None) -> Network:
    """The network that was named, for another batch."""
    return resolve.trained_by(options, build(options.network, batch))


def batch_json(most: Largest) -> dict[str, Any]:
    """The largest batch and, since fitting is not monotone, every batch that was tried."""
    return {"largest_batch": most.size, "tried_batches": [{"batch": n, "fits": fits} for n, fits in most.tried.items()]}


def misfit(
    error: Any, network: Network, setup: Setup, machine: Machine, budget: int, options: argparse.Namespace
) -> int:
    """Say where and why it does not fit, and what would."""
    with waiting("it does not fit; looking for what would"):
        found = remedies(network, setup, machine, budget)
    most = largest(options, setup, machine, budget) if options.largest_batch else None
    hints = [str(found), share_of(options.budget, network, machine)]
    if most is not None:
        hints.append(f"The largest batch that fits is {most.size}." if most.size else "Not even one image fits.")
    error.hint = " ".join(filter(None, hints))
    if options.json:
        from refimpl.report.json import misfit_json

        cheapest = found.cheapest and {"set": found.cheapest.changes, "seconds": found.cheapest.seconds}
        document = misfit_json(network, setup, machine, budget, error)
        also = {"least_budget_bytes": found.least_bytes, "cheapest": cheapest}
        print_json(document | also | (batch_json(most) if most else {}))
    tell(f"{options.parser.prog}: {error}")
    return DOES_NOT_FIT


def proved_line(proof: Proof) -> str:
    """The proof, for people."""
    count = counted(len(proof.warnings), "warning") + ", the first" * (len(proof.warnings) > 1)
    warned = f"; {count}: {proof.warnings[0]}" if proof.warnings else ""
    return (
        f"Proved safe to repeat: {counted(proof.launches, 'launch')}, {counted(proof.copies, 'copy')} and "
        f"{counted(proof.waits, 'wait')}, {counted(proof.accesses, 'access')} in order{warned}."
    )

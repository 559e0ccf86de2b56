"""The options that several commands have, and the objects that they stand for."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from refimpl.cli.arguments import Fail, Parser, completed_by, real, whole
from refimpl.cli.terminal import say, search_progress

if TYPE_CHECKING:
    from refimpl.machine import Machine
    from refimpl.network import Network
    from refimpl.planner import Program, Setup

VDNNS_MACHINE = "titan-x"
MOST_RANKS = 1_000_000
RATE = re.compile(r"(?P<number>[0-9]{1,18}(\.[0-9]*)?|\.[0-9]+)\s*((?P<prefix>[kMGT]?)(?P<unit>bit|B)(/s)?)?")
FACTORS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def add_network(parser: Parser, several: bool = False, batch: bool = True, optional: bool = False) -> None:
    action = parser.add_argument(
        "networks" if several else "network",
        metavar="NETWORK",
        nargs="+" if several else "?" if optional else None,
        help="its name, as in vgg16, resnet:137 or alexnet:superneurons (refimpl list networks has them all), or a "
        "file of your own: my_model.onnx, or my_networks.py:make",
    )
    completed_by(action, "networks")
    parser.add_argument(
        "--output", metavar="NODE", help="end an ONNX file's network at this node (default: the file's only output)"
    )
    if batch:
        parser.add_argument(
            "--batch", type=whole(), metavar="N", help="images in a batch (default: as its paper measured it)"
        )


def add_setup(parser: Parser, preset: bool = True) -> None:
    if preset:
        action = parser.add_argument(
            "--policy", metavar="PRESET", default="baseline", help="as in vdnn-all (default: baseline)"
        )
        completed_by(action, "presets")
    action = parser.add_argument(
        "--set", metavar="SLOT=MODULE", action="append", default=[], dest="assignments",
        help="fill a slot otherwise, as in liveness=layer-wise, prefetch=superneurons-ahead:5 or "
        "offload=my_modules:BigMaps; repeatable; see refimpl list modules",
    )  # fmt: skip
    completed_by(action, "assignments")
    parser.add_argument(
        "--algorithms", choices=("memory", "performance"),
        help="convolutions with the least workspace, or the fastest ones (baseline: performance)",
    )  # fmt: skip
    if preset:
        action = parser.add_argument(
            "--fates", metavar="FILE",
            help="give every map the fate that FILE says, one map a line: keep, offload or drop (see --save-fates)",
        )  # fmt: skip
        completed_by(action, "files")
    add_effort(parser)
    parser.add_argument(
        "--recompute", choices=("speed", "memory", "cost"),
        help="drop cheap maps and rebuild them as SuperNeurons does (its presets that do: cost)",
    )  # fmt: skip


def add_effort(parser: Parser) -> None:
    search = parser.add_argument_group("the preset combined")
    search.add_argument(
        "--effort",
        type=whole(),
        metavar="N",
        help="plans that its search makes at most (default: by the network's depth)",
    )
    search.add_argument("--search-seed", type=whole(0), metavar="S", help="of its draws (default: 1)")


def add_machine(parser: Parser, default: str = f"the GPU at hand, {VDNNS_MACHINE} without one") -> None:
    action = parser.add_argument(
        "--machine", metavar="NAME", help=f"a machine's name, here, or a profile's file (default: {default})"
    )
    completed_by(action, "machines")
    action = parser.add_argument("--catalogue", metavar="NAME", help="own or cudnn4 (default: the machine's)")
    completed_by(action, "catalogues")
    action = parser.add_argument(
        "--tiers", metavar="TIERS",
        help="the memories to offload to, the preferred one first, as in host:32GiB@8GB/s,peer:12GiB@10GB/s "
        "(default: the host's, without a limit); presets that are not SuperNeurons' need "
        "--set pinned=superneurons-unified-pool for others than the host's",
    )  # fmt: skip
    completed_by(action, "tiers")


def add_budget(parser: Parser, default: str = "the machine's memory", several: bool = False) -> None:
    also = "; several with commas between them" * several
    parser.add_argument(
        "--budget", metavar="SIZE",
        help=f"as in 12GiB, 512MiB, or 0.4 of the baseline's peak{also} (default: {default})",
    )  # fmt: skip


def add_cluster(parser: Parser, simulated: bool = True) -> None:
    """Data-parallel training; `simulated`: the number of ranks and the speed of the network are options, too."""
    group = parser.add_argument_group("data-parallel training")
    if not simulated:
        group.add_argument(
            "--parallel", choices=("mpi",), help="be one of the ranks that mpiexec or srun has started"
        )  # fmt: skip
    if simulated:
        group.add_argument(
            "--workers", type=whole(most=MOST_RANKS), metavar="N", default=1,
            help="GPUs that train together, each on a batch of its own; their network is simulated (default: 1)",
        )  # fmt: skip
    add_ring(group)
    group.add_argument(
        "--network-shares-link", action="store_true", help="an all-reduce occupies the link that maps are copied over"
    )
    group.add_argument(
        "--bucket", metavar="SIZE", help="gradients that an all-reduce waits for, as in 4MiB (default: 25 MB)"
    )


def add_ring(group: Any) -> None:
    """The network of a cluster."""
    group.add_argument("--network", type=rate, dest="link", metavar="RATE", default=1.25e9,
                       help="10Gbit, 1.25GB/s, or bytes a second (default: 10Gbit)")  # fmt: skip
    group.add_argument("--latency", type=real(), metavar="S", default=20e-6, help="seconds (default: 0.00002)")
    group.add_argument("--no-overlap", action="store_false", dest="overlap", help="reduce after the last backward step")


def rate(text: str) -> float:
    """The type of --network: bytes a second."""
    found = RATE.fullmatch(text.strip())
    bytes_a_second = 0.0
    if found:
        bytes_a_second = float(found["number"]) * FACTORS[found["prefix"] or ""] / (8 if found["unit"] == "bit" else 1)
    if bytes_a_second < 1:
        raise argparse.ArgumentTypeError(f"give a rate such as 10Gbit, 1.25GB/s or 1250000000, not {text!r}")
    return bytes_a_second


def add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, and nothing else")


# -- what they stand for -----------------------------------------------------------------------------------------------


def end_at_output(options: argparse.Namespace) -> None:
    """Make --output a part of the network's name, as in my_model.onnx:NODE, which is what everything else reads."""
    if getattr(options, "output", None) is None:
        return
    names = options.networks if "networks" in options else [options.network]
    for name in names:
        if not str(name).lower().endswith(".onnx"):
            raise Fail(f"--output {options.output} is for ONNX files, and {name} is not one")
    ended = [f"{name}:{options.output}" for name in names]
    if "networks" in options:
        options.networks = ended
    else:
        (options.network,) = ended


def network_of(options: argparse.Namespace) -> Network:
    """The network that was named."""
    from refimpl.network.zoo import build

    return build(options.network, options.batch)


def data_parallel(options: argparse.Namespace, network: Network, ranks: int) -> Network:
    """The network as one of `ranks` ranks trains it."""
    from refimpl.network import BUCKET_BYTES
    from refimpl.registry.budgets import BudgetError, Share, parse

    if options.bucket is None:
        return network.data_parallel(ranks, BUCKET_BYTES if options.overlap else None)
    if not options.overlap:
        raise Fail("--no-overlap makes one bucket of all gradients: leave out --bucket")
    try:
        bucket = parse(options.bucket)
    except BudgetError:
        bucket = Share(1.0)
    if isinstance(bucket, Share):
        raise Fail(f"--bucket {options.bucket}: give a size, as in 4MiB")
    return network.data_parallel(ranks, bucket)


def setup_of(options: argparse.Namespace) -> Setup:
    """The preset that was named, with some slots filled otherwise."""
    return setup_named(options, options.policy, {})


#: `--recompute` → the module of that name in the slot.
RECOMPUTE = {"speed": "speed-centric", "memory": "memory-centric", "cost": "cost-aware"}


def setup_named(options: argparse.Namespace, text: str, named: dict[str, str]) -> Setup:
    """The setup `text`, changed by --set, --algorithms and --recompute, and last by `named`."""
    from refimpl.planner import SetupError
    from refimpl.registry import presets

    if getattr(options, "fates", None):
        named = named | {"fates": options.fates}
    try:
        return with_effort(presets.setup(text, assigned(options) | named), options)
    except SetupError as error:
        if options.recompute and str(error).startswith(f"recompute={RECOMPUTE[options.recompute]} "):
            hint = f"{error}, or take the preset superneurons-recompute"
            raise Fail(f"--recompute {options.recompute} with {text}: {hint}") from None
        raise


def with_effort(setup: Setup, options: argparse.Namespace) -> Setup:
    """The setup; of the preset combined, its search with --effort and --search-seed, which shows how far it is."""
    from refimpl.combined import Combined

    if not isinstance(setup, Combined):
        for name in ("effort", "search_seed"):
            if getattr(options, name, None) is not None and getattr(options, "policy", "combined") != "combined":
                raise Fail(f"--{name.replace('_', '-')} is for --policy combined")
        return setup
    changed = {"effort": options.effort, "seed": options.search_seed}
    given = {name: value for name, value in changed.items() if value is not None}
    return replace(setup, watch=search_progress(), **given)


def assigned(options: argparse.Namespace) -> dict[str, str]:
    """Slot → module of --set; `--algorithms x` is `--set algorithms=x`, `--recompute speed` that of speed-centric."""
    from refimpl.registry.modules import assignments

    named = assignments(options.assignments)
    short = {"algorithms": options.algorithms, "recompute": RECOMPUTE.get(options.recompute)}
    for slot, module in short.items():
        if module is not None and named.setdefault(slot, module) != module:
            raise Fail(f"--{slot} {getattr(options, slot)} and --set {slot}={named[slot]}: give one of them")
    return named


def machine_of(options: argparse.Namespace, default: str = "") -> Machine:
    """The machine that was named; without a name `default`, or the GPU at hand, or vDNN's."""
    from refimpl.machine import Ring, machine
    from refimpl.machine.here import gpu_at_hand
    from refimpl.registry.tiers import tiers_named

    found = machine(options.machine or default or ("here" if gpu_at_hand() else VDNNS_MACHINE))
    if options.catalogue:
        found = found.with_catalogue(options.catalogue)
    if "network_shares_link" in options:
        found = found.with_ring(Ring(options.link, options.latency, options.network_shares_link))
    return found.with_tiers(tiers_named(options.tiers)) if options.tiers is not None else found


def program_of(options: argparse.Namespace) -> Program:
    """The program of the network that was named, with the setup, machine and budget that were."""
    from refimpl.registry.planning import plan

    network = data_parallel(options, network_of(options), options.workers)
    return plan(network, setup_of(options), machine_of(options), options.budget)


def say_share(options: argparse.Namespace, network: Network, machine: Machine) -> None:
    """A line on what the budget is a share of, if it is one; of several budgets a line each."""
    from refimpl.registry.budgets import several
    from refimpl.registry.planning import share_of

    for budget in several(options.budget):
        if line := share_of(budget, network, machine):
            say(line)

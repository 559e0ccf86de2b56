"""The options that several commands have, and the objects that they stand for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from refimpl.cli.arguments import Fail, Parser, completed_by, whole
from refimpl.cli.terminal import say

if TYPE_CHECKING:
    from refimpl.machine import Machine
    from refimpl.network import Network
    from refimpl.planner import Program, Setup

VDNNS_MACHINE = "titan-x"


def add_network(parser: Parser, several: bool = False, batch: bool = True) -> None:
    action = parser.add_argument(
        "networks" if several else "network",
        metavar="NETWORK",
        nargs="+" if several else None,
        help="its name, as in vgg16, resnet:137 or alexnet:superneurons; refimpl list networks has them all",
    )
    completed_by(action, "networks")
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
    parser.add_argument(
        "--recompute", choices=("speed", "memory", "cost"),
        help="drop cheap maps and rebuild them as SuperNeurons does (its presets that do: cost)",
    )  # fmt: skip


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


def add_budget(parser: Parser, default: str = "the machine's memory") -> None:
    parser.add_argument(
        "--budget", metavar="SIZE",
        help=f"as in 12GiB, 512MiB, or 0.4 of the baseline's peak (default: {default})",
    )  # fmt: skip


def add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, and nothing else")


# -- what they stand for -----------------------------------------------------------------------------------------------


def network_of(options: argparse.Namespace) -> Network:
    """The network that was named."""
    from refimpl.network.zoo import build

    return build(options.network, options.batch)


def setup_of(options: argparse.Namespace) -> Setup:
    """The preset that was named, with some slots filled otherwise."""
    return setup_named(options, options.policy, {})


#: `--recompute` → the module of that name in the slot.
RECOMPUTE = {"speed": "speed-centric", "memory": "memory-centric", "cost": "cost-aware"}


def setup_named(options: argparse.Namespace, text: str, named: dict[str, str]) -> Setup:
    """The setup `text`, changed by --set, --algorithms and --recompute, and last by `named`."""
    from refimpl.planner import SetupError
    from refimpl.registry import presets

    try:
        return presets.setup(text, assigned(options) | named)
    except SetupError as error:
        if options.recompute and str(error).startswith(f"recompute={RECOMPUTE[options.recompute]} "):
            hint = f"{error}, or take the preset superneurons-recompute"
            raise Fail(f"--recompute {options.recompute} with {text}: {hint}") from None
        raise


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
    from refimpl.machine import machine
    from refimpl.machine.here import gpu_at_hand
    from refimpl.registry.tiers import tiers_named

    found = machine(options.machine or default or ("here" if gpu_at_hand() else VDNNS_MACHINE))
    if options.catalogue:
        found = found.with_catalogue(options.catalogue)
    return found.with_tiers(tiers_named(options.tiers)) if options.tiers is not None else found


def program_of(options: argparse.Namespace) -> Program:
    """The program of the network that was named, with the setup, machine and budget that were."""
    from refimpl.registry.planning import plan

    return plan(network_of(options), setup_of(options), machine_of(options), options.budget)


def say_share(options: argparse.Namespace, network: Network, machine: Machine) -> None:
    """A line on what the budget is a share of, if it is one."""
    from refimpl.registry.planning import share_of

    if line := share_of(options.budget, network, machine):
        say(line)

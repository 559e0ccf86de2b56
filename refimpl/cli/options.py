"""The options that several commands have, and the objects that they stand for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from refimpl.cli.arguments import Fail, Parser, completed_by

if TYPE_CHECKING:
    from refimpl.machine import Machine
    from refimpl.network import Network
    from refimpl.planner import Program, Setup

VDNNS_MACHINE = "titan-x"


def add_network(parser: Parser, several: bool = False) -> None:
    action = parser.add_argument(
        "networks" if several else "network",
        metavar="NETWORK",
        nargs="+" if several else None,
        help="its name, as in vgg16, resnet:137 or alexnet:superneurons; refimpl list networks has them all",
    )
    completed_by(action, "networks")
    parser.add_argument("--batch", type=int, metavar="N", help="images in a batch (default: as its paper measured it)")


def add_setup(parser: Parser, preset: bool = True) -> None:
    if preset:
        action = parser.add_argument("--policy", metavar="PRESET", default="baseline", help="default: baseline")
        completed_by(action, "presets")
    action = parser.add_argument(
        "--set", metavar="SLOT=MODULE", action="append", default=[], dest="assignments",
        help="fill a slot otherwise, as in liveness=layer-wise or barrier=yes; repeatable; see refimpl list modules",
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


def add_budget(parser: Parser, default: str = "the machine's memory") -> None:
    parser.add_argument(
        "--budget", metavar="SIZE",
        help=f"as in 12GiB, 512MiB, or 0.4 of the baseline's peak (default: {default})",
    )  # fmt: skip


def add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, and nothing else")


# -- what they stand for -----------------------------------------------------------------------------------------------


def network_of(options: argparse.Namespace, name: str | None = None) -> Network:
    """The network that was named."""
    from refimpl.network.zoo import build

    return build(name or options.network, options.batch)


def setup_of(options: argparse.Namespace) -> Setup:
    """The preset that was named, with some slots filled otherwise."""
    from refimpl.registry import modules

    return preset_with(options, options.policy, with_shortcuts(options, modules.assignments(options.assignments)))


def preset_with(options: argparse.Namespace, preset: str, named: dict[str, str]) -> Setup:
    """A preset with modules by name; where `--recompute` cannot be, with a word on what would do."""
    from refimpl.planner import SetupError
    from refimpl.registry import presets

    try:
        return presets.setup(preset, named)
    except SetupError as error:
        if options.recompute and str(error).startswith(f"recompute={RECOMPUTE[options.recompute]} "):
            hint = f"{error}, or take the preset superneurons-recompute"
            raise Fail(f"--recompute {options.recompute} with {preset}: {hint}") from None
        raise


#: `--recompute` → the module of that name in the slot.
RECOMPUTE = {"speed": "speed-centric", "memory": "memory-centric", "cost": "cost-aware"}


def with_shortcuts(options: argparse.Namespace, named: dict[str, str]) -> dict[str, str]:
    """`--algorithms x` is `--set algorithms=x`, `--recompute speed` is `--set recompute=speed-centric`."""
    short = {"algorithms": options.algorithms, "recompute": RECOMPUTE.get(options.recompute)}
    for slot, module in short.items():
        if module is not None and named.setdefault(slot, module) != module:
            raise Fail(f"--{slot} {getattr(options, slot)} and --set {slot}={named[slot]}: give one of them")
    return named


def machine_of(options: argparse.Namespace, default: str = "") -> Machine:
    """The machine that was named; without a name `default`, or the GPU at hand, or vDNN's."""
    from refimpl.machine import machine
    from refimpl.registry.planning import gpu_at_hand

    found = machine(options.machine or default or ("here" if gpu_at_hand() else VDNNS_MACHINE))
    return found.with_catalogue(options.catalogue) if options.catalogue else found


def program_of(options: argparse.Namespace) -> Program:
    """All of it: the program of the network that was named, with the setup, machine and budget that were."""
    from refimpl.registry.planning import plan

    network, setup, machine = network_of(options), setup_of(options), machine_of(options)
    return plan(network, setup, machine, options.budget)

"""`refimpl view`: a page to look at a program, or at two side by side."""

from __future__ import annotations

import argparse
from typing import Any

from refimpl.cli.arguments import DONE, add_command, completed_by, writable
from refimpl.cli.options import (
    add_budget,
    add_cluster,
    add_machine,
    add_network,
    add_setup,
    data_parallel,
    machine_of,
    program_of,
    say_share,
    setup_named,
)
from refimpl.cli.plan import proved
from refimpl.cli.terminal import say


def add(commands: Any) -> None:
    parser = add_command(
        commands, "view", "a page to look at a program",
        "Plan one iteration and write a page to look at it: memory, addresses, streams, the listing with its reasons "
        "and any tensor's life, linked.  The page is one file that opens in any browser, without a network.  With "
        "--against a second program is beside the first, with the differences.",
        [
            "refimpl view vgg16 --batch 64 --policy vdnn-all --budget 6GiB",
            "refimpl view vgg16 --batch 64 --policy vdnn-all --against superneurons --out two.html",
            'refimpl view alexnet --against "baseline liveness=layer-wise"',
            "refimpl view resnet50 --policy superneurons --against-network resnet101",
        ],
    )  # fmt: skip
    add_network(parser)
    add_setup(parser)
    add_machine(parser)
    add_budget(parser)
    add_cluster(parser)
    action = parser.add_argument(
        "--against", metavar="SETUP", help="a second program, of this setup (default: the same setup)"
    )
    completed_by(action, "setups")
    action = parser.add_argument(
        "--against-network", metavar="NETWORK", help="a second program, of this network (default: the same network)"
    )
    completed_by(action, "networks")
    parser.add_argument("--out", metavar="FILE", default="view.html", help="the page's file (default: view.html)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from refimpl.network.zoo import build
    from refimpl.registry.planning import plan
    from refimpl.report.figures import title
    from refimpl.report.page import write_page

    path = writable("--out", options.out)
    program = program_of(options)
    proved(program)
    against = None
    if options.against or options.against_network:
        network = program.network
        if options.against_network:
            network = data_parallel(options, build(options.against_network, options.batch), options.workers)
        setup = setup_named(options, options.against, {}) if options.against else program.setup
        against = plan(network, setup, machine_of(options), options.budget)
        proved(against)
    write_page(path, program, against=against)
    say(f"{path}: {title(program)}{f' beside {title(against)}' if against else ''}; open it in a browser")
    say_share(options, program.network, program.machine)
    return DONE

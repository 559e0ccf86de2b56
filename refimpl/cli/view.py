"""`refimpl view`: a page to look at a program, or at two side by side."""

from __future__ import annotations

import argparse

from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DONE, Parser, writable
from refimpl.cli.terminal import say
from refimpl.names.by_name import plan
from refimpl.report.figures import title


def add(parser: Parser) -> None:
    parser.describe(
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
    shared_options.network(parser)
    shared_options.setup(parser)
    shared_options.machine(parser)
    shared_options.budget(parser)
    shared_options.cluster(parser)
    parser.add_argument("--against", metavar="SETUP", help="a second program, of this setup (default: the same setup)")
    parser.add_argument(
        "--against-network", metavar="NETWORK", help="a second program, of this network (default: the same network)"
    )
    parser.add_argument("--out", metavar="FILE", default="view.html", help="the page's file (default: view.html)")


def run(options: argparse.Namespace) -> int:
    from refimpl.report.page import write_page

    path = writable("--out", options.out)
    program = resolve.program(options)
    against = None
    if options.against or options.against_network:
        network = program.network
        if options.against_network:
            network = resolve.network(options, options.against_network)
        setup = resolve.setup_named(options, options.against, {}) if options.against else program.setup
        against = plan(network, setup, resolve.machine(options), options.budget)
        resolve.proved(against)
    write_page(path, program, against=against)
    say(f"{path}: {title(program)}{f' beside {title(against)}' if against else ''}; open it in a browser")
    resolve.say_share(options, program.network, program.machine)
    return DONE

"""`refimpl summary`: a network, layer by layer."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from refimpl.cli import shared_options
from refimpl.cli.parser import DONE, Parser
from refimpl.cli.terminal import print_json, say, show_table
from refimpl.names.networks import build
from refimpl.text import size


def add(parser: Parser) -> None:
    parser.describe(
        "A network, layer by layer: shapes, parameters, operations, and the bytes of its maps.",
        ["refimpl summary vgg16 --batch 256", "refimpl summary alexnet:superneurons --json"],
    )  # fmt: skip
    shared_options.network(parser)
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    network = build(options.network, options.batch)
    if options.json:
        from refimpl.network.accounting import network_wide_bytes, summary

        print_json({
            "network": network.name, "batch": network.batch, "parameters": network.parameter_count,
            "flops": network.flops, "resident_bytes": network.resident_bytes, "managed_bytes": network.managed_bytes,
            "network_wide_bytes": network_wide_bytes(network), "layers": [asdict(row) for row in summary(network)],
        })  # fmt: skip
        return DONE
    from refimpl.report.tables import summary_table

    show_table(summary_table(network))
    come_and_go = not any(tensor.kind == "weight gradient" for tensor in network.resident)
    resident = "weights and momentum" if come_and_go else "weights, their gradients and momentum"
    managed = "map, gradient map and gradient of weights" if come_and_go else "map and gradient map"
    if network.on_host:
        resident = resident.replace(" and momentum", "").replace(", their", " and their")
        managed += ", and state on the host"
    say(f"Resident, as {resident}: {size(network.resident_bytes)}.")
    say(f"Every {managed}, each counted once: {size(network.managed_bytes)}.")
    return DONE

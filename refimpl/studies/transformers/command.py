"""`refimpl transformers`: every policy on transformers, beside the checkpoints that users know."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernels.targets.cpu.threads import cores
from refimpl.cli import shared_options
from refimpl.cli.parser import DONE, Fail, Parser, pick, whole
from refimpl.cli.picture_option import checked, save
from refimpl.cli.stopped import stopped
from refimpl.cli.terminal import print_json, progress, say, show_table, tell
from refimpl.names.machines import named as machine_named
from refimpl.studies.grid.rows import network_of
from refimpl.studies.reproduce.evaluation import to_json
from refimpl.studies.transformers.block_bytes import block_maps, probabilities
from refimpl.studies.transformers.outcome_tables import block_table, fastest_table, probabilities_table, slow_down_table
from refimpl.studies.transformers.outcomes import EFFORT, MACHINES, NETWORKS, Outcome, outcomes, questions
from refimpl.studies.transformers.probability_maps import HAVE_MAPS, SHARES, SHOWN, compared, maps_table, setups

SMALL = ("gpt2",), ("rtx-4090",)  #: networks and machines where none are named


def add(parser: Parser) -> None:
    parser.describe(
        "Plan transformers under every paper's policy, the policy that combines them, and three yardsticks: everything "
        "kept; attention recomputed; and each block's input kept and the rest recomputed, as torch.utils.checkpoint "
        "does.  For each network and machine: the slow-down within several budgets, and the largest batch.  A file "
        "keeps the plans that are done, and the same command goes on where it was stopped.  All times are simulated.",
        [
            "refimpl transformers", "refimpl transformers --network vit-b16 --machine rtx-3060 --picture vit.png",
            "refimpl transformers --all --out transformers.jsonl", "refimpl transformers --maps",
        ],
    )  # fmt: skip
    parser.add_argument(
        "--network", action="append", default=[], metavar="NAME", dest="networks",
        help=f"repeatable: {', '.join(NETWORKS)} (default: {', '.join(SMALL[0])})",
    )  # fmt: skip
    parser.add_argument(
        "--machine", action="append", default=[], metavar="NAME", dest="machines",
        help=f"repeatable: as `refimpl list machines` has it, or a file (default: {', '.join(SMALL[1])}; with --all: "
        f"{', '.join(MACHINES)})",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="every network on every machine, in a quarter of an hour")
    parser.add_argument("--maps", action="store_true",
                        help="compare with attention's probabilities as maps instead, for networks that can have "
                             f"them: {', '.join(HAVE_MAPS)}")  # fmt: skip
    parser.add_argument("--effort", type=whole(), default=EFFORT, metavar="N",
                        help=f"plans that combined makes at most for each budget (default: {EFFORT})")  # fmt: skip
    parser.add_argument("--jobs", type=whole(1, 1024), metavar="N", help="processes (default: one for each core)")
    parser.add_argument("--out", metavar="FILE", help="keep the plans that are done in this file, and go on from it")
    parser.add_argument(
        "--write", action="store_true", help="with --all or --maps: write docs/transformers.md, or that table of it"
    )
    shared_options.picture(parser, kinds=False)
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    if options.all and (options.networks or options.machines):
        raise Fail("--all is every network on every machine; leave out --network and --machine")
    if options.maps:
        return run_maps(options)
    if options.write and not options.all:
        raise Fail("--write writes the page of all networks; give --all, too")
    names = options.networks or (NETWORKS if options.all else SMALL[0])
    machines = options.machines or (MACHINES if options.all else SMALL[1])
    for name in names:
        pick(name, NETWORKS, "network")
    for name in machines:
        machine_named(name)  # a slip is a line here, and not a row for each point
    picture = checked(options.picture)
    networks = {name: NETWORKS[name] for name in names}
    found = planned(options, networks, list(dict.fromkeys(machines)))
    if picture:
        from refimpl.studies.transformers.pictures import over_budget

        save(over_budget(found), picture)
    if options.write:
        from refimpl.studies.transformers.written_page import write

        for path in write(found, networks):
            tell(f"written: {path}")
    built = [network_of(*one) for one in networks.items()]
    if options.json:
        blocks = {one.name: to_json(block_maps(one)) for one in built}
        squares = {
            machine: to_json([probabilities(one, machine_named(machine)) for one in built]) for machine in machines
        }
        print_json({"blocks": blocks, "probabilities": squares, "outcomes": to_json(found)})
        return DONE
    for name, batch in networks.items():
        show_table(block_table(network_of(name, batch)))
        say("")
        for machine in dict.fromkeys(machines):
            show_table(slow_down_table(found, name, machine))
            say("")
    for machine in dict.fromkeys(machines):
        show_table(probabilities_table(built, machine))
        say("")
    show_table(fastest_table(found))
    if picture:
        say(f"Picture: {picture}")
    return DONE


def run_maps(options: argparse.Namespace) -> int:
    """With attention's probabilities as workspace and as maps."""
    name, _, machine = SHOWN
    if options.all or options.out or options.picture:
        raise Fail("--maps is one comparison; leave out --all, --out and --picture")
    if options.write and (options.networks or options.machines):
        raise Fail(f"--maps --write writes the page's table, {name} on {machine}; leave out --network and --machine")
    names, machines = options.networks or [name], options.machines or [machine]
    for one in names:
        pick(one, HAVE_MAPS, "network whose probabilities can be maps")
    for one in machines:
        machine_named(one)
    asked = [(one, NETWORKS[one], on) for one in dict.fromkeys(names) for on in dict.fromkeys(machines)]
    with progress("planning", len(asked) * len(SHARES) * len(setups())) as advance:
        found = {one: compared(*one, effort=options.effort, watch=advance) for one in asked}
    if options.write:
        from refimpl.studies.transformers.written_page import write_maps

        tell(f"written: {write_maps(found[SHOWN])}")
    if options.json:
        print_json([{"network": name, "batch": batch, "machine": on, "plans": to_json(plans)}
                    for (name, batch, on), plans in found.items()])  # fmt: skip
        return DONE
    for one, plans in found.items():
        show_table(maps_table(plans, *one))
        say("")
    return DONE


def planned(options: argparse.Namespace, networks: dict[str, int], machines: list[str]) -> list[Outcome]:
    """The outcomes of all questions, with a bar."""
    asked = questions(networks, machines, effort=options.effort)
    out = Path(options.out) if options.out else None
    steps = len(asked) + sum(one.share is None for one in asked)
    with stopped(out), progress("planning", steps) as advance:
        return outcomes(asked, options.jobs or cores(), out, lambda row: advance(str(row["network"])))

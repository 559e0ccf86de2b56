"""`refimpl study transformers`: every policy on transformers, beside the checkpoints that users know."""

from __future__ import annotations

import argparse
from functools import partial

from refimpl.cli.parser import DONE, Fail, Parser, pick, whole
from refimpl.cli.picture_option import checked, save
from refimpl.cli.terminal import print_json, progress, say, show_table
from refimpl.names.machines import named as machine_named
from refimpl.studies.grid.many_points import add as add_many_points
from refimpl.studies.grid.many_points import planned
from refimpl.studies.grid.rows import network_of
from refimpl.studies.reproduce.evaluation import to_json
from refimpl.studies.transformers.block_bytes import block_maps, probabilities
from refimpl.studies.transformers.outcomes import (
    EFFORT,
    MACHINES,
    NETWORKS,
    block_table,
    fastest_table,
    largest_table,
    mean_table,
    outcomes,
    probabilities_table,
    questions,
    slow_down_table,
    traffic_table,
)
from refimpl.studies.transformers.probability_maps import HAVE_MAPS, SHARES, SHOWN, compared, maps_table, setups

SMALL = ("gpt2",), ("rtx-4090",)  #: networks and machines where none are named
MOVED = "rtx-4090", 0.2  #: the machine and the share of the way of the table of what is moved


def add(parser: Parser) -> None:
    parser.describe(
        "Plan transformers under every paper's policy, the policy that combines them, and three yardsticks: everything "
        "kept; attention recomputed; and each block's input kept and the rest recomputed, as torch.utils.checkpoint "
        "does.  For each network and machine: the slow-down within several budgets, and the largest batch.  A file "
        "keeps the plans that are done, and the same command goes on where it was stopped.  All times are simulated.",
        [
            "refimpl study transformers",
            "refimpl study transformers --network vit-b16 --machine rtx-3060 --picture vit.png",
            "refimpl study transformers --all --out transformers.jsonl",
            "refimpl study transformers --maps",
        ],
    )
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
    parser.add_argument("--picture", metavar="FILE", help="draw it into a .png or .svg file")
    parser.add_argument(
        "--draw", choices=("slow-down", "block"), default="slow-down",
        help="slow-down over budget; or, without any table, what each rule does with a block's maps (default: "
        "slow-down)",
    )  # fmt: skip
    add_many_points(parser)


def run(options: argparse.Namespace) -> int:
    if options.all and (options.networks or options.machines):
        raise Fail("--all is every network on every machine; leave out --network and --machine")
    if options.maps:
        return run_maps(options)
    names = list(dict.fromkeys(options.networks)) or (NETWORKS if options.all else SMALL[0])
    machines = list(dict.fromkeys(options.machines)) or (MACHINES if options.all else SMALL[1])
    for name in names:
        pick(name, NETWORKS, "network")
    for name in machines:
        machine_named(name)  # a slip is a line here, and not a row for each point
    picture = checked(options.picture)
    networks = {name: NETWORKS[name] for name in names}
    built = [network_of(*one) for one in networks.items()]
    if picture and options.draw == "block":
        from refimpl.studies.transformers.block_picture import block_fates

        save(block_fates(built[0], machines[0]), picture)
        say(f"Picture: {picture}")
        return DONE
    found = outcomes(questions(networks, machines, effort=options.effort), partial(planned, options))
    if picture:
        from refimpl.studies.grid.pictures import drawn

        within = [one | {"setup": one["policy"]} for one in found if one["share"] is not None]
        save(drawn("slow-down", within), picture)
    if options.json:
        blocks = {one.name: to_json(block_maps(one)) for one in built}
        squares = {
            machine: to_json([probabilities(one, machine_named(machine)) for one in built]) for machine in machines
        }
        print_json({"blocks": blocks, "probabilities": squares, "outcomes": found})
        return DONE
    made = [block_table(one) for one in built]
    made += [slow_down_table(found, name, machine) for name in networks for machine in machines]
    made += [probabilities_table(built, machine) for machine in machines]
    if options.all:
        made += [mean_table(found), traffic_table(found, *MOVED), largest_table(found)]
    for table in (*made, fastest_table(found)):
        show_table(table)
        say("")
    if picture:
        say(f"Picture: {picture}")
    return DONE


def run_maps(options: argparse.Namespace) -> int:
    """With attention's probabilities as workspace and as maps."""
    name, _, machine = SHOWN
    if options.all or options.out or options.picture:
        raise Fail("--maps is one comparison; leave out --all, --out and --picture")
    names, machines = options.networks or [name], options.machines or [machine]
    for one in names:
        pick(one, HAVE_MAPS, "network whose probabilities can be maps")
    for one in machines:
        machine_named(one)
    asked = [(one, NETWORKS[one], on) for one in dict.fromkeys(names) for on in dict.fromkeys(machines)]
    with progress("planning", len(asked) * len(SHARES) * len(setups())) as advance:
        found = {one: compared(*one, effort=options.effort, watch=advance) for one in asked}
    if options.json:
        print_json([{"network": name, "batch": batch, "machine": on, "plans": to_json(plans)}
                    for (name, batch, on), plans in found.items()])  # fmt: skip
        return DONE
    for one, plans in found.items():
        show_table(maps_table(plans, *one))
        say("")
    return DONE

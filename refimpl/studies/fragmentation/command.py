"""`refimpl study fragmentation`: how large the pool must be, for every heuristic, order and policy; or for a log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DONE, Parser
from refimpl.cli.picture_option import checked, save
from refimpl.cli.terminal import print_json, progress, say, show_table, wrapped
from refimpl.machine import Machine
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import plan
from refimpl.report.tables import Column, Table, count, plain
from refimpl.studies.fragmentation.logged import replay_log
from refimpl.studies.fragmentation.study import ORDERS, PoolRow, cases, least, setup, study
from refimpl.studies.fragmentation.study import document as row_json

MACHINE = "gtx-970"  #: vDNN++'s
POLICIES = ("none", "conv", "all", "alternate-conv")
DRAWN = {
    "map": "blocks and holes over time, of the first policy that offloads",
    "bars": "every heuristic under every policy",
}
MARKS = "S: as the authors' public code has it; R: ours, to compare with.  None of these figures is the paper's own."
SYNCHRONOUS = "The order of events is vDNN's, synchronous: a layer ends when its copies do."
OWN = (
    "The order of events is vDNN++'s own: a map is freed when its copy is done.  The free memory at the barrier, and "
    "so the layout there, depends on which copies were done: these pools are for {machine}, its link and its speed."
)


def add(parser: Parser) -> None:
    parser.describe(
        "vDNN++'s study of fragmentation: replay an iteration's allocations in pools that grow until all of them fit.  "
        "For every fit, placement and order: the pool, the tries, its bytes beyond the most alive at once, and the "
        "budget that gives training a pool of exactly that size.  A larger one may fail.  In place of a network an "
        "allocation log, as `refimpl view --format rmm` writes it: how large a pool each allocator needs for it.",
        [
            "refimpl study fragmentation vgg16:vdnnpp --batch 16",
            "refimpl study fragmentation alexnet:vdnnpp --policy conv --picture alexnet.png",
            "refimpl study fragmentation googlenet --own-order --picture googlenet.svg --draw bars",
            "refimpl study fragmentation allocations.csv",
        ],
    )  # fmt: skip
    shared_options.network(parser)
    parser.add_argument(
        "--policy", action="append", choices=POLICIES, help="only this policy; repeatable (default: all four)"
    )
    parser.add_argument(
        "--own-order", action="store_true",
        help="vDNN++'s own order of frees: offloaded maps at the barrier (default: vDNN's, synchronous)",
    )  # fmt: skip
    shared_options.machine(parser, MACHINE)
    shared_options.picture(parser, kinds=False)
    meant = "; ".join(f"{kind}: {what}" for kind, what in DRAWN.items())
    parser.add_argument("--draw", choices=tuple(DRAWN), default="map", help=f"{meant} (default: map)")
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    if options.network.endswith(".csv"):
        return replay_log(options.network, options.json)
    picture = checked(options.picture)
    network, machine = build(options.network, options.batch), resolve.machine(options, MACHINE)
    policies = list(dict.fromkeys(options.policy or POLICIES))
    rows: list[PoolRow] = []
    traces = cases(policies)
    with progress("replaying", len(traces)) as advance:
        for row in study(network, machine, policies, not options.own_order):
            if not rows or (rows[-1].policy, rows[-1].order) != (row.policy, row.order):
                advance(row.policy)
            rows.append(row)
    if picture:
        save(drawn(rows, network, machine, options), picture)
    if options.json:
        print_json(document(rows, network, machine, options))
        return DONE
    for policy in policies:
        show_table(table([row for row in rows if row.policy == policy], network))
    wrapped(OWN.format(machine=machine.name) if options.own_order else SYNCHRONOUS)
    wrapped(MARKS)
    wrapped(f"budget: the pool and {rows[0].resident_bytes:,} bytes of resident tensors; plan with exactly that.")
    if picture:
        say(f"Picture: {picture}")
    return DONE


def table(rows: Sequence[PoolRow], network: Network) -> Table:
    """One policy's rows, in bytes; the smallest pool is marked, and the smallest that is not planned."""
    best = {least(rows), least(rows, with_planned=True)}
    columns = (
        Column("heuristic", "heuristic"),
        Column("order", lambda row: ORDERS[row.order].replace(" then", "") if row.order else None),
        Column("ideal", lambda row: row.found.ideal_bytes, count),
        Column("pool", lambda row: row.found.pool_bytes, count), Column("tries", lambda row: row.found.tries, plain),
        Column("beyond", lambda row: row.found.fragmentation, lambda share: f"{100 * share:.2f} %"),
        Column("budget", "budget_bytes", count),
        Column("mark", lambda row: f"{row.mark}, least" if row in best else row.mark),
    )  # fmt: skip
    return Table.of(f"{network.name}, batch {network.batch} · {rows[0].policy}", rows, columns)


def document(
    rows: Sequence[PoolRow], network: Network, machine: Machine, options: argparse.Namespace
) -> dict[str, Any]:
    """Everything, for programs; bytes, and `fragmentation` as a share of the ideal."""
    return {
        "network": network.name,
        "batch": network.batch,
        "machine": machine.name,
        "catalogue": machine.catalogue,
        "synchronous": not options.own_order,
        "resident_bytes": rows[0].resident_bytes,
        "rows": [row_json(row) for row in rows],
    }


def drawn(rows: Sequence[PoolRow], network: Network, machine: Machine, options: argparse.Namespace) -> Any:
    """One of the two pictures."""
    from refimpl.studies.fragmentation.pictures import bars_picture, map_picture

    how = "vDNN++'s own order" if options.own_order else "vDNN's synchronous order"
    if options.draw == "bars":
        return bars_picture(rows, f"{network.name}, batch {network.batch} · {how} · {machine.name}")
    chosen = next((row for row in rows if row.order), rows[0])
    made = setup(chosen.policy, chosen.order, not options.own_order)
    program = plan(network, made, machine, UNLIMITED)
    what = f"{network.name}, batch {network.batch} · {chosen.policy}"
    order = f" · {ORDERS[chosen.order]}" if chosen.order else ""
    return map_picture(program, f"{what}{order} · {how} · {machine.name}")

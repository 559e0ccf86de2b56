"""`refimpl reproduce`: a paper's published figures beside ours."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from refimpl.cli.arguments import DONE, Fail, add_command, completed_by
from refimpl.cli.lists import print_json
from refimpl.cli.options import add_json
from refimpl.cli.pictures import add_picture, checked, save
from refimpl.terminal import progress, say, show, show_table

if TYPE_CHECKING:
    from refimpl.report.tables import Table
    from refimpl.vdnn.figures import Row

PAPERS = ("vdnn",)


def add(commands: Any) -> None:
    parser = add_command(
        commands, "reproduce", "a paper's figures beside ours",
        "A paper's published figures beside ours, each with its source; what is missed is shown as missed.  Then its "
        "networks under each of its policies, simulated on the paper's GPU.",
        [
            "refimpl reproduce vdnn", "refimpl reproduce vdnn --picture vdnn.png --json > vdnn.json",
            "refimpl reproduce vdnn --run --network tiny-vgg --batch 64 --budget 8MiB",
        ],
    )  # fmt: skip
    parser.add_argument("paper", choices=PAPERS, metavar="PAPER", help="which: " + ", ".join(PAPERS))
    add_picture(parser, kinds=False)
    real = parser.add_argument_group("run it", "train within a budget and without one, on the device at hand")
    real.add_argument("--run", action="store_true", dest="really", help="measure instead of simulating")
    completed_by(real.add_argument("--network", metavar="NAME", help="default: vgg16, on a GPU"), "networks")
    real.add_argument("--batch", type=int, metavar="N", help="default: 256 images of vgg16")
    real.add_argument("--policy", default="vdnn-dyn", metavar="PRESET", help="default: vdnn-dyn")
    real.add_argument("--budget", default="12GiB", metavar="SIZE", help="default: 12GiB")
    real.add_argument("--iterations", type=int, default=5, metavar="N", help="timed ones (default: 5)")
    real.add_argument("--write", action="store_true", help="write the measurement into docs/measurements")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.really:
        return really(options)
    for option in ("network", "batch", "write"):
        if getattr(options, option):
            raise Fail(f"--{option} belongs to --run, which trains on the device at hand")

    from refimpl.vdnn import figures

    picture = checked(options.picture)
    with progress("", len(figures.NETWORKS) + 1) as advance:
        advance("published figures")
        found = list(figures.reproduced())
        rows = list(figures.networks(advance))
    if picture:
        from refimpl.report.reproduction import networks_picture

        title = "vDNN's networks: memory and time under each policy"
        name = "Titan X of 12 GiB, cuDNN 4, simulated"
        save(networks_picture(title, name, rows, figures.TITAN_X.memory_bytes), picture)
    if options.json:
        published = [
            asdict(f.published) | {"ours": f.ours, "deviation": f.deviation, "met": f.met, "note": f.note}
            for f in found
        ]
        print_json({"paper": "vdnn", "published": published, "networks": [asdict(row) for row in rows]})
        return DONE
    from refimpl.report.reproduction import published_table

    show_table(published_table("vDNN", found))
    show_table(networks_table(rows))
    if picture:
        say(f"Picture: {picture}")
    return DONE


def really(options: argparse.Namespace) -> int:
    """The policy measured here, beside the same kernels without a budget."""
    import sys
    from pathlib import Path

    import refimpl
    from refimpl import presets
    from refimpl.machine import machine as machine_named
    from refimpl.network.zoo import build
    from refimpl.planning import budget_bytes, gpu_at_hand

    backend = "cuda" if gpu_at_hand() else "cpu"
    if backend == "cpu" and options.network is None:
        raise Fail("no GPU here; a small network runs on the CPU: --network tiny-vgg --batch 64 --budget 8MiB")
    if options.iterations < 1:
        raise Fail(f"--iterations {options.iterations}: give at least 1")
    network = build(options.network or "vgg16", options.batch or (None if options.network else 256))
    machine = machine_named("here")
    budget = budget_bytes(options.budget, network, machine)
    from refimpl import measured

    with progress("", 2 * options.iterations) as advance:
        policy = presets.setup(options.policy)
        found = measured.compare(network, policy, machine, budget, backend, options.iterations, advance)
    if options.json:
        print(found.json())
    else:
        show(
            f"{network.name}({network.batch}), {found.device}: vDNN within a budget, and without",
            *measured.table(found),
        )
    if options.write:
        for path in measured.write(found, Path(refimpl.__file__).resolve().parent.parent):
            print(f"written: {path}", file=sys.stderr)
    return DONE


def networks_table(rows: Sequence[Row]) -> Table:
    """Every network under every policy."""
    from refimpl.planner.errors import size
    from refimpl.report.tables import Table

    head = ["network", "policy", "at once", "average", "by time", "peak", "out", "TFLOP/s", "slower", ""]
    body = []
    for row in rows:
        who = [f"{row.network}({row.batch})", row.policy, size(row.network_wide_bytes)]
        if not row.fits:
            body.append([*who, "", "", "", "", "", "", f"does not fit: {row.failure}"])
            continue
        shares = [f"{share:.1%}" for share in (row.average_saving, row.weighted_saving, row.peak_saving) if share]
        moved = size(row.offloaded_bytes) if row.offloaded_bytes else "–"
        speed = f"{(row.flops_rate or 0.0) / 1e12:.2f}"
        body.append([*who, *shares, moved, speed, f"{row.slowdown or 0.0:.1%}", row.adopted])
    link = max((row.link_rate for row in rows if row.link_rate), default=0.0)
    note = (
        "Simulated on a Titan X of 12 GiB with the modelled cuDNN 4.  at once: the network-wide total.  average, by "
        "time, peak: memory saved against it, over the steps of the feature extraction.  slower: than a GPU that holds "
        f"it all, at so many TFLOP/s of the kernels; copies ran at {link / 1e9:.1f} GB/s.  (m): least workspace, (p): "
        "fastest."
    )
    numbers = frozenset({"at once", "average", "by time", "peak", "out", "TFLOP/s", "slower"})
    return Table("vDNN's networks", head, body, numbers, ("",), note)

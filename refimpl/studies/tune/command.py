"""`refimpl tune`: the minibatch that is most efficient within a budget, its learning rate, and a simulated cluster."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from refimpl.accudnn.tuner import Learning, Objective, Point, fitting
from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DONE, Fail, Parser, pick, real, whole
from refimpl.cli.picture_option import checked, save
from refimpl.cli.terminal import print_json, progress, say, show_table, waiting, wrapped
from refimpl.importing.any_batch import Batches
from refimpl.machine import wire_bytes
from refimpl.names.by_name import budget_bytes, plan
from refimpl.names.networks import build
from refimpl.planner import DoesNotFit
from refimpl.planner.heading import heading
from refimpl.report.tables import Column, Table, count
from refimpl.studies.tune.cluster import Cluster
from refimpl.studies.tune.tuning import ACCOUNTINGS, Accounting, Tuned, Workers, tune
from refimpl.text import counted, duration, size

POLICY = "accudnn"
PLANS = 60  #: batches planned for most networks; how far the bar goes
MOST_BUDGET = 1 << 50  #: bytes; a curve without a limit has no end
one_digit, two_digits = "{:,.1f}".format, "{:.2f}".format


def add(parser: Parser) -> None:
    parser.describe(
        "AccUDNN's tuner, reconstructed: plan the network with more and more images and find the batch with the most "
        "images a second, which is not the largest that fits; the learning rate that matches it; and what a cluster "
        "would make of it.  All times are simulated.  refimpl run --tuned FILE trains with what --json printed.",
        [
            "refimpl tune vgg16 --machine titan-x --budget 12GiB",
            "refimpl tune resnet50 --machine titan-x --workers 8,64,512,4096 --network 10Gbit",
            "refimpl tune tiny-vgg --budget 64MiB --picture curve.svg",
            "refimpl tune lenet --budget 8MiB --json > tuned.json",
        ],
    )  # fmt: skip
    shared_options.network(parser, batch=False)
    parser.add_argument("--policy", metavar="PRESET", default=POLICY, help=f"default: {POLICY}")
    shared_options.setup(parser, preset=False)
    shared_options.machine(parser)
    shared_options.budget(parser)
    parser.add_argument(
        "--objective", choices=("single", "cluster"),
        help="of the batches within 1 %% of the most images a second, the smallest or the largest "
        "(default: cluster from 2 workers on)",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", metavar="ACCOUNTING", default="network-wide",
        help="what a cluster's speed-up is over: caffe-bvlc, caffe-lean, network-wide or layer-wise "
        "(default: network-wide)",
    )  # fmt: skip
    cluster = parser.add_argument_group("a cluster, simulated")
    cluster.add_argument("--workers", type=numbers, default=(), metavar="N,N", help="numbers of GPUs, as in 8,64,512")
    shared_options.wire(cluster)
    learning = parser.add_argument_group("learning")
    learning.add_argument("--base-batch", type=whole(), metavar="N", default=256, help="default: 256")
    learning.add_argument("--base-rate", type=real(above=0), metavar="R", default=0.1, help="its rate (default: 0.1)")
    learning.add_argument("--images", type=whole(), metavar="N", default=1_281_167,
                          help="of an epoch (default: ImageNet's 1,281,167)")  # fmt: skip
    shared_options.picture(parser, kinds=False)
    shared_options.json(parser)


def numbers(text: str) -> tuple[int, ...]:
    """The type of --workers."""
    return tuple(whole(most=shared_options.MOST_RANKS)(part) for part in text.split(","))


def run(options: argparse.Namespace) -> int:
    picture = checked(options.picture)
    accounting = pick(options.baseline, ACCOUNTINGS, "accounting")
    wire = options.wire
    clusters = [Cluster(workers, wire.rate, wire.latency, wire.overlap) for workers in options.workers]
    several = max(options.workers, default=1) > 1
    if options.objective == "cluster" and not several:
        raise Fail("--objective cluster is for 2 workers or more: give --workers, as in --workers 8")
    objective: Objective = options.objective or ("cluster" if several else "single")
    setup, machine, networks = (
        resolve.setup(options),
        resolve.machine(options),
        Batches(partial(build, options.network)),
    )
    with waiting(f"reading {options.network}"):
        network = networks(None)
    learning = Learning(options.base_batch, options.base_batch, options.base_rate, options.images)
    budget = budget_bytes(options.budget, network, machine)
    if budget > MOST_BUDGET:
        raise Fail(f"--budget {options.budget}: give at most 1 PiB, or X(b) is flat and has no end")
    with progress("tuning", PLANS) as advance:
        try:
            tuned = tune(
                options.network, setup, machine, budget, clusters, objective, accounting, learning, advance, networks
            )
        except DoesNotFit:
            plan(networks(1), setup, machine, budget)  # the same, and says what would fit
            raise
    if picture:
        save(tuning_picture(tuned), picture)
    if options.json:
        print_json(document(tuned))
        return DONE
    show_table(accountings_table(tuned))
    show_table(curve_table(tuned))
    for line in findings(tuned):
        wrapped(line)
    if tuned.workers:
        say("")
        show_table(cluster_table(tuned))
    if network.opaque:
        wrapped(f"{heading(network, machine)}.")
    if picture:
        say(f"Picture: {picture}")
    return DONE


# -- for people --------------------------------------------------------------------------------------------------------


def title(tuned: Tuned) -> str:
    machine = f"{tuned.machine.name}, {tuned.machine.catalogue}"
    return f"{tuned.network} · {tuned.setup.name} · {machine} · {size(tuned.budget)} (simulated)"


def accountings_table(tuned: Tuned) -> Table:
    """The largest batch that fits without the policy, by every accounting."""
    columns = (
        Column("accounting", "name"), Column("an image", "bytes_per_image", size), Column("fixed", "fixed_bytes", size),
        Column("b0", "batch", count), Column("images/s", lambda row: row.point.images_a_second, one_digit),
        Column("b*/b0", tuned.ratio, two_digits), Column("X(b*)/X(b0)", tuned.gain, two_digits),
    )  # fmt: skip
    note = "  ".join(f"{name}: {about}." for name, about in ACCOUNTINGS.items())
    return Table.of(title(tuned), tuned.accountings.values(), columns, f"b0: the largest batch that fits.  {note}")


def marked_batches(tuned: Tuned) -> dict[str, int]:
    """Name → batch that is marked, on the curve."""
    return {"b*": tuned.optimal_batch, "knee": knee(tuned), "largest": tuned.trainable_batch}


def knee(tuned: Tuned) -> int:
    """The batch with the most images a second: from there on X(b) falls."""
    return max((one.images_a_second or 0, one.batch) for one in tuned.curve)[1]


def curve_table(tuned: Tuned) -> Table:
    """X(b)."""

    def marked(one: Point) -> str:
        names = [name for name, batch in marked_batches(tuned).items() if batch == one.batch]
        return "does not fit" if one.seconds is None else ", ".join(names)

    def of(name: str) -> Any:
        return lambda one: None if one.seconds is None else getattr(one, name)

    columns = (
        Column("batch", "batch", count), Column("images/s", "images_a_second", one_digit),
        Column("iteration", "seconds", duration), Column("stalled", of("stall_seconds"), duration),
        Column("slowdown", "slowdown", two_digits), Column("offloaded", of("offloaded_bytes"), size),
        Column("peak", of("peak_bytes"), size), Column("", marked),
    )  # fmt: skip
    note = "slowdown: over the baseline of that batch with unlimited memory."
    return Table.of("X(b): images a second", tuned.curve, columns, note)


def findings(tuned: Tuned) -> list[str]:
    """The answers, one line each."""
    form, learning = tuned.closed_form, tuned.learning
    smallest = "smallest" if tuned.objective == "single" else "largest"
    per_image = " and ".join(
        f"{what} {size(round(nbytes))}"
        for what, nbytes in (("liveness frees", tuned.liveness_frees), ("swapping", tuned.swapping_frees))
    )
    warm_up = (
        f"{counted(learning.warmup_epochs, 'epoch')} of warm-up from {learning.base_rate:g}"
        if learning.warmup_epochs
        else "no warm-up"
    )
    return [
        f"Efficiency-optimal batch: {tuned.optimal_batch}, the {smallest} within 1 % of the most images a second.  "
        f"Largest batch that can be trained: {tuned.trainable_batch}.",
        f"Closed form: b0 = (G - F)/μ = {form.without:.0f}, b* = (G - F)/(μ - V) = {form.optimum:.0f}, "
        f"b*/b0 = {form.ratio:.2f}.  Of an image's {size(round(form.per_image))}, {per_image}.",
        f"Learning rate on one GPU: {learning.rate:.3g} ({learning.scaling} rule), {warm_up}, "
        f"{counted(learning.iterations_an_epoch, 'iteration')} an epoch.  It decays at the same epochs; momentum and "
        "weight decay stay.",
    ]


def cluster_table(tuned: Tuned) -> Table:
    """The scaling curve."""

    def learnt(name: str) -> Any:
        return lambda row: getattr(row.learning, name)

    columns = (
        Column("workers", lambda row: row.cluster.workers, count), Column("iteration", "seconds", duration),
        Column("images/s", "images_a_second", one_digit), Column("scaling", "scaling", "{:.1%}".format),
        Column("speed-up", "speedup", one_digit), Column("baselines'", "baseline_speedup", one_digit),
        Column("pays to", "pays_up_to", count), Column("global", learnt("global_batch"), count),
        Column("rate", learnt("rate"), "{:.3g}".format), Column("rule", learnt("scaling")),
    )  # fmt: skip
    one = tuned.workers[0].cluster
    how = "in buckets while backward runs" if one.overlap else "after the last backward step"
    note = (
        f"A simulation: a ring of {one.rate / 1e9:g} GB/s, {duration(one.latency)} a message; gradients are reduced "
        f"{how}.  scaling: of one worker's images a second.  speed-up: over one baseline GPU ({tuned.compared_with}); "
        "baselines': the same of a cluster of those.  pays to: the smallest batch within 1 % of the most images a "
        "second of that cluster; larger ones stop paying."
    )
    return Table.of(f"A cluster at batch {tuned.optimal_batch} (simulated)", tuned.workers, columns, note)


def tuning_picture(tuned: Tuned) -> Any:
    """X(b) with what matters marked."""
    from refimpl.report.batch_picture import batch_picture

    rates = fitting(tuned.curve)
    marked = [(name, batch, rates[batch]) for name, batch in marked_batches(tuned).items()]
    for known in tuned.accountings.values():
        if found := known.point.images_a_second:
            marked.append((f"b0, {known.name}", known.batch, found))
    return batch_picture("X(b): images a second, and the batches that matter", title(tuned), rates, marked)


# -- for programs ------------------------------------------------------------------------------------------------------


def document(tuned: Tuned) -> dict[str, Any]:
    """Everything; bytes, seconds."""
    known = tuned.accountings.items()
    return {
        "network": tuned.network, "machine": tuned.machine.name, "catalogue": tuned.machine.catalogue,
        "budget_bytes": tuned.budget, "policy": tuned.setup.name, "objective": tuned.objective, "simulated": True,
        "baseline": tuned.compared_with, "baselines": {name: accounting_json(found) for name, found in known},
        "curve": [point_json(one) for one in tuned.curve],
        "trainable_batch": tuned.trainable_batch, "optimal_batch": tuned.optimal_batch, "knee_batch": knee(tuned),
        "images_a_second": tuned.optimal.images_a_second,
        "ratios": {name: tuned.ratio(found) for name, found in known},
        "gains": {name: tuned.gain(found) for name, found in known},
        "liveness_bytes_per_image": tuned.liveness_frees, "swapping_bytes_per_image": tuned.swapping_frees,
        "closed_form": {"b0": tuned.closed_form.without, "optimum": tuned.closed_form.optimum},
        "learning": learning_json(tuned.learning), "cluster": [workers_json(row) for row in tuned.workers],
    }  # fmt: skip


def figures(of: Any, *names: str) -> dict[str, Any]:
    """Some attributes, by name."""
    return {name: getattr(of, name) for name in names}


def accounting_json(found: Accounting) -> dict[str, Any]:
    rate = found.point.images_a_second
    return figures(found, "batch", "bytes_per_image", "fixed_bytes") | {"images_a_second": rate}


def point_json(one: Point) -> dict[str, Any]:
    """A batch that does not fit has no figures."""
    names = ("images_a_second", "seconds", "stall_seconds", "slowdown", "offloaded_bytes", "peak_bytes")
    fits = one.seconds is not None
    return {"batch": one.batch, "fits": fits} | (figures(one, *names) if fits else dict.fromkeys(names))


def learning_json(learning: Learning) -> dict[str, Any]:
    return figures(learning, "global_batch", "rate", "base_rate", "warmup_epochs", "scaling", "iterations_an_epoch")


def workers_json(row: Workers) -> dict[str, Any]:
    cluster, names = row.cluster, ("seconds", "images_a_second", "scaling", "speedup", "baseline_speedup", "pays_up_to")
    return {
        "simulated": True, "workers": cluster.workers, "link_bytes_a_second": cluster.rate,
        "latency_seconds": cluster.latency, "gradient_bytes": row.gradient_bytes,
        "wire_bytes": wire_bytes(row.gradient_bytes, cluster.workers),
        "reduce_seconds": cluster.reduce_seconds(row.gradient_bytes), "overlap": cluster.overlap,
        **figures(row, *names), "learning": learning_json(row.learning),
    }  # fmt: skip

"""`refimpl profile`: every algorithm of every call of a network, or the CPU's kernels for `here`, measured at hand."""

from __future__ import annotations

import argparse

from refimpl.cli import shared_options
from refimpl.cli.parser import DONE, Fail, Parser, writable
from refimpl.cli.terminal import progress, say
from refimpl.machine import cpu_costs
from refimpl.machine.cpu_model import FETCHED, SHARED, with_costs
from refimpl.machine.here import is_busy, rough_cpu
from refimpl.names.networks import build
from refimpl.text import counted

TURNS = 3  #: times that everything is timed
LIMIT = 5.0  #: seconds; what takes longer by itself is left out


def add(parser: Parser) -> None:
    parser.describe(
        "Measure every algorithm of every call of a network on the GPU at hand, or on the CPU without one, and keep "
        "the seconds in a file.  The file is a machine: plan, compare and trace take it anywhere with --machine FILE.  "
        "With --here, measure the CPU's kernels again, from which the machine `here` is made.",
        ["refimpl profile lenet --batch 32 --out lenet.json", "refimpl plan lenet --batch 32 --machine lenet.json",
         "refimpl profile --here"],
    )  # fmt: skip
    shared_options.network(parser, optional=True)
    parser.add_argument("--here", action="store_true", help="the CPU's kernels, for the machine here; no network")
    parser.add_argument("--out", metavar="FILE", help="the profile to write, a JSON file")


def run(options: argparse.Namespace) -> int:
    if options.here:
        return here(options)
    if options.network is None or options.out is None:
        raise Fail("give a NETWORK and --out FILE.json, or --here")
    network = build(options.network, options.batch)
    if not options.out.endswith(".json"):
        raise Fail(f"--out {options.out}: a profile's name ends in .json, so that --machine knows it for one")
    writable("--out", options.out)

    from refimpl.machine.devices import device_at_hand
    from refimpl.machine.measure import different_calls, measure

    device = device_at_hand()
    calls = different_calls(network)
    with progress(f"{network.name} on {device.name}:", len(calls) + 1) as advance:
        advance("compiling")
        found = measure(network, device, TURNS, LIMIT, lambda done, of, name: advance(name))
    found.save(options.out)
    ways = sum(len(choices) for choices in found.choices.values())
    say(
        f"{counted(len(found.calls) + len(found.choices), 'call')}, the convolutions among them in "
        f"{counted(ways, 'way')}, measured on {found.device}: {options.out}"
    )
    say(f"Plan with it: refimpl plan {network.name} --batch {network.batch} --machine {options.out}")
    return DONE


def here(options: argparse.Namespace) -> int:
    """Measure the kernels of the CPU at hand again."""
    if options.network or options.out:
        raise Fail("--here measures the CPU's kernels, whatever the network: leave out NETWORK and --out")
    busy = is_busy()
    with progress("", cpu_costs.STAGES) as advance:
        costs = cpu_costs.measure_and_keep(advance, busy)
    machine = with_costs(rough_cpu(), costs)
    say(
        f"{counted(machine.multiprocessors, 'core')}: {machine.flops / 1e9:.0f} GFLOP/s in matrix products, "
        f"{machine.bandwidth / 1e9:.1f} GB/s read and written by a kernel, {machine.link / 1e9:.1f} GB/s copied to the "
        f"host; {counted(len(costs), 'cost')} kept in "
        f"{cpu_costs.kept_path(busy) or 'no file'}"
    )
    measured = sum(name in costs for name in cpu_costs.MEASURED)
    launch, fetched = costs[SHARED][0], costs[FETCHED][0]
    say(
        f"Measured: {counted(measured, 'kernel')}, a launch ({1e6 * launch:.1f} µs on all threads), and a byte in no "
        f"cache ({1e9 * fetched:.3f} ns). Modelled: the other kernels, each by the measured one most like it."
    )
    if busy:
        say(
            "The machine has other work: these times are too long, and kept for as long as it is busy.  "
            "Measure again on a quiet machine."
        )
    if not cpu_costs.is_calibration_on():
        say("REFIMPL_CALIBRATE=0: the machine here is the rough model nevertheless")
    return DONE

"""`refimpl bench`: the kernels measured here, the planner, training, the emulated GPU, the all-reduce of processes."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import refimpl
from refimpl.cli.parallel import as_rank
from refimpl.cli.parser import DEVICE_FAILED, DONE, Fail, Parser, pick, whole
from refimpl.cli.terminal import progress, show, tell, wrapped

if TYPE_CHECKING:
    from refimpl.backend import Communicator
    from refimpl.studies.bench.written import Report

ROOT = Path(refimpl.__file__).resolve().parent.parent  #: the folder of docs/ and README.md
#: Option → the module beside this one that measures it; it has `ROUNDS` and `run(quick, watch)`.
OTHERS = {
    "planner": "plan_times", "training": "training", "attention": "attention_and_block", "emulated": "emulated_gpu",
}  # fmt: skip


def add(parser: Parser) -> None:
    parser.describe(
        "Measure every kernel family here, beside NumPy and PyTorch (on a GPU: cuBLAS and cuDNN); or how long "
        "planning, verifying and simulating take, and how that grows with a network's depth; or an iteration of "
        "training on the CPU, beside PyTorch's; or attention and a block of GPT-2 there; or the emulated GPU; or the "
        "all-reduce between processes that mpiexec has started.",
        [
            "refimpl bench --quick",
            "refimpl bench --family conv --json",
            "refimpl bench --planner",
            "refimpl bench --training",
            "refimpl bench --attention",
            "refimpl bench --emulated",
            "mpiexec -n 2 refimpl bench --all-reduce tiny-vgg",
        ],
    )  # fmt: skip
    parser.add_argument("--family", help="only this family, as in conv")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer turns: a look in half a minute")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="default: the GPU if there is one")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/ and README.md")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--planner", action="store_true", help="the planner and not the kernels")
    what.add_argument("--training", action="store_true", help="iterations of training and not the kernels")
    what.add_argument("--attention", action="store_true", help="attention and a block of GPT-2 beside PyTorch's")
    what.add_argument("--emulated", action="store_true", help="how fast the emulated GPU is, and not the kernels")
    what.add_argument(
        "--all-reduce", metavar="NETWORK", help="the all-reduce of data-parallel training, between mpiexec's processes"
    )
    parser.add_argument("--batch", type=whole(), default=8, metavar="N", help="for --all-reduce (default: 8)")


def run(options: argparse.Namespace) -> int:
    if options.write and options.quick:
        raise Fail("--write keeps what was measured in full: leave out --quick")
    for name in OTHERS:
        if getattr(options, name):
            if options.family or options.device:
                raise Fail(f"--{name} measures no single kernels: leave out --family and --device")
            return measured(options, name)
    return as_rank(options, all_reduce) if options.all_reduce else kernels(options)


def kernels(options: argparse.Namespace) -> int:
    """Every kernel family, or one."""
    from refimpl.machine.devices import NoDevice, device_at_hand

    try:
        device = device_at_hand(options.device)
    except NoDevice as error:
        raise Fail(str(error), DEVICE_FAILED) from None
    if options.write and options.family:
        raise Fail("--write keeps the whole table: leave out --family")

    from refimpl.studies.bench import kernels as measuring
    from refimpl.studies.bench.cases import FAMILIES, cases

    family = pick(options.family, FAMILIES, "kernel family") if options.family else None
    chosen = cases(device, options.quick, family)
    budget = 0.1 if options.quick else 0.6
    with progress("", len(chosen)) as advance:
        report = measuring.run(device, chosen, budget, options.quick, advance, family in (None, "launch"))
    return shown(options, report, f"{report.seconds:.0f} seconds. ")


def measured(options: argparse.Namespace, name: str) -> int:
    """One of `OTHERS`."""
    from refimpl.backend import DeviceFailed
    from refimpl.studies.bench import pytorch

    if name == "attention" and not pytorch.at_hand():
        raise Fail("--attention measures beside PyTorch, which is not installed here: pip install torch", DEVICE_FAILED)
    measuring = import_module(f"refimpl.studies.bench.{OTHERS[name]}")
    try:
        with progress("", measuring.ROUNDS) as advance:
            report = measuring.run(options.quick, advance)
    except DeviceFailed as error:
        raise Fail(str(error), DEVICE_FAILED) from None
    return shown(options, report)


def shown(options: argparse.Namespace, report: Report, took: str = "") -> int:
    """Print a report as tables and remarks, or as JSON; and write it down where that is wanted."""
    if options.json:
        print(report.json())
    else:
        for table in report.tables():
            show(table.title, table.head, table.rows, table.wraps)
        for line in filter(None, (f"{report.name}. {took}{report.how}", report.disturbed)):
            wrapped(line)
    if options.write:
        for path in report.write(ROOT):
            tell(f"written: {path}")
    return DONE


def all_reduce(options: argparse.Namespace, communicator: Communicator) -> int:
    """The all-reduce beside MPI's own."""
    from refimpl.parallel.communicators import Mpi
    from refimpl.studies.bench import reducing

    if communicator.size < 2 or not isinstance(communicator, Mpi):
        raise Fail(f"one rank has nothing to reduce: mpiexec -n 2 refimpl bench --all-reduce {options.all_reduce}")
    found = reducing.run(communicator, options.all_reduce, options.batch, 3 if options.quick else 12)
    show(found.name, *found.table(), wraps=[""])
    return DONE

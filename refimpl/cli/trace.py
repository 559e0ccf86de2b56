"""`refimpl trace`: one iteration in formats that other tools open."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DONE, Fail, Parser, writable
from refimpl.cli.terminal import say
from refimpl.names.networks import build
from refimpl.planner.heading import heading

#: Format → ending of the file, what it is, where it opens, the module of `refimpl.report` that writes it.
FORMATS = {
    "chrome": (".json", "a Chrome trace", "https://ui.perfetto.dev or chrome://tracing", "chrome_trace"),
    "snapshot": (".pickle", "a PyTorch memory snapshot", "https://pytorch.org/memory_viz", "torch_snapshot"),
    "rmm": (".csv", "an allocation log in RMM's format", "RMM's replay benchmark, or refimpl replay", "rmm_log"),
}


def add(parser: Parser) -> None:
    parser.describe(
        "Write one iteration, simulated, in formats that other tools open: chrome (ui.perfetto.dev), snapshot "
        "(pytorch.org/memory_viz) and rmm (an allocation log).  With --run it is run here, and its times are measured.",
        [
            "refimpl trace vgg16 --batch 64 --out traces",
            "refimpl trace vgg16 --batch 64 --format chrome --out vgg16.json",
            "refimpl trace vgg16 --batch 64 --workers 8 --format chrome --out overlap.json",
            "refimpl trace tiny-resnet --run --out measured.json",
        ],
    )  # fmt: skip
    shared_options.network(parser)
    shared_options.setup(parser)
    shared_options.machine(parser)
    shared_options.budget(parser)
    parser.add_argument("--format", choices=tuple(FORMATS), help="default: by the ending of --out, else all three")
    parser.add_argument("--out", metavar="PATH", default=".", help="a file, or a folder (default: this one)")
    parser.add_argument("--run", action="store_true", dest="measured", help="run it here: see --backend")
    shared_options.backend(parser)
    shared_options.cluster(parser)


def run(options: argparse.Namespace) -> int:
    paths = paths_of(options)
    if options.measured:
        if options.workers > 1:
            raise Fail("--workers is simulated, and --run is not: leave out one of them")
        program = resolve.runnable(options, build(options.network, options.batch))
        with resolve.trainer(program, options) as trainer:
            timeline = trainer.timeline()
    else:
        program = resolve.program(options)
        timeline = program.simulate()
    how = "simulated" if timeline.simulated else "measured"
    if options.measured and options.backend == "emulated":
        how = "run and timed by a model,"  # the timeline says: on h100, emulated
    say(f"One iteration of {heading(program.network, program.machine)}, {how} on {timeline.machine}:")
    resolve.say_share(options, program.network, program.machine)
    for form, path in paths.items():
        _, what, opens, module = FORMATS[form]
        getattr(import_module(f"refimpl.report.{module}"), f"write_{module}")(path, program, timeline)
        say(f"  {path}: {what}; opens in {opens}")
    return DONE


def paths_of(options: argparse.Namespace) -> dict[str, Path]:
    """Format → the file that it is written to.  A folder that is not there yet is made."""
    out = Path(options.out)
    by_ending = [form for form, (ending, *_) in FORMATS.items() if ending == out.suffix]
    forms = [options.format] if options.format else by_ending or list(FORMATS)
    if out.suffix and not out.is_dir():
        if len(forms) > 1:
            raise Fail(f"--out {out} ends like none of the formats; say which with --format, or name a folder")
        return {forms[0]: writable("--out", options.out)}
    out.mkdir(parents=True, exist_ok=True)
    stem = options.network.replace(":", "-")
    return {form: out / f"{stem}{FORMATS[form][0]}" for form in forms}

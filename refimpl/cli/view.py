"""`refimpl view`: a page to look at a program, or at two side by side; or one iteration for other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DONE, Fail, Parser, writable
from refimpl.cli.terminal import say
from refimpl.names.by_name import plan
from refimpl.names.networks import build
from refimpl.planner.heading import heading
from refimpl.report.figures import title

#: Format → ending of the file, what it is, where it opens, the function of `refimpl.report.exports` that writes it.
FORMATS = {
    "chrome": (".json", "a Chrome trace", "https://ui.perfetto.dev or chrome://tracing", "write_chrome_trace"),
    "snapshot": (".pickle", "a PyTorch memory snapshot", "https://pytorch.org/memory_viz", "write_torch_snapshot"),
    "rmm": (".csv", "an allocation log in RMM's format", "RMM's replay benchmark", "write_rmm_log"),
}


def add(parser: Parser) -> None:
    parser.describe(
        "Plan one iteration and write a page to look at it: memory, addresses, streams, the listing with its reasons "
        "and any tensor's life, linked.  The page is one file that opens in any browser, without a network.  With "
        "--against a second program is beside the first, with the differences.  Or write it, simulated, in a format "
        "that another tool opens: chrome (ui.perfetto.dev), snapshot (pytorch.org/memory_viz) or rmm (an allocation "
        "log); with --run it is run here, and its times are measured.  An --out that ends in .png or .svg is one "
        "picture: memory over time, beside that of a GPU that keeps every map, above the streams.",
        [
            "refimpl view vgg16 --batch 64 --policy vdnn-all --budget 6GiB",
            "refimpl view vgg16 --batch 64 --policy vdnn-all --against superneurons --out two.html",
            'refimpl view alexnet --against "baseline liveness=layer-wise"',
            "refimpl view vgg16 --batch 64 --policy vdnn-all --budget 6GiB --out what_happens.png",
            "refimpl view vgg16 --batch 64 --workers 8 --format chrome",
            "refimpl view tiny-resnet --run --out measured.json",
        ],
    )  # fmt: skip
    shared_options.network(parser)
    shared_options.setup(parser)
    shared_options.machine(parser)
    shared_options.budget(parser)
    shared_options.cluster(parser)
    parser.add_argument("--against", metavar="SETUP", help="a second program, of this setup")
    parser.add_argument("--format", choices=("page", *FORMATS), help="default: by the ending of --out, else page")
    parser.add_argument("--out", metavar="FILE", help="default: view.html, of other formats the network's name")
    parser.add_argument("--run", action="store_true", dest="measured", help="run it here, for another tool")
    shared_options.backend(parser)


def run(options: argparse.Namespace) -> int:
    by_ending = {ending: form for form, (ending, *_) in FORMATS.items()}
    form = options.format or by_ending.get(Path(options.out or "").suffix, "page")
    if form != "page":
        return export(options, form)
    if options.measured:
        raise Fail("--run measures for another tool: name it with --format; refimpl run --page writes a measured page")
    if Path(options.out or "").suffix in (".png", ".svg"):
        return picture(options)
    from refimpl.report.page import write_page

    path = writable("--out", options.out or "view.html")
    program = resolve.program(options)
    against = None
    if options.against:
        setup = resolve.setup_named(options, options.against, {})
        against = plan(program.network, setup, resolve.machine(options), options.budget)
        resolve.proved(against)
    write_page(path, program, against=against)
    say(f"{path}: {title(program)}{f' beside {title(against)}' if against else ''}; open it in a browser")
    resolve.say_share(options, program.network, program.machine)
    return DONE


def picture(options: argparse.Namespace) -> int:
    """Memory over time and the streams, in one picture."""
    from refimpl.names.largest_batch import unlimited_baseline
    from refimpl.report import style
    from refimpl.report.what_happens import what_happens_picture

    if options.against:
        raise Fail("--against compares on a page: leave it out, or write a page with --out view.html")
    path = writable("--out", options.out)
    program = resolve.program(options)
    style.save(what_happens_picture(program, unlimited_baseline(program.network, program.machine)), path)
    say(f"{path}: {title(program)}")
    resolve.say_share(options, program.network, program.machine)
    return DONE


def export(options: argparse.Namespace, form: str) -> int:
    """One iteration for another tool, simulated or run."""
    from refimpl.report import exports

    if options.against:
        raise Fail("--against compares on a page: leave out --format")
    ending, what, opens, write = FORMATS[form]
    path = writable("--out", options.out or f"{options.network.replace(':', '-')}{ending}")
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
    getattr(exports, write)(path, program, timeline)
    say(f"{path}: one iteration of {heading(program.network, program.machine)}, {how} on {timeline.machine}")
    say(f"It is {what}, and opens in {opens}.")
    resolve.say_share(options, program.network, program.machine)
    return DONE

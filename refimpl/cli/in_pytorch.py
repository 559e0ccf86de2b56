"""`refimpl torch`: who fits a PyTorch module into a budget, and the lines that carry that out in one's own loop."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from refimpl.cli import resolve, shared_options
from refimpl.cli.compare import (
    PaperGroup,
    fit_to_width,
    row,
    title_of,
    with_effort,
    with_least,
    without_agreement,
)
from refimpl.cli.parser import DOES_NOT_FIT, DONE, Fail, Parser, whole, writable
from refimpl.cli.plan import least
from refimpl.cli.terminal import print_json, progress, say, show_table, tell, wrapped
from refimpl.combined import Combined
from refimpl.files import replace_text
from refimpl.importing import from_torch
from refimpl.importing.sources import module_from_file
from refimpl.machine import Machine, here
from refimpl.names.by_name import budget_bytes
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.presets import PRESETS, parse
from refimpl.network import Network
from refimpl.planner import Program, SetupError
from refimpl.report.comparison import Compared
from refimpl.report.tables import bytes_of, compare_table
from refimpl.report.uncounted import uncounted
from refimpl.text import size

NOT_RUN = "Copies on CUDA (streams, events, pinned memory) were never run on a GPU; docs/in_pytorch.md says what was."


def add(parser: Parser) -> None:
    parser.describe(
        "Plan a PyTorch module as PyTorch itself keeps its maps, under every preset of the papers, and print the lines "
        "that carry one plan out in your own training loop (refimpl.torch.Planned).  The function of the file returns "
        "(module, example); it is called with batch=N, if it takes that.  Exit status: 0 a plan fits, 3 none does.",
        [
            "refimpl torch my_file.py:make --budget 12GiB --machine rtx-3060 --out plan.json",
            "refimpl torch my_file.py:make --batch 64 --budget 0.5 --policy accudnn --out plan.json",
        ],
    )  # fmt: skip
    parser.add_argument("module", metavar="FILE", help="a Python file and its function, as in my_file.py:make")
    parser.add_argument("--batch", type=whole(), metavar="N", help="what the function is called with (default: 32)")
    parser.add_argument(
        "--policy", metavar="SETUP", dest="wanted",
        help='the setup to carry out, as in accudnn or "vdnn-all, join=no" (default: the fastest that fits)',
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="write the plan's decisions, for Planned to read")
    shared_options.setup(parser, preset=False)
    shared_options.machine(parser, default="the GPU at hand, h100 without one")
    shared_options.budget(parser)
    parser.add_argument("--least", action="store_true", help="the least budget that each preset fits in, too")
    parser.add_argument("--no-verify", action="store_false", dest="verify", help="do not prove the programs")
    shared_options.optimiser(parser)
    shared_options.json(parser)
    parser.set_defaults(spread=False)  # as `row` of compare asks


def run(options: argparse.Namespace) -> int:
    if find_spec("torch") is None:
        raise Fail("PyTorch is not installed: pip install torch")
    out = options.out and writable("--out", options.out)
    module, example = module_from_file(options.module, options.batch)
    network = resolve.trained_by(options, from_torch(module, example, keeps="pytorch"))
    machine = resolve.machine(options, "here" if here.gpu_at_hand() else "h100")
    budget = budget_bytes(options.budget, network, machine)
    groups = groups_of(options)
    with progress("planning", len(groups)) as advance:
        found = [row(group, (), network, machine, budget, options, advance) for group in groups]
    programs = [program for _, _, program in found]
    wanted = place_wanted(options)
    place = fastest(programs) if wanted is None else wanted
    program = None if place is None else programs[place]
    name = "" if place is None else groups[place].setups[0].name
    asked = groups if wanted is None else [groups[wanted]]
    why = "" if program else what_would(network, machine, budget, asked)
    lines = lines_of(example, options.out or "plan.json")
    if program and out:
        replace_text(out, json.dumps(program.decisions()) + "\n")
    if options.json:
        print_json(document(name, program, [one for _, one, _ in found], lines, options.out, why))
    else:
        show([one for one, _, _ in found], [one for _, one, _ in found], network, machine, budget, options)
        if program:
            explain(name, program, lines, options.out)
    if why:
        tell(f"{options.parser.prog}: {why}")
    return DONE if program else DOES_NOT_FIT


def groups_of(options: argparse.Namespace) -> list[PaperGroup]:
    """A row for every preset; one for --policy comes before them if it is no preset."""
    texts = [options.wanted] * (options.wanted is not None and options.wanted not in PRESETS) + [*PRESETS]
    groups = []
    for text in texts:
        try:
            setup = resolve.setup_named(options, *parse(text))
        except SetupError as error:
            if text == options.wanted:
                raise
            groups.append(PaperGroup([], refused=((text, error),)))
            continue
        groups.append(PaperGroup([with_effort(setup, options)]))
    return groups


def place_wanted(options: argparse.Namespace) -> int | None:
    """The row of --policy."""
    if options.wanted is None:
        return None
    return [*PRESETS].index(options.wanted) if options.wanted in PRESETS else 0


def fastest(programs: Sequence[Program | None]) -> int | None:
    """The row of the fastest program."""
    able = [(one.planned_seconds, place) for place, one in enumerate(programs) if one]
    return min(able)[1] if able else None


def what_would(network: Network, machine: Machine, budget: int, groups: Sequence[PaperGroup]) -> str:
    """Why there is nothing to carry out, and the least budget with which there is.

    Args:
        network, machine, budget: what was planned.
        groups: that were planned: all rows, or that of --policy.
    """
    setups = [setup for group in groups for setup in group.setups if not isinstance(setup, Combined)]
    enough = [(nbytes, setup.name) for setup in setups if (nbytes := least(network, setup, machine))]
    alone = len(groups) == 1
    why = f"{groups[0].setups[0].name} does not fit" if alone else "no preset fits"
    if not enough:
        return f"within {size(budget)} {why}: take {'another policy' if alone else 'a smaller batch'}"
    nbytes, name = min(enough)
    return f"within {size(budget)} {why}: {name} fits in {size(nbytes)}"


def lines_of(example: Any, path: str) -> list[str]:
    """What to paste: the loop around them is as it was."""
    stars = "**" if isinstance(example, Mapping) else "*" * (not hasattr(example, "shape") and several_tensors(example))
    return [
        "from refimpl.torch import Planned",
        f"planned = Planned(module, {json.dumps(path)})  # the module that was planned, on its device",
        f"loss = loss_of(planned({stars}inputs), labels)  # planned where module was; loss_of is your own loss",
        "loss.backward()  # and the optimiser's step as before",
        "print(planned.report())  # what was held and moved, beside the plan",
    ]


def several_tensors(example: Any) -> bool:
    """Whether it is no shape, but what the module is called with."""
    return any(hasattr(one, "shape") for one in example)


def document(
    name: str,
    program: Program | None,
    plans: Sequence[Mapping[str, Any]],
    lines: Sequence[str],
    out: str | None,
    why: str,
) -> dict[str, Any]:
    """What --json prints."""
    found: dict[str, Any] = {"chosen": name if program else None, "presets": plans}
    if program is None:
        return found | {"why": why}
    items = [one._asdict() for one in uncounted(program)]
    return found | {"lines": lines, "out": out, "predicted": program.decisions()["predicted"], "not_counted": items}


def show(
    rows: Sequence[Compared],
    documents: Sequence[Mapping[str, Any]],
    network: Network,
    machine: Machine,
    budget: int,
    options: argparse.Namespace,
) -> None:
    """The table of all presets."""
    baseline = unlimited_baseline(network, machine).planned_seconds
    table = compare_table(title_of(network, machine, budget), rows, baseline)
    if options.least:
        table = with_least(table, [one.get("least_budget_bytes") for one in documents])
    show_table(fit_to_width(without_agreement(table)))
    resolve.say_share(options, network, machine)


def explain(name: str, program: Program, lines: Sequence[str], out: str | None) -> None:
    """The chosen plan: what it does, what to paste, what it does not know."""
    decisions = program.decisions()
    say("")
    wrapped(f"Chosen: {name}.")
    if not decisions["predicted"]["out"] and not any(one["recomputed"] for one in decisions["maps"].values()):
        wrapped("It keeps every map, as PyTorch does: your loop needs no plan here.")
    say("In your own loop:")
    say("")
    for line in lines:
        say(f"    {line}")
    say("")
    say(f"Decisions: {out}" if out else "Not written: --out plan.json writes the decisions.")
    items = [f"{one.name} ({bytes_of(one)})" for one in uncounted(program)]
    wrapped(f"Not counted: {'; '.join(items)}.")
    wrapped(NOT_RUN)

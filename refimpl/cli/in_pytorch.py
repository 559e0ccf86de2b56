"""`refimpl torch`: who fits a PyTorch module into a budget, and the lines that carry that out in one's own loop."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from refimpl.cli import resolve, shared_options
from refimpl.cli.compare import PaperGroup, fit_to_width, row, title_of, with_effort, without_agreement
from refimpl.cli.parser import DOES_NOT_FIT, DONE, Fail, Parser, whole, writable
from refimpl.cli.plan import least
from refimpl.cli.terminal import print_json, progress, say, show_table, tell, waiting, wrapped
from refimpl.combined import Combined
from refimpl.files import replace_text
from refimpl.importing.any_batch import Batches
from refimpl.importing.own_code import executed
from refimpl.importing.sources import FILE, module_from_file, own_batch
from refimpl.machine import Machine, here
from refimpl.names import by_module
from refimpl.names.by_name import budget_bytes
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.presets import PRESETS, parse
from refimpl.network import Network, NetworkError
from refimpl.planner import Program, SetupError
from refimpl.report.comparison import Compared
from refimpl.report.tables import bytes_of, compare_table
from refimpl.report.uncounted import uncounted
from refimpl.report.will_it_fit import CONTEXT, Need, budget_of, has_one_memory, moves, need, parts, usable_bytes
from refimpl.text import size

#: What users of PyTorch have: a checkpoint around each block between two maps that everything passes through.
CHECKPOINT = "checkpoint-per-block"
LABELS = {"baseline": "your module", CHECKPOINT: "checkpoint per block"}
NOT_RUN = "Copies on CUDA (streams, events, pinned memory) were never run on a GPU; docs/in_pytorch.md says what was."


def add(parser: Parser) -> None:
    parser.describe(
        "Whether training a PyTorch module fits a GPU, and what to do if not: a plan under every preset of the papers, "
        "of the maps as PyTorch itself keeps them, and the lines that carry one plan out in your own training loop "
        "(refimpl.torch.Planned).  The function of the file returns (module, example); it is called with batch=N, if "
        "it takes that.  Exit status: 0 it fits, or a plan does; 3 none does.",
        [
            "refimpl torch my_file.py:make --machine rtx-3060 --out plan.json",
            "refimpl torch my_file.py:make --batch 64 --machine rtx-4090 --autocast bfloat16 --loss loss_of",
            "refimpl torch my_file.py:make --budget 0.5 --policy accudnn --optimiser sgd --out plan.json",
        ],
    )  # fmt: skip
    parser.add_argument("module", metavar="FILE", help="a Python file and its function, as in my_file.py:make")
    parser.add_argument(
        "--batch", type=whole(), metavar="N", help="what the function is called with (default: its own, else 32)"
    )  # fmt: skip
    parser.add_argument(
        "--policy", metavar="SETUP", dest="wanted",
        help='the setup to carry out: accudnn or "vdnn-all, join=no", or checkpoint-per-block (default: the fastest '
        "that fits)",
    )  # fmt: skip
    parser.add_argument(
        "--autocast", choices=("bfloat16", "float16"), help="forward runs under torch.autocast (default: it does not)"
    )
    parser.add_argument(
        "--loss", metavar="NAME",
        help="count what it takes: a function of the file, of what the module returns, as in loss_of; or softmax, "
        "pixel_softmax, mean_squared_error or binary_cross_entropy (default: the loss is not counted)",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="write the plan's decisions, for Planned to read")
    shared_options.setup(parser, preset=False)
    shared_options.machine(parser, default="the GPU at hand, h100 without one")
    parser.add_argument(
        "--budget", metavar="SIZE",
        help="as in 12GiB, 512MiB, or 0.4 of what the baseline needs (default: the machine's memory, without what "
        "CUDA's context takes and with room for what is not counted)",
    )  # fmt: skip
    parser.add_argument("--least", action="store_true", help="the least budget that each preset fits in, too")
    parser.add_argument("--no-verify", action="store_false", dest="verify", help="do not prove the programs")
    shared_options.optimiser(parser, in_pytorch=True)
    shared_options.json(parser)
    parser.set_defaults(spread=False)  # as `row` of compare asks


def run(options: argparse.Namespace) -> int:
    if find_spec("torch") is None:
        raise Fail("PyTorch is not installed: pip install 'refimpl[torch]'")
    out = options.out and writable("--out", options.out)
    options.batch = options.batch or own_batch(options.module)
    module, example = module_from_file(options.module, options.batch)
    describe = partial(described, options, loss_named(options))
    network = describe(module, example, options.autocast)
    machine = resolve.machine(options, "here" if here.gpu_at_hand() else "h100")
    plain = unlimited_baseline(network, machine)
    if options.budget is None:
        budget, answer = budget_of(plain), Answer(need(plain), usable_bytes(machine), machine.name)
    else:
        budget = budget_bytes(options.budget, network, machine)
        answer = Answer(need(plain), budget)
    names = names_of(options, network)
    groups = groups_of(options, names)
    with progress("planning", len(groups)) as advance:
        found = [row(group, (), network, machine, budget, options, advance) for group in groups]
    programs = [program if options.wanted or not offloads_in_vain(program) else None for _, _, program in found]
    rows = [replace(one, name=LABELS.get(name, one.name)) for name, (one, _, _) in zip(names, found, strict=True)]
    documents = [one | {"setup": name} for name, (_, one, _) in zip(names, found, strict=True)]
    wanted = None if options.wanted is None else names.index(options.wanted)
    needs = [need(one) if one else None for one in programs]
    if wanted is None and answer.fits != "yes":
        sure = [one if its and its.most <= answer.room else None for one, its in zip(programs, needs, strict=True)]
        place = fastest(programs if not answer.machine or not any(sure) else sure)
    else:
        place = wanted or 0
    program = None if place is None else programs[place]
    name = "" if place is None else names[place]
    asked = {one: group for one, group in zip(names, groups, strict=True) if options.wanted in (None, one)}
    why = "" if program else what_would(network, machine, budget, asked)
    if answer.fits != "yes":
        answer.do += policies(place, programs, needs, names, plain)
        answer.do += others(options, describe, machine, answer, network) if wanted is None else []
    lines = lines_of(example, options.out or "plan.json")
    if program and out:
        replace_text(out, json.dumps(program.decisions()) + "\n")
    assumed = assumptions(options, plain)
    if options.json:
        document = document_of(name, program, documents, lines, options.out, why)
        print_json({"answer": answer.document() | {"parts": parts(plain)}, "assumed": assumed} | document)
    else:
        wrapped(f"{answer}.")
        wrapped(f"Plain PyTorch: {', '.join(f'{what} {size(nbytes)}' for what, nbytes in parts(plain).items())}.")
        say("")
        show(rows, network, machine, budget, options, assumed)
        if program:
            explain(name, program, lines, options)
    if why:
        tell(f"{options.parser.prog}: {why}")
    return DONE if program else DOES_NOT_FIT


# -- what is planned ---------------------------------------------------------------------------------------------------


def loss_named(options: argparse.Namespace) -> Callable[[Any], Any] | None:
    """The function of --loss: one of the user's file, or one of ours."""
    if options.loss is None:
        return None
    import torch

    from refimpl.importing.any_module import named_loss

    found = FILE.fullmatch(options.module.strip())
    assert found is not None  # the module is made
    function = vars(executed(found["path"], os.stat(found["path"]).st_mtime_ns)).get(options.loss)
    if callable(function):
        return function  # type: ignore[no-any-return]
    try:
        return named_loss(torch, options.loss)
    except NetworkError as error:
        raise NetworkError(f"{found['path']} has no function {options.loss!r}, and {error}") from None


def described(
    options: argparse.Namespace, loss: Callable[[Any], Any] | None, module: Any, example: Any, autocast: str | None
) -> Network:
    """The module as PyTorch trains it, by the optimiser that was named."""
    learner, network = options.optimiser, by_module.described(module, example, autocast, loss)
    return network.trained_by(by_module.OPTIMISERS[rule(options)][0], learner.clip, learner.decay_on, options.freeze)


def rule(options: argparse.Namespace) -> str:
    """The optimiser as `refimpl.torch.plan` names it."""
    learner = options.optimiser
    return f"{learner.name}:momentum=0" if learner.numbers.get("momentum") == 0 else str(learner.name)


def assumptions(options: argparse.Namespace, plain: Program) -> dict[str, str | None]:
    """What the plans assume of the user's loop."""
    types = sorted({tensor.dtype for tensor in plain.network.resident if tensor.kind == "weight"})
    own = "its own loss" if all(one.name != "the loss" for one in uncounted(plain)) else None
    return {
        "optimiser": by_module.OPTIMISERS[rule(options)][1], "dtype": " and ".join(types),
        "autocast": options.autocast, "loss": options.loss or own,
    }  # fmt: skip


# -- the answer --------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """Whether the module fits as it is, and what to do where it may not."""

    need: Need
    room: int  #: bytes
    machine: str = ""  #: of whose memory that can be used; empty: it is the budget that was given
    do: list[dict[str, Any]] = field(default_factory=list)  #: each one with the bytes that it takes

    @property
    def fits(self) -> str:
        """yes, maybe or no."""
        return "yes" if self.need.most <= self.room else "maybe" if self.need.predicted <= self.room else "no"

    def __str__(self) -> str:
        says = {"yes": "fits", "maybe": "may fit", "no": "does not fit"}[self.fits]
        says += f": {self.need} of {size(self.room)} {f'usable on {self.machine}' if self.machine else 'budget'}"
        if self.fits == "yes":
            return f"{says}; you need no plan"
        first = "to be sure" if self.fits == "maybe" else "do"
        return f"{says}; {first}: {'; or '.join(map(self._words, self.do))}" if self.do else says

    @staticmethod
    def _words(one: Mapping[str, Any]) -> str:
        if "policy" in one:
            return f"--policy {shlex.quote(one['policy'])} ({one['need']}, {one['slow_down']:.2f} × the time)"
        return f"--batch {one['batch']}" if "batch" in one else f"--autocast {one['autocast']}: {one['need']}"

    def document(self) -> dict[str, Any]:
        """For --json."""
        do = [one | {"need": one["need"]._asdict()} for one in self.do]
        return {
            "sentence": str(self), "fits": self.fits, "need": self.need._asdict(), "room_bytes": self.room,
            "room": "usable" if self.machine else "budget", "do": do,
        }  # fmt: skip


def policies(
    chosen: int | None,
    programs: Sequence[Program | None],
    needs: Sequence[Need | None],
    names: Sequence[str],
    plain: Program,
) -> list[dict[str, Any]]:
    """The policy to take: that which was chosen, or the fastest, if it holds less than the module as it is."""
    moving = [one if one and moves(one) else None for one in programs]
    place = chosen if chosen is not None and moving[chosen] else fastest(moving)
    if place is None or (program := moving[place]) is None:
        return []
    slow_down = program.planned_seconds / plain.planned_seconds
    return [{"policy": names[place], "need": needs[place], "slow_down": slow_down}]


def others(
    options: argparse.Namespace,
    describe: Callable[[Any, Any, str | None], Network],
    machine: Machine,
    answer: Answer,
    network: Network,
) -> list[dict[str, Any]]:
    """What fits without a plan: a smaller batch, or autocast."""
    found: list[dict[str, Any]] = []

    def build(batch: int | None) -> Network:
        return describe(*module_from_file(options.module, batch), options.autocast)

    with suppress(NetworkError), waiting("looking for a batch that fits"):  # the function takes none
        batches = Batches(build)
        batches.built[network.batch] = network
        fitting, too_large = 0, options.batch or 1
        while too_large - fitting > 1:
            batch = (fitting + too_large) // 2
            if (taken := need(unlimited_baseline(batches(batch), machine))).most <= answer.room:
                fitting, found = batch, [{"batch": batch, "need": taken}]
            else:
                too_large = batch
    if options.autocast is None:
        with suppress(NetworkError), waiting("looking what autocast takes"):
            made = module_from_file(options.module, options.batch)
            taken = need(unlimited_baseline(describe(*made, "bfloat16"), machine))
            found += [{"autocast": "bfloat16", "need": taken}] * (taken.predicted <= answer.room)
    return found


# -- the policies ------------------------------------------------------------------------------------------------------


def names_of(options: argparse.Namespace, network: Network) -> list[str]:
    """The table's rows: --policy, if that is another, the presets, and what `torch.utils.checkpoint` does."""
    from refimpl.studies.transformers.yardsticks import blocks

    known = [*PRESETS, *[CHECKPOINT] * bool(blocks(network))]
    return [options.wanted] * (options.wanted not in (None, *known)) + known


def groups_of(options: argparse.Namespace, names: Sequence[str]) -> list[PaperGroup]:
    """The setup of each row."""
    from refimpl.studies.transformers.yardsticks import YARDSTICKS

    groups = []
    for name in names:
        try:
            setup = resolve.setup_named(options, *parse(YARDSTICKS["per block"] if name == CHECKPOINT else name))
        except SetupError as error:
            if name == options.wanted:
                raise
            groups.append(PaperGroup([], refused=((name, error),)))
            continue
        groups.append(PaperGroup([with_effort(setup, options)]))
    return groups


def offloads_in_vain(program: Program | None) -> bool:
    """Whether a program offloads to the memory that it takes from."""
    return bool(program and has_one_memory(program.machine) and program.decisions()["predicted"]["out"])


def fastest(programs: Sequence[Program | None]) -> int | None:
    """The row of the fastest program."""
    able = [(one.planned_seconds, place) for place, one in enumerate(programs) if one]
    return min(able)[1] if able else None


def what_would(network: Network, machine: Machine, budget: int, groups: Mapping[str, PaperGroup]) -> str:
    """Why there is nothing to carry out, and the least budget with which there is.

    Args:
        network, machine, budget: what was planned.
        groups: that were planned, by their names: all rows, or that of --policy.
    """
    setups = [(name, one) for name, group in groups.items() for one in group.setups if not isinstance(one, Combined)]
    enough = [(nbytes, name) for name, setup in setups if (nbytes := least(network, setup, machine))]
    alone = len(groups) == 1
    why = f"{next(iter(groups))} does not fit" if alone else "no preset fits"
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


def document_of(
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
    network: Network,
    machine: Machine,
    budget: int,
    options: argparse.Namespace,
    assumed: Mapping[str, str | None],
) -> None:
    """The table of all presets."""
    baseline = unlimited_baseline(network, machine).planned_seconds
    words = [assumed["optimiser"], assumed["dtype"], assumed["autocast"] and f"autocast {assumed['autocast']}"]
    words.append(f"with {assumed['loss']}" if assumed["loss"] else "loss not counted")
    table = compare_table(title_of(network, machine, budget, [", ".join(filter(None, words))]), rows, baseline)
    show_table(fit_to_width(without_agreement(table)))
    resolve.say_share(options, network, machine)


def explain(name: str, program: Program, lines: Sequence[str], options: argparse.Namespace) -> None:
    """The chosen plan: what it does, what to paste, what it does not know."""
    say("")
    wrapped(f"Chosen: {name}.")
    if not (moving := moves(program)):
        wrapped("It keeps every map, as PyTorch does: your loop needs no plan here.")
    if moving or options.wanted:
        say("In your own loop:")
        say("")
        for line in lines:
            say(f"    {line}")
        say("")
    say(f"Decisions: {options.out}" if options.out else "Not written: --out plan.json writes the decisions.")
    items = [f"{one.name} ({bytes_of(one)})" for one in uncounted(program)]
    room = usable_bytes(program.machine) - program.budget
    left = "" if options.budget else f"  The budget leaves {size(room)} for these, and {size(CONTEXT)} for the context."
    wrapped(f"Not counted: {'; '.join(items)}.{left}")
    wrapped(NOT_RUN)

"""The command's reference, made from its argument parser, and the tables of networks, machines, slots and presets."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Iterator

from refimpl.report.markdown import markdown_table

# -- the command -------------------------------------------------------------------------------------------------------

COMMAND = """\
# Command reference

This page is made from the command's own help: `refimpl COMMAND --help` says the same. Rules of every command: with
`--json` one JSON document goes to standard output and nothing else; progress goes to standard error, and only to a
terminal; tables fit 100 columns; an error is one line that says what to do, with the closest valid name for a
misspelt one.

| exit status | meaning |
| --- | --- |
| 0 | done |
| 1 | the command ran, and a check failed: a program is not safe, or a target is missed |
| 2 | the command is wrong: an unknown name or option, or a file that cannot be read or written |
| 3 | it does not fit the budget |
| 4 | the device failed, or there is none |
| 130 | interrupted |

"""


def command_page(parser: argparse.ArgumentParser) -> str:
    """Every command of the parser: its purpose, its usage, its arguments, its examples."""
    os.environ["COLUMNS"] = "100"  # argparse breaks its lines by it
    return COMMAND + "\n".join(_command(parser, 2))


def _command(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """Depth first; a command that only groups others has no arguments of its own."""
    for name, one in _subcommands(parser):
        yield f"{'#' * level} {name}\n"
        yield f"{quoted(one.description or '')}\n"
        yield f"```text\n{one.format_usage().rstrip()}\n```\n"
        rows = list(_arguments(one))
        if rows:
            yield markdown_table(["argument", "meaning"], rows) + "\n"
        if one.epilog:
            yield f"```text\n{one.epilog}\n```\n"
        yield from _command(one, level + 1)


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            shown = {choice.dest for choice in action._choices_actions}
            yield from ((one.prog, one) for name, one in action.choices.items() if name in shown or " " in name)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
        if isinstance(value, tuple):
            value = " ".join(value)
        if not value and action.nargs != 0:
            value = action.dest.upper()
        name = ", ".join(action.option_strings) or str(value)
        shown = f"`{name} {value}`" if action.option_strings and value else f"`{name}`"
        yield [shown, _filled(action, parser)]


def _filled(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return quoted(re.sub(r"\s+", " ", (action.help or "") % {**vars(action), "prog": parser.prog}))


def quoted(text: str) -> str:
    """Options within a text as code, so that two hyphens stay two."""
    return re.sub(r"(?<![\w`-])(--[\w-]+)", r"`\1`", text)


# -- tables ------------------------------------------------------------------------------------------------------------


def size(nbytes: float) -> str:
    from refimpl.text import size as of_bytes

    return of_bytes(int(nbytes))


def rounded(number: float) -> str:
    """Whole from ten on."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2f}"


def networks_table() -> str:
    """The networks that have a name, each built for its default batch."""
    from refimpl.names.networks import FAMILIES, PLAIN
    from refimpl.network.accounting import network_wide_bytes
    from refimpl.network.conventions import SUFFIXES

    rows = []
    for name, recipe in PLAIN.items():
        network = recipe.make(batch=recipe.batch)
        rows.append([
            f"`{name}`", recipe.about, str(len(network.layers)), f"{network.parameter_count / 1e6:.3g}",
            str(recipe.batch), rounded(network.flops / 1e9), size(network_wide_bytes(network)),
        ])  # fmt: skip
    plain = {name: recipe for name, recipe in FAMILIES.items() if not name.endswith(tuple(SUFFIXES))}
    rows += [[f"`{name}`", recipe.about, "", "", str(recipe.batch), "", ""] for name, recipe in plain.items()]
    head = ["name", "what it is", "layers", "million parameters", "batch", "GFLOP an iteration", "network-wide"]
    return markdown_table(head, rows) + "\n"


def layers_table() -> str:
    """The methods of `Builder` that add a layer."""
    from refimpl.network.later_layers import LAYERS, Builder

    rows = []
    for name in LAYERS:
        method = getattr(Builder, name)
        given = [
            one for one in inspect.signature(method).parameters.values() if one.name not in ("self", "name", "after")
        ]
        needed = [str(one).partition(":")[0] for one in given if one.default is one.empty]
        options = ", ".join(f"`{one.name}`" for one in given if one.default is not one.empty)
        rows.append([f"`{name}({', '.join(needed)})`", options, inspect.getdoc(method).partition("\n\n")[0]])
    return markdown_table(["method", "options", "what it adds"], rows) + "\n"


def operators_table() -> str:
    """The operators of one input that ONNX and PyTorch have alike."""
    from refimpl.importing.graph import OF_ONE_INPUT

    rows = [[f"`{kind}()`", f"`{kind}`", f"`{onnx}`"] for onnx, kind in OF_ONE_INPUT.items()]
    return markdown_table(["layer", "PyTorch", "ONNX"], rows) + "\n"


def machines_table() -> str:
    """The machines that have a name, and where their figures come from."""
    from refimpl.cli.lists import MACHINES_HEAD, SOURCES_HEAD, machine_rows, source_rows
    from refimpl.names.machines import summary

    found = summary(with_here=False)
    figures, sources = (
        [[f"`{name}`", *row] for name, *row in rows] for rows in (machine_rows(found), source_rows(found))
    )
    return f"{markdown_table(MACHINES_HEAD, figures)}\n\n{markdown_table(SOURCES_HEAD, sources)}\n"


def modules_table(slot: str) -> str:
    """The modules of one slot."""
    from refimpl.names.modules import MODULES

    rows = []
    for name, module in MODULES[slot].items():
        needs, offers = (", ".join(sorted(getattr(module, what, ()))) for what in ("needs", "offers"))
        place = type(module).__module__.replace(".", "/") + ".py"
        rows.append([f"`{name}`", module.summary, needs, offers, f"`{type(module).__name__}` in `{place}`"])
    head = ["module", "what it does", "needs", "offers", "where"]
    if not any(row[2] or row[3] for row in rows):
        head, rows = [*head[:2], head[4]], [[*row[:2], row[4]] for row in rows]
    return markdown_table(head, rows) + "\n"


QUESTIONS = {
    "recompute": "which maps are dropped, and how is a dropped one rebuilt",
    "offload": "which maps are offloaded, and at which step",
    "liveness": "after which step is a tensor released",
    "prefetch": "which maps are copied in while a step runs",
    "cache": "what is evicted when an allocation fails",
    "algorithms": "which algorithm does each convolution use, hence which workspace",
    "allocator": "where does a block of bytes go",
    "pinned": "where does an offloaded map live on the host",
}


def slots_table() -> str:
    """Every slot, its question, and its modules."""
    from refimpl.names.modules import MODULES

    rows = [[f"`{slot}`", QUESTIONS[slot], ", ".join(f"`{name}`" for name in found)] for slot, found in MODULES.items()]
    return markdown_table(["slot", "its question", "modules"], rows) + "\n"


def presets_table() -> str:
    """The presets, slot by slot."""
    from refimpl.names.presets import PRESETS
    from refimpl.planner import SLOTS

    rows = [[f"`{name}`", p.about, *(p.setup.slots[slot] for slot in SLOTS)] for name, p in PRESETS.items()]
    return markdown_table(["preset", "what it does", *SLOTS], rows) + "\n"


def json_table() -> str:
    """The meaning of every field of `plan --json`."""
    from refimpl.report.json import FIELDS

    return markdown_table(["field", "meaning"], [[f"`{name}`", text] for name, text in FIELDS.items()]) + "\n"


def quantities_table() -> str:
    """The figures of a machine that a file may give."""
    from refimpl.machine.own_machine import QUANTITIES

    rows = [[f"`{name}`", f"`{one.example}`", one.about] for name, one in QUANTITIES.items()]
    return markdown_table(["figure", "as in", "what it is"], rows) + "\n"


def fields_table() -> str:
    """The fields of a study's row."""
    from refimpl.studies.grid.rows import FIELDS

    return markdown_table(["field", "what it is"], [[f"`{name}`", text] for name, text in FIELDS.items()]) + "\n"

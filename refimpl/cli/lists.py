"""`refimpl list`: the networks, machines, presets, modules and kernels there are."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import asdict
from typing import Any

from refimpl.cli.parser import DONE, Fail, Parser, pick
from refimpl.cli.terminal import print_json, say, show, wrapped
from refimpl.machine import CATALOGUES, MACHINES
from refimpl.machine.model import FIGURES
from refimpl.machine.own_machine import figure_rows
from refimpl.names.machines import listed, summary
from refimpl.names.modules import ABOUT_SWITCHES, MODULES, SWITCHES, switches
from refimpl.names.networks import FAMILIES, NETWORKS, PLAIN
from refimpl.names.presets import NEIGHBOURS, PRESETS
from refimpl.network import lean
from refimpl.network.conventions import SUFFIXES
from refimpl.planner import Setup
from refimpl.report.markdown import markdown_table
from refimpl.slots.module_text import parameters, text_of
from refimpl.text import counted, size

MACHINES_HEAD = ["name", "memory", "TFLOP/s", "GB/s", "link GB/s", "SMs", "catalogue"]
FIGURES_HEAD = ["figure", "value", "how", "source"]
SOURCES_HEAD = ["name", "figures", "how", "source"]
VALUE_WIDTH = 54  #: characters of a parameter with its value on one line


def add(parser: Parser) -> None:
    parser.describe(
       "Show what there is; without a THING, everything by name.",
        ["refimpl list", "refimpl list modules", "refimpl list kernels --family conv"],
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document")
    things = parser.add_subparsers(dest="thing", metavar="THING", parser_class=Parser)
    for name, show_all, description in (
        ("networks", networks, "The networks that have a name."),
        ("machines", machines, "The models of GPUs that a plan can be made for."),
        ("presets", presets, "Named setups: what one paper does."),
        ("modules", modules, "The modules that can fill each slot of a setup: --set slot=module."),
        ("kernels", kernels, "Every kernel, family by family."),
    ):
        one = things.add_parser(name, help=f"every one of the {name}")
        one.describe(description)
        one.set_defaults(run=show_all, parser=one)
        form = one.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="one JSON document", default=argparse.SUPPRESS)
        if name == "machines":
            one.add_argument("machine", metavar="NAME", nargs="*", help="only these: names, or files (default: all)")
            one.add_argument("--sources", action="store_true", help="a line for each figure, and where it is from")
        if name == "kernels":
            form.add_argument("--markdown", action="store_true", help="a Markdown table")
            one.add_argument("--family", help="only this family, as in gemm")
            one.add_argument("--machine-code", action="store_true", help="registers and shared memory on three GPUs")


def run(options: argparse.Namespace) -> int:
    """Every name, without numba: the kernels are only counted by `list kernels`."""
    if options.json:
        print_json({
            "networks": [*PLAIN, *FAMILIES], "machines": [*MACHINES, "here"], "catalogues": [*CATALOGUES],
            "presets": [*PRESETS], "backends": ["cpu", "cuda", "emulated"],
            "modules": {slot: [*found] for slot, found in MODULES.items()},
        })  # fmt: skip
        return DONE
    plain = [*PLAIN, *(name for name in FAMILIES if not name.endswith(tuple(SUFFIXES)))]
    show(
        "what there is", ["", "names"],
        [
            ["networks", f"{', '.join(plain)}; each also with {' or '.join(SUFFIXES)} after its name"],
            ["machines", f"{', '.join(MACHINES)}, here, or the file of a profile or of your own machine"],
            ["catalogues", ", ".join(CATALOGUES)],
            ["presets", ", ".join(PRESETS)],
            ["neighbours", ", ".join(NEIGHBOURS)],
            ["backends", "cpu, cuda (on a GPU), emulated (the same on an emulated GPU, whose times are no GPU's)"],
            *([f"--set {slot}=", ", ".join(found)] for slot, found in (MODULES | SWITCHES).items()),
        ],
        wraps=["names"],
    )  # fmt: skip
    say("More with: refimpl list networks | machines | presets | modules | kernels")
    return DONE


def networks(options: argparse.Namespace) -> int:
    found = NETWORKS | FAMILIES
    if options.json:
        print_json([{"name": name, "batch": one.batch, "about": one.about} for name, one in found.items()])
        return DONE
    plain = {name: one for name, one in found.items() if not name.endswith(tuple(SUFFIXES))}
    rows = [[name, str(one.batch), one.about] for name, one in plain.items()]
    show("networks", ["name", "batch", "what it is"], rows, wraps=["what it is"])
    wrapped("NAME:superneurons: as SuperNeurons built it, with fork layers and a map of its own for every ReLU.")
    wrapped("NAME:vdnnpp: as vDNN++'s public code has it, with fused ReLUs and weights' gradients in the pool.")
    for word in lean.WORDS:
        wrapped(f"Any of these, then :{word}: {lean.module(word).ABOUT}.")
    wrapped(f"Any of these, then :{lean.ALL}: all of these words that the network can have.")
    say("batch: images where --batch does not say otherwise.")
    return DONE


def machines(options: argparse.Namespace) -> int:
    if options.sources and not options.json:
        for one in listed(options.machine):
            show(one.name, FIGURES_HEAD, figure_rows(one), wraps=FIGURES_HEAD[1:])
        return DONE
    found = summary(names=options.machine)
    if options.json:
        print_json(found)
        return DONE
    show("machines", MACHINES_HEAD, machine_rows(found))
    show("where their figures come from", SOURCES_HEAD, grouped(source_rows(found)), wraps=["figures", "source"])
    wrapped("efficiencies: the shares of the peaks that kernels reach (--json).  OWNER/NAME#NUMBER: on GitHub.")
    say("A profile's file is a machine too: refimpl profile NETWORK --out FILE, then --machine FILE.")
    say('So is a file with the figures of a card of yours, as in like = "rtx-4090": docs/machines.md')
    return DONE


def grouped(rows: list[list[str]]) -> list[list[str]]:
    """The rows without a first cell that repeats the one above."""
    above = [[""], *rows]
    return [["" if row[0] == before[0] else row[0], *row[1:]] for before, row in zip(above, rows, strict=False)]


def machine_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    """A row a machine: its figures."""
    return [
        [
            one["name"], size(one["memory_bytes"]), f"{one['flops'] / 1e12:.3g}", f"{one['bandwidth'] / 1e9:.0f}",
            f"{one['link'] / 1e9:.3g}", str(one["multiprocessors"]), one["catalogue"],
        ]
        for one in found
    ]  # fmt: skip


def source_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    """A row a source: the machine's name, the figures, and where they come from."""
    return [
        [one["name"], ", ".join(FIGURES.get(field, field) for field in source["of"]), source["how"], source["where"]]
        for one in found
        for source in one["sources"]
    ]


def presets(options: argparse.Namespace) -> int:
    if options.json:
        print_json([
            {"name": name, "about": preset.about, "slots": preset.setup.slots, "beside": switches(preset.setup)}
            for name, preset in PRESETS.items()
        ])  # fmt: skip
        return DONE
    rows = [[name, preset.about] for name, preset in PRESETS.items()]
    show("presets", ["name", "what it does"], rows, wraps=["what it does"])
    rows = [
        [name, ", ".join(f"{slot}={held}" for slot, held in filled_slots(preset.setup).items())]
        for name, preset in PRESETS.items()
    ]
    show("their modules, where a slot is not none", ["name", "slots"], rows, wraps=["slots"])
    rows = [[name, one.about] for name, one in NEIGHBOURS.items()]
    title = "neighbours: what others do, and one reading, by the same options"
    show(title, ["name", "what it does"], rows, wraps=["what it does"])
    say("--set slot=module exchanges any of them: refimpl list modules")
    say("A setup of your own, in ./my_modules.py or installed: --policy my_modules:MINE")
    return DONE


def filled_slots(made: Setup) -> dict[str, str]:
    """A setup in words: its modules, where a slot is not none, and whether its streams join."""
    beside = {name: value for name, value in switches(made).items() if value == "yes"}
    return {slot: module for slot, module in made.slots.items() if module != "none"} | beside


def folded(value: str) -> str:
    """A parameter and its value; several joined by + are on several lines where they are many."""
    lines = textwrap.wrap(value.replace("+", "+ "), VALUE_WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(line.replace("+ ", "+") for line in lines)


def modules(options: argparse.Namespace) -> int:
    every = [(slot, name, module) for slot, found in MODULES.items() for name, module in found.items()]
    if options.json:
        print_json([
            {"slot": slot, "module": name, "about": module.summary, "parameters": parameters(module)}
            for slot, name, module in every
        ])  # fmt: skip
        return DONE
    head = ["slot", "module", "what it does; its parameters"]
    rows = []
    for slot, name, module in every:
        values = [folded(f"{parameter}={text_of(value)}") for parameter, value in parameters(module).items()]
        rows.append([slot, name, "; ".join([module.summary, *filter(None, [", ".join(values)])])])
    show("modules: --set slot=module", head, grouped(rows), wraps=head[2:])
    rows_beside = [[name, " or ".join(values), ABOUT_SWITCHES[name]] for name, values in SWITCHES.items()]
    show("not slots, but set in the same way", ["", "values", "what it does"], rows_beside, wraps=["what it does"])
    say("Parameters follow a colon: prefetch=superneurons-ahead:5, pinned=vdnnpp-compressed:limit=1GiB.")
    say("A module of your own, in ./my_modules.py or installed: --set offload=my_modules:BigMaps.")
    return DONE


def kernels(options: argparse.Namespace) -> int:
    from refimpl.report import kernels_table as listing

    family = pick(options.family, listing.families(), "kernel family") if options.family else None
    if options.machine_code:
        from kernels.targets import machine_code

        why_not = machine_code.why_not()
        if why_not:
            raise Fail(why_not)
    rows = list(listing.rows(family, options.machine_code))
    if options.json:
        print_json([asdict(row) for row in rows])
    elif options.markdown:
        print(markdown_table(*listing.table(rows)))
    else:
        show(counted(len(rows), "kernel"), *listing.table(rows), wraps=["what it does"])
        if options.machine_code:
            say("Under a compute capability: registers of a thread / bytes of shared memory of a block.")
    return DONE

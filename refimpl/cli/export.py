"""`refimpl export`: a program written as one stand-alone Numba CUDA script."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from refimpl.cli.arguments import DONE, add_command, real, whole, writable
from refimpl.cli.options import add_budget, add_machine, add_network, add_setup, network_of
from refimpl.cli.run import prepared_program
from refimpl.cli.terminal import say
from refimpl.text import counted


def add(commands: Any) -> None:
    parser = add_command(
        commands, "export", "a program as a script of its own",
        "Plan a network, prove the program safe, and write it out as one Python script: the arena and the pinned "
        "buffers by name, and layer by layer every launch, copy, record and wait, with the reason.  The script imports "
        "the package kernels and nothing of refimpl.  It trains on a GPU, or emulated with python -m kernels.emulated "
        "SCRIPT, and gives the same bits as refimpl run on that device.",
        [
            "refimpl export lenet --policy vdnn-all --out lenet_vdnn.py",
            "refimpl export tiny-resnet --batch 16 --policy superneurons --budget 0.5 --rate 0.05",
        ],
    )  # fmt: skip
    add_network(parser)
    add_setup(parser)
    add_machine(parser, default="the GPU at hand, h100 without one")
    add_budget(parser)
    learning = parser.add_argument_group("learning: what the script begins with")
    learning.add_argument("--rate", type=real(above=0), metavar="R", help="learning rate (default: 0.01)")
    learning.add_argument("--momentum", type=real(below=1), metavar="M", help="default: 0.9")
    learning.add_argument("--decay", type=real(), metavar="D", help="weight decay (default: 0)")
    learning.add_argument("--seed", type=whole(0, (1 << 64) - 1), metavar="N", help="default: 0")
    parser.add_argument("--out", metavar="FILE", help="the script (default: standard output)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from refimpl.backend.script import written_out
    from refimpl.machine.files import replacing
    from refimpl.machine.here import gpu_at_hand

    path = writable("--out", options.out) if options.out else None
    program = prepared_program(options, network_of(options), "here" if gpu_at_hand() else "h100")
    learning = {name: getattr(options, name) for name in ("seed", "rate", "momentum", "decay")}
    learning = {name: value for name, value in learning.items() if value is not None}
    text = written_out(program, f"refimpl {shlex.join(options.arguments)}", **learning)
    if path is None:
        sys.stdout.write(text)
        return DONE
    with replacing(path) as file:
        file.write(text.encode())
    lines, instructions = counted(text.count("\n"), "line"), counted(len(program.instructions), "instruction")
    say(f"{path}: {program.network.name}, batch {program.network.batch}, {instructions} in {lines}.")
    say(f"On a GPU: python {shlex.quote(str(path))}; without one: python -m kernels.emulated {shlex.quote(str(path))}")
    if program.network.initial:
        say("It begins with drawn weights, not with the file's: --start takes what refimpl run --save writes")
    return DONE

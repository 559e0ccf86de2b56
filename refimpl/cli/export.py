"""`refimpl export`: a program written as one stand-alone Numba CUDA script."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from refimpl.cli import resolve, shared_options
from refimpl.cli.parser import DONE, Parser, writable
from refimpl.cli.terminal import say
from refimpl.files import replace_text
from refimpl.machine import here
from refimpl.names.networks import build
from refimpl.text import counted


def add(parser: Parser) -> None:
    parser.describe(
        "Plan a network, prove the program safe, and write it out as one Python script: the arena and the pinned "
        "buffers by name, and layer by layer every launch, copy, record and wait, with the reason.  The script imports "
        "the package kernels and nothing of refimpl.  It trains on a GPU, or emulated with "
        "python -m kernels.targets.emulated SCRIPT, and gives the same bits as refimpl run on that device.",
        [
            "refimpl export lenet --policy vdnn-all --out lenet_vdnn.py",
            "refimpl export tiny-resnet --batch 16 --policy superneurons --budget 0.5 --rate 0.05",
        ],
    )  # fmt: skip
    shared_options.network(parser)
    shared_options.setup(parser)
    shared_options.machine(parser, default="the GPU at hand, h100 without one")
    shared_options.kernels(parser)
    shared_options.budget(parser)
    shared_options.learning(parser, "learning: what the script begins with")
    parser.add_argument("--out", metavar="FILE", help="the script (default: standard output)")


def flat(learning: dict[str, Any]) -> dict[str, float]:
    """The optimiser's numbers by their own names: betas are two."""
    betas = learning.pop("betas", None)
    return {**learning, **(dict(zip(("beta1", "beta2"), betas, strict=True)) if betas else {})}


def run(options: argparse.Namespace) -> int:
    from refimpl.backend.script import written_out

    path = writable("--out", options.out) if options.out else None
    network = resolve.trained_by(options, build(options.network, options.batch))
    learning, schedule = flat(resolve.learning(options)), resolve.schedule(options)
    program = resolve.runnable(options, network, "here" if here.gpu_at_hand() else "h100")
    text = written_out(program, f"refimpl {shlex.join(options.arguments)}", schedule, **learning)
    if path is None:
        sys.stdout.write(text)
        return DONE
    replace_text(path, text)
    lines, instructions = counted(text.count("\n"), "line"), counted(len(program.instructions), "instruction")
    say(f"{path}: {program.network.name}, batch {program.network.batch}, {instructions} in {lines}.")
    script = shlex.quote(str(path))
    say(f"On a GPU: python {script}; without one: python -m kernels.targets.emulated {script}")
    if program.network.initial:
        say("It begins with drawn weights, not with the file's: --start takes what refimpl run --save writes")
    return DONE

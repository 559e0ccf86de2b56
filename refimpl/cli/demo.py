"""`refimpl demo`: see `refimpl.cli.demonstration`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from refimpl.cli.arguments import add_command

BACKENDS = ("cpu", "cuda", "emulated")


def add(commands: Any) -> None:
    parser = add_command(
        commands, "demo", "plan VGG-16, train a small network, draw both",
        "Plan VGG-16 for 12 GiB under each paper, train a small network on handwritten digits in a third of its memory "
        "by two policies, run it on an emulated GPU, and draw what happened.",
    )  # fmt: skip
    parser.add_argument("--out", default="demo", help="folder for the pictures (default: demo)")
    parser.add_argument("--backend", choices=BACKENDS, help="default: cuda with a GPU, else cpu")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from refimpl.cli import demonstration as demo

    return demo.main(Path(options.out), options.backend)

"""`refimpl demo`: see `refimpl.cli.demonstration`."""

from __future__ import annotations

import argparse
from pathlib import Path

from refimpl.cli.parser import Parser

BACKENDS = ("cpu", "cuda", "emulated")


def add(parser: Parser) -> None:
    parser.describe(
        "Plan VGG-16 for 12 GiB under each paper, train a small network on handwritten digits in a third of its memory "
        "by two policies, run it on an emulated GPU, and draw what happened.",
    )  # fmt: skip
    parser.add_argument("--out", default="demo", help="folder for the pictures (default: demo)")
    parser.add_argument("--backend", choices=BACKENDS, help="default: cuda with a GPU, else cpu")


def run(options: argparse.Namespace) -> int:
    from refimpl.cli import demonstration as demo

    return demo.main(Path(options.out), options.backend)

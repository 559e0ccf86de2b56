"""What the commands print for programs, and what their pictures hold, on small networks: nothing in it may differ.

`whole-commands.txt` is blocks of a line `$ refimpl …`, a line a field of the document, and the picture.  What people
read is in the golden files.  After a change that is meant to change it,
`python -m tests.refimpl.cli.test_whole_commands` rewrites the file: read the difference before you commit it.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from matplotlib.figure import Figure

from refimpl.cli import run
from refimpl.memory import UNLIMITED
from refimpl.names.machines import named
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.planner import plan
from refimpl.report import style
from tests.refimpl.cli.test_golden import COLUMNS, printed
from tests.refimpl.cli.test_golden import run as run_command
from tests.refimpl.report.drawn import facts, held

STORED = Path(__file__).parent / "whole-commands.txt"
ON = "--machine titan-x"
COMMANDS = (
    f"refimpl plan lenet --batch 64 {ON} --policy vdnn-all --json",
    f"refimpl plan tiny-resnet --batch 16 {ON} --policy superneurons --budget 0.4 --json --picture a.png",
    f"refimpl plan tiny-resnet --batch 16 {ON} --policy vdnnpp-dyn --budget 0.6 --json --picture a.png --draw pool",
    f"refimpl plan tiny-vgg --batch 16 {ON} --policy vdnn-all --json --picture a.png --draw timeline",
    f"refimpl plan tiny-vgg --batch 16 {ON} --policy accudnn --budget 10KiB --json",
    f"refimpl compare tiny-resnet --batch 16 {ON} --budget 0.5 --with vdnn-all --with superneurons --json",
    f"refimpl compare lenet --batch 64 {ON} --budget 0.9 --with vdnn-dyn --with accudnn --picture a.png",
    f"refimpl tune lenet {ON} --budget 4MiB --workers 4,16 --network 1GB/s --base-rate 0.1 --json",
    f"refimpl tune lenet {ON} --budget 4MiB --picture a.png",
    "refimpl summary tiny-unet --batch 2 --json", "refimpl list networks --json",
    "refimpl list presets --json", "refimpl list modules --json",
)  # fmt: skip


def block(command: str) -> str:
    """What a command has printed; of JSON a line a field."""
    if "--json" not in command:
        return printed(command)
    status, out, _ = run_command(command)
    return "".join([*facts(json.loads(out), "all"), f"[{status}]\n" * bool(status)])


def of_commands() -> str:
    """Every command's block."""
    drawn: list[str] = []
    here, blocks = Path.cwd(), list[str]()

    def save(figure: Figure, path: Any) -> None:
        drawn.append(held(figure))

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(COLUMNS))
        patch.setattr(style, "save", save)
        os.chdir(folder)
        try:
            for command in COMMANDS:
                blocks += [f"$ {command}\n", block(command), *drawn, "\n"]
                drawn.clear()
        finally:
            os.chdir(here)
    return "".join(blocks)


# -- the report of a run -----------------------------------------------------------------------------------------------

DOCUMENT: dict[str, Any] = {
    "network": "lenet", "batch": 8, "backend": "cpu", "ranks": 1, "data": "digits", "losses": [2.5, 2.0, 1.0, 0.5],
    "tested": 32, "tested_loss": 0.625, "accuracy": 0.875, "counted": {"what": "image", "number": 32},
    "peak_bytes": {"predicted": 1 << 20, "recounted": 1 << 20}, "process_bytes": None,
    "seconds": {"iteration": 0.25, "predicted": 0.125}, "algorithms": {"a": "direct", "b": "winograd", "c": "direct"},
    "like": None, "wire_bytes": 0, "host_seconds_per_instruction": None, "driver_calls": None, "checkpoint": None,
    "exported": None,
}  # fmt: skip
EACH = {
    "left": {"loss": 1.5, "weight": 1.0, "accuracy": 0.5, "number": 32, "what": "image"},
    "right": {"loss": 0.25, "weight": 2.0, "accuracy": None, "number": 64, "what": "number"},
}
VARIED: dict[str, dict[str, Any]] = {
    "plain": {},
    "of pixels": {"counted": {"what": "pixel", "number": 512}, "process_bytes": 3 << 20, "checkpoint": "a.npz"},
    "of numbers": {"accuracy": None, "counted": {"what": "number", "number": 32}, "exported": "a.onnx"},
    "not tested": {"accuracy": None, "tested_loss": None, "losses": [1.0], "algorithms": {}},
    "of two losses": {"weighted_loss": 2.0, "each_loss": EACH, "counted": {"what": "image", "number": 32}},
    "of a text": {
        "sample": {"after": "a\n\tb", "writes": "c\\\r"}, "bits": 2.25, "bits_of": "a byte", "accuracy": 0.25,
        "counted": {"what": "token", "number": 99},
    },
    "emulated": {"backend": "emulated", "like": "b.npz", "peak_bytes": {"predicted": 1 << 20, "recounted": 3 << 19}},
    "on a GPU": {
        "backend": "cuda", "ranks": 2, "wire_bytes": 1 << 16, "host_seconds_per_instruction": 2.5e-6,
        "driver_calls": {"allocations": 3, "frees": 2, "seconds": 0.001},
    },
}  # fmt: skip


def of_reports() -> str:
    """What `refimpl run` says of documents that are made by hand."""
    small, blocks = build("lenet", 8), list[str]()
    whole = plan(small, setup("vdnn-all"), named("titan-x"), UNLIMITED)
    calls = plan(small, setup("baseline allocator=driver-calls"), named("titan-x"), 64 << 20)
    packed = plan(build("tiny-vgg:vdnnpp", 8), setup("vdnnpp-all"), named("titan-x"), 64 << 20)
    for what, changes in VARIED.items():
        for program in (whole, calls, packed) if what == "plain" else (whole,):
            out = io.StringIO()
            with redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
                patch.setenv("COLUMNS", str(COLUMNS))
                run.report(DOCUMENT | changes, program, [])
            blocks.append(f"# {what}, {program.setup.name}\n{out.getvalue()}\n")
    return "".join(blocks)


def whole() -> str:
    return f"{of_commands()}{of_reports()}"


def test_the_commands_print_and_draw_the_same() -> None:
    assert whole() == STORED.read_text(encoding="utf-8")


if __name__ == "__main__":
    STORED.write_text(whole(), encoding="utf-8")
    sys.stdout.write("1 file written\n")

"""Lines drawn at random for the commands that take one network: none ends in a traceback, a hang, or invalid JSON."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import signal
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from refimpl.cli import main, parser, resolve
from refimpl.cli.parser import Fail
from refimpl.names.modules import MODULES, SWITCHES
from refimpl.names.presets import PRESETS
from refimpl.planner import SLOTS

SECONDS = 60  #: that a line may take; the slowest of 5,000 takes a few

NONSENSE = (
    "", " ", "-", "--", "---", "=", ":", ",", ".", "..", "/", "~", "0", "-0", "-1", "-1GiB", "0.3", "1e309",
    "nan", "-inf", "1e-320", "0x10", "1_000", "9" * 400, "-" + "9" * 5000, "9" * 5000 + "GiB", "x" * 300,
    "x" * 5000, "x" * 300 + ".png", "x" * 300 + ".json", "a\0b", "a\nb", "\udcff", "数", "١٢", "１２", "²", "🙂",
    "%s", "{}", "{0}", "[bold]x[/]", "[/]", "'", '"', "it's", "None", "True", "null", "12EiB", "1 GiB 2", "40%",
    "400%", "-40%", "no/such/folder/x.png", "no/such/folder", "/dev/full", "/proc/nothing", ".json", "x.json",
    "x.npz", "x.csv", "x.png", "x.pdf", "folder", "folder.png", "text.json", "text.npz", "text.csv",
    "liveness=", "=x", "a=b=c", "liveness=layer-wise=", "offload=os:path", "offload=os:nothing",
    "offload=broken:X", "offload=text:X", "offload=.:X", "offload=..os:X", "offload=1:2",
    "prefetch=superneurons-ahead:", "prefetch=superneurons-ahead:,", "prefetch=superneurons-ahead:1,,",
    "join=maybe", "resnet:", "resnet:0", "resnet:-1", "resnet:1e3", "resnet:" + "9" * 400, "resnet:١٣٧",
    "lenet:", ":lenet", "lenet:vdnn", "resnet18", "vgg", "-h",
)  # fmt: skip

#: What is small enough to be planned hundreds of times.
NETWORKS = ("lenet", "tiny-vgg", "tiny-resnet", "tiny-inception", "lenet:vdnnpp", "tiny-vgg:superneurons")
BUDGETS = ("12GiB", "5MiB", "0.7", "130%", "1KiB", "1EiB", "3000000")
SETTINGS = (
    *(f"{slot}={name}" for slot in SLOTS for name in MODULES[slot]),
    *(f"{switch}={value}" for switch, values in SWITCHES.items() for value in values),
    *("prefetch=superneurons-ahead:5", "prefetch=superneurons-ahead:0,late", "allocator=block-heap:3MiB"),
    *("allocator=both-ends:512,worst", "pinned=vdnnpp-compressed:0.1", "pinned=vdnnpp-compressed:limit=1MiB"),
    *("pinned=vdnnpp-on-demand:0", "pinned=vdnnpp-on-demand:200KiB", "offload=vdnnpp-conv:conv+fc,every=3"),
    *("offload=vdnnpp-conv:every=0", "offload=vdnn-conv:nothing", "offload=superneurons-checkpoints:distance=1GiB"),
    *("pinned=vdnnpp-compressed:5", "pinned=vdnnpp-compressed:densities=0+1+7", "recompute=cost-aware:memory"),
)

#: Option → values that make sense; options not named here get files' names, flags get none.
VALUES: dict[str, tuple[str, ...]] = {
    "network": NETWORKS, "networks": NETWORKS, "batch": ("1", "2", "8"), "preset": tuple(PRESETS),
    "policy": tuple(PRESETS), "assignments": SETTINGS,
    "setups": ("vdnn-all", "superneurons, join=yes", *SETTINGS), "budget": BUDGETS, "size": BUDGETS,
    "machine": ("titan-x", "gtx-970", "here", "profile.json"), "catalogue": ("own", "cudnn4"),
    "step": ("1", "conv2", "99"), "steps": ("1", "5"), "epochs": ("1",), "rate": ("0.1",), "momentum": ("0.9",),
    "decay": ("0",), "seed": ("3",), "data": ("digits", "synthetic", "text.npz"), "turns": ("1",),
    "limit": ("1",), "allocator": ("best-fit", "block-heap"), "family": ("conv", "gemm"), "picture": ("a.png", "a.svg"),
    "out": ("made", "a.csv", "a.pickle", "a.json"), "jobs": ("1",),
}  # fmt: skip

DRAWN = ("list", "summary", "plan", "compare", "run", "view", "export")
OFTEN = ("plan", "compare", "run")  #: commands with most options
RARE = {"picture": 0.05, "largest_batch": 0.05, "least": 0.1}  #: what takes a second is drawn less often
SENSE = 0.8  #: share of the values that make sense


def drawn_line(draw: random.Random) -> list[str]:
    """One line: a command, its arguments, some of its options, now and then something else."""
    command: argparse.ArgumentParser = parser()
    line: list[str] = []
    while (below := next((a for a in command._actions if isinstance(a, argparse._SubParsersAction)), None)) is not None:
        if draw.random() < 0.03:
            return [*line, draw.choice(NONSENSE)]
        if line and draw.random() < 0.2:  # `list` alone
            break
        often = [*DRAWN, *3 * OFTEN] if not line else [*below.choices]
        name = draw.choice(often)
        line, command = [*line, name], below.choices[name]
    sense = draw.choice((SENSE, SENSE, 1))
    for action in command._actions:
        if action.option_strings and draw.random() < RARE.get(action.dest, 0.2):
            option = draw.choice(action.option_strings)
            values = [] if action.nargs == 0 else [value_of(action, draw, sense)]
            line += [f"{option}={values[0]}"] if values and draw.random() < 0.3 else [option, *values]
        elif not action.option_strings and draw.random() < 0.98:
            line += [value_of(action, draw, sense) for _ in range(draw.choice((1, 2)) if action.nargs == "+" else 1)]
    if draw.random() < 0.05:
        line.insert(draw.randrange(1, len(line) + 1), draw.choice(NONSENSE))
    return [word for word in line if word not in ("--write", "-h", "--help")] if "list" not in line else line


def value_of(action: argparse.Action, draw: random.Random, sense: float) -> str:
    if draw.random() > sense:
        return draw.choice(NONSENSE)
    values = VALUES.get(action.dest) or tuple(map(str, action.choices or ())) or ("file",)
    if action.dest == "policy" and action.choices:
        values = tuple(action.choices)
    return draw.choice(values)


class TooLong(BaseException):
    """A line took more than `SECONDS`."""


def fault_of(line: list[str]) -> tuple[int | None, str]:
    """The exit status, and what is wrong with how the line ended, if anything is."""
    out, err = io.StringIO(), io.StringIO()

    def stop(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(line)
    except SystemExit as left:
        status = int(left.code or 0)
    except TooLong:
        return None, f"takes more than {SECONDS} seconds"
    except BaseException:
        return None, traceback.format_exc(limit=-4)
    finally:
        signal.alarm(0)
    said = err.getvalue()
    if status not in (0, 2, 3):
        return status, f"exit status {status}: {said}"
    if status == 2 and (not said.startswith("refimpl") or said.count("\n") != 1):
        return status, f"not one line: {said!r}"
    if status == 0 and "--json" in line and not {"-h", "--help", "--version"} & {*line}:
        try:
            json.loads(out.getvalue(), parse_constant=lambda name: pytest.fail(name))
        except ValueError as error:
            return status, f"not JSON: {error}"
    return status, ""


@pytest.fixture
def harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trained, and files are written into a folder of the test's own."""
    from kernels.targets import machine_code

    def refused(*_: Any, **__: Any) -> Any:
        raise Fail("nothing is measured here")

    monkeypatch.setattr(resolve, "trainer", refused)
    monkeypatch.setattr(machine_code, "why_not", lambda: "not here")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.png").mkdir()
    for name in ("text.json", "text.npz", "text.csv", "text.py"):
        (tmp_path / name).write_text("neither this nor that\n")
    (tmp_path / "broken.py").write_text("raise SystemExit(3)\n")


def faults(count: int, seed: int) -> tuple[Counter[int | None], list[str]]:
    draw = random.Random(seed)
    ended: Counter[int | None] = Counter()
    found = []
    for number in range(1, count + 1):
        line = drawn_line(draw)
        status, fault = fault_of(line)
        ended[status] += 1
        if fault:
            found.append(f"{[word[:60] for word in line]}: {fault}")
            print(found[-1], flush=True)
        if number % 500 == 0:
            print(f"{number} lines, by exit status: {dict(ended)}; {len(found)} faults", flush=True)
    return ended, found


@pytest.mark.slow
@pytest.mark.usefixtures("harmless")
def test_a_drawn_line_ends_well() -> None:
    ended, found = faults(80, seed=1)
    assert not found, "\n".join(found)
    assert {0, 2} <= set(ended)


@pytest.mark.campaign
@pytest.mark.usefixtures("harmless")
def test_thousands_of_drawn_lines_end_well() -> None:
    _, found = faults(5000, seed=2)
    assert not found, "\n".join(found)

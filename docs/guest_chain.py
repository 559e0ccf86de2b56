"""The chain of the guest lab: `python docs/guest_chain.py` writes tutorials/guest/chain.json, of GPT-2.

The planner says what each map holds and how long each step takes.  A block of the chain is half of a block of GPT-2,
attention or the wide part; the head is the last.  The best times are those of the lab's solution.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from refimpl import cli
from refimpl.names.machines import named

LAB = Path(__file__).resolve().parent.parent / "tutorials" / "guest"
COMMAND = (
    "refimpl plan gpt2 --batch 8 --machine rtx-4090:own --budget 24GiB --set liveness=layer-wise "
    "--set algorithms=fastest-that-fits --steps --json"
)
ATTENTION, WIDE = ("norm1", "qkv", "attention", "out", "join1"), ("norm2", "widen", "gelu", "narrow", "join2")
INPUTS = ("words", "join1", "join2")  #: layers whose output is the next block's input
BUDGETS = {"checkpointing": (2500, 3500, 4500), "offloading": (5000, 5500), "both": (2500, 3500, 4500)}  #: MiB


def block_of(layer: str) -> str:
    number, _, part = layer.partition(".")
    half = "attention" if part in ATTENTION else "wide" if part in WIDE else ""
    return f"{number} {half}" if half else "embedding" if layer in ("words", "position") else "head"


def blocks(planned: dict[str, Any], copy_seconds: Any) -> list[list[Any]]:
    """The fields of the lab's `Block`, in forward order: MiB and microseconds."""
    seconds, copies, nbytes = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for step in planned["steps"]:
        seconds[block_of(step["layer"]), step["direction"]] += step["end"] - step["start"]
    (one_input,) = {one["bytes"] for one in planned["fates"] if one["tensor"].rpartition(".")[2] in INPUTS}
    for one in planned["fates"]:
        if one["tensor"] != "input" and one["tensor"].rpartition(".")[2] not in INPUTS:
            nbytes[block_of(one["tensor"])] += one["bytes"]
            copies[block_of(one["tensor"])] += copy_seconds(one["bytes"], "out")
    times = {name: (seconds[name, "forward"], seconds[name, "backward"], copies[name]) for name in nbytes}
    return [
        [name, *(round(size / (1 << 20)) for size in (one_input, nbytes[name])), *(round(1e6 * s) for s in times[name])]
        for name in nbytes
    ]


def chain() -> str:
    """The text of chain.json."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli.main(shlex.split(COMMAND)[1:])
    found = blocks(json.loads(printed.getvalue()), named("rtx-4090").copy_seconds)
    sys.path.insert(0, str(LAB))
    block = runpy.run_path(str(LAB / "simulator.py"))["Block"]
    solution = runpy.run_path(str(LAB.parent / "solutions" / "guest.py"))
    made = [block(*one) for one in found]
    best = {
        task: {budget: solution["time"](made, solution[task](made, budget)) for budget in budgets}
        for task, budgets in BUDGETS.items()
    }
    halves = [json.dumps(one) for one in found]
    rows = ",\n".join(", ".join(halves[at : at + 4]) for at in range(0, len(halves), 4))
    return f'{{"made by": {json.dumps(COMMAND)},\n"best": {json.dumps(best)},\n"blocks": [\n{rows}]}}\n'


if __name__ == "__main__":
    (LAB / "chain.json").write_text(chain(), encoding="utf-8")

"""What planners of 2026 measured on GPUs, beside what ours predicts, into docs/related.md: `python docs/rivals.py`.

`trial/rivals.csv` has their figures, each with its source.  `trial/qwen3.py` has the decoder: its weights are never
touched, so that 32 thousand million of them need no memory here.  Five minutes; it needs PyTorch.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import refimpl
from refimpl.combined import Fates, Offloaded
from refimpl.names.presets import setup
from refimpl.planner import Program
from refimpl.report.markdown import markdown_table, put_between
from refimpl.studies.transformers.yardsticks import YARDSTICKS, blocks

DOCS = Path(__file__).resolve().parent
PAGE, FIGURES = DOCS / "related.md", DOCS / "trial" / "rivals.csv"
MIB, GIB = 1 << 20, 1 << 30
ENOUGH = "1000GiB"
#: Tensor cores by the data sheet; the share of them that products reach is assumed.
MACHINE = refimpl.machines.like(
    "h100", flops="989.4TFLOP/s", efficiency={"products": 0.6}, sources={"flops": "data sheet: bfloat16, dense"}
)
FEWER, EFFORT = 8, 5  #: blocks, and plans, of the search


class Shape(NamedTuple):
    """A decoder, and the tokens of a sequence."""

    layers: int
    channels: int
    wide: int
    heads: int
    kv: int
    size: int
    tokens: int
    shared: bool = False  #: all blocks have one block's weights, and hold as much of gradients as shards of them

    @property
    def network(self) -> Any:
        return _network(self)

    def plan(self, way: str, budget: Any = ENOUGH) -> Program:
        """A plan that keeps the blocks' inputs, offloads them, or searches."""
        if way == "planned":
            return refimpl.plan(self.network, f"combined, effort={EFFORT}", MACHINE, budget)
        made = setup(YARDSTICKS["per block"])
        if way != "per block":
            inputs = Fates.of({block.before.y.name: "offload" for block in blocks(self.network)})
            prefetch = "in-time" if way == "inputs offloaded" else "none"
            made = made.replace(offload=Offloaded(fates=inputs), prefetch=prefetch)
        return refimpl.plan(self.network, made, MACHINE, budget)


@cache
def _network(shape: Shape) -> Any:
    sys.path.insert(0, str(DOCS / "trial"))
    import torch
    from qwen3 import built

    tokens = torch.zeros(1, shape.tokens, dtype=torch.int64)
    *own, shared = shape
    return refimpl.networks.from_torch(built(*own, words=1024, shared=shared), tokens, keeps="pytorch")


def beside_maps(shape: Shape) -> int:
    """What is there after forward and is no map: the output, rotary tables, and the tokens.

    Theirs do not say how large a head is: the bytes of the tables, 0.4 to 1 % of all, are those of 64 and 128 channels.
    """
    return shape.tokens * (2 * shape.channels + 2 * 2 * shape.size + 8)


def peak_of_maps(program: Program) -> int:
    """The most bytes of maps and their gradients at a time.

    Gradients of weights are there before forward where they are accumulated, as in these measurements: a constant.
    """
    gradients = [life for life in program.lifetimes() if life.tensor.kind == "weight gradient"]
    most = 0
    for row in program.rows:
        there = (life for life in gradients if life.allocate.step <= row.step.number)
        most = max(most, row.transient_bytes - sum(life.tensor.nbytes for life in there))
    return most


def figures() -> dict[tuple[str, Shape, str, str], list[float]]:
    """Source, shape, way and quantity → their figures."""
    found: dict[tuple[str, Shape, str, str], list[float]] = {}
    with FIGURES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            shape = Shape(*(int(row[one]) for one in Shape._fields[:-1]))
            found.setdefault((row["source"], shape, row["way"], row["quantity"]), []).append(float(row["value"]))
    return found


def rows() -> Iterator[tuple[str, str, str, str]]:
    """What is asked, theirs, ours, and a word on it."""
    theirs = figures()
    yield from resident_rows()
    peaks = {(shape, way): values[0] for (_, shape, way, what), values in theirs.items() if what == "peak"}
    speeds = {(shape, way): values for (_, shape, way, what), values in theirs.items() if what == "speed"}
    short, long, sharded = sorted({shape for shape, _ in peaks}, key=lambda one: (one.layers, one.tokens))
    plans = {(shape, way): shape.plan(way) for shape in (short, long) for way in ("per block", "inputs offloaded")}
    maps = {key: peak_of_maps(program) / GIB for key, program in plans.items()}
    for shape in (short, long):
        one, other = (shape, "per block"), (shape, "inputs offloaded")
        yield row(f"Qwen3-8B, {shape.tokens:,} tokens: peak saved by offloading the inputs",
                  peaks[one] - peaks[other], maps[one] - maps[other], "GiB")  # fmt: skip
    for way in ("per block", "inputs offloaded"):
        yield row(f"Qwen3-8B, {way}: peak, more at {long.tokens:,} than at {short.tokens:,}",
                  peaks[long, way] - peaks[short, way], maps[long, way] - maps[short, way], "GiB")  # fmt: skip
    one, other = (short, "per block"), (short, "inputs offloaded")
    ratio = plans[one].planned_seconds / plans[other].planned_seconds
    yield row(f"Qwen3-8B, {short.tokens:,} tokens: speed with the inputs offloaded, of that per block",
              speeds[other][0] / speeds[one][0], ratio, "")  # fmt: skip
    yield from planned(sharded, speeds, theirs)


def resident_rows() -> Iterator[tuple[str, str, str, str]]:
    """Bytes between forward and backward."""
    for (_, shape, way, what), values in figures().items():
        if what == "resident after forward":
            asked = f"{shape.layers} × {shape.channels}, {shape.tokens:,} tokens, {way}: {what}"
            held = shape.plan(way).decisions()["predicted"]["held"]
            yield row(asked, values[0], (held + beside_maps(shape)) / MIB, "MiB")


def planned(shape: Shape, speeds: Any, theirs: Any) -> Iterator[tuple[str, str, str, str]]:
    """Keep, recompute and offload by a plan, beside every block recomputed, in a little more memory than that takes."""
    few = shape._replace(layers=FEWER, shared=True)
    whole = few.plan("per block")
    of = {way: values for (_, one, way, what), values in theirs.items() if one == shape and what == "peak"}
    for peak, speed in zip(of["planned"], speeds[shape, "planned"], strict=True):
        room = peak - of["per block"][0]
        budget = whole.network.resident_bytes + whole.decisions()["predicted"]["peak"]
        ours = few.plan("planned", int(budget + room * GIB * FEWER / shape.layers))
        yield row(f"Qwen3-32B on 8 GPUs, {room:.2f} GiB more than per block: speed of a plan, of that per block",
                  speed / speeds[shape, "per block"][0], whole.planned_seconds / ours.planned_seconds, "")  # fmt: skip


def row(asked: str, theirs: float, ours: float, unit: str) -> tuple[str, str, str, str]:
    number = "{:,.1f} " + unit if unit else "{:.3f}"
    off = f"{ours / theirs - 1:+.1%}".replace("-0.0%", "0.0%")
    return asked, number.format(theirs).strip(), number.format(ours).strip(), off


def main() -> None:
    made = markdown_table(["what", "theirs, measured", "ours, simulated", "off"], [[*one] for one in rows()])
    print(made)
    PAGE.write_text(put_between(PAGE.read_text(encoding="utf-8"), "rivals", made), encoding="utf-8")


if __name__ == "__main__":
    main()

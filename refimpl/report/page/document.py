"""A program and its timeline as the data of the page: columns, and nothing that the page can work out itself.

A *position* is an index into the program's instructions.  Each text is stored once, in a list; a column has its index.

    network batch label machine how           text of the head; `how`: see below
    budget peak arena pinned resident          bytes
    seconds stall depth streams counts         of an iteration; the number of forward steps; names; `planner.Counts`
    words      kind of work → the word of the program's codec for it
    kinds works names labels texts reasons     lists of text
    fates      [keep | offload | drop, reason]
    tensors    name, kind, bytes, fate (-1: none)
    steps      layer, part (as in ", part 1 of 2"; empty: a whole step), pool (bytes), end (the position after the
               step's last instruction; one entry more, for step 0)
    ops        a letter for each instruction, see OPS
    said       label, text: the lister's, for each instruction
    repeats    [first step, last step, line of the listing]
    blocks     tensor, kind, address, bytes, released (the position from which it drains), end: resident tensors first,
               then one for each `a`
    work       start and ns (nanoseconds), stream, what (`works`), name (a layer or a tensor), tensor (-1: a launch):
               one for each of l o i c d
    reads, writes   of each l: its tensors
    events     stream, event: one for each of r w
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from refimpl.machine import HOST, Timeline
from refimpl.network import Tensor
from refimpl.planner import Allocate, CopyIn, CopyOut, Free, FromStore, Launch, Program, Record, ToStore, Wait
from refimpl.planner.heading import mark
from refimpl.planner.listing import entries, repetitions
from refimpl.report.figures import lifetimes, step_ends
from refimpl.report.timeline_picture import bar_of, codec_words
from refimpl.report.times import spans_by_instruction

OPS: dict[type, str] = {
    Allocate: "a", Free: "f", Launch: "l", CopyOut: "o", CopyIn: "i",
    ToStore: "c", FromStore: "d", Record: "r", Wait: "w",
}  # fmt: skip

Rows = Sequence[Sequence[Any]]


class Numbered:
    """Values and their numbers, in the order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[Any]:
        return list(self._numbers)


def document(program: Program, timeline: Timeline, label: str | None = None) -> dict[str, Any]:
    """The page's data.

    Args:
        program: the program.
        timeline: when it ran, simulated or measured.
        label: the program's name on the page; by default its setup's.
    """
    network, instructions = program.network, program.instructions
    lists = {name: Numbered() for name in ("kinds", "works", "names", "labels", "texts", "reasons", "fates")}
    tensors, (kinds, works, names, labels, texts, reasons, fates) = Numbered(), lists.values()
    spans = spans_by_instruction(timeline)
    step_of_call = {call: step for step in network.steps for call in step.calls}

    blocks = [
        (tensors(life.tensor), kinds(life.kind), life.address, life.nbytes, life.let_go, life.end)
        for life in sorted(lifetimes(program), key=lambda life: life.begin)
    ]
    said = [(labels(word), texts(text)) for word, text in entries(program)]
    work, reads, writes, events = [], [], [], []
    for i in instructions:
        if isinstance(i, Record | Wait):
            events.append((i.stream, i.event))
        elif id(i) in spans:
            span = spans[id(i)]
            bar = bar_of(program, step_of_call, span)
            start, end = (round(moment * 1e9) for moment in (span.start, span.end))  # so that what touches still does
            moved = -1 if isinstance(i, Launch) else tensors(i.tensor)
            name = names(bar.name if bar.tier == HOST else f"{bar.name}, {bar.tier} tier")
            work.append((start, end - start, span.stream, works(bar.what), name, moved))
        if isinstance(i, Launch):
            reads.append([tensors(tensor) for tensor in (*i.call.reads, *i.call.updates)])
            writes.append([tensors(tensor) for tensor in i.call.writes])

    fate_of: dict[Tensor, int] = {}
    for tensor, fate in program.fates.items():
        why = fate.reason if fate.module == "none" else f"{fate.module}: {fate.reason}"
        fate_of[tensor] = fates((fate.name, reasons(why)))
    return {
        "network": f"{network.name}{mark(network, program.machine)}",
        "batch": network.batch,
        "label": label or program.setup.name,
        "machine": timeline.machine,
        "how": how(timeline),
        "budget": program.budget,
        "peak": program.peak_bytes,
        "arena": program.arena_bytes,
        "pinned": program.pinned_bytes,
        "resident": network.resident_bytes,
        "seconds": timeline.seconds,
        "stall": timeline.stall,
        "depth": network.depth,
        "streams": list(timeline.streams),
        "counts": asdict(program.counts),
        "words": codec_words(program),
        "tensors": _columns(
            ("name", "kind", "bytes", "fate"),
            [(tensor.name, tensor.kind, tensor.nbytes, fate_of.get(tensor, -1)) for tensor in tensors.values],
        ),
        "steps": {
            "layer": [step.layer.name for step in network.steps],
            "part": [step.of_parts for step in network.steps],
            "pool": [row.pool_bytes for row in program.rows],
            "end": step_ends(program),
        },
        "ops": "".join(OPS[type(i)] for i in instructions),
        "said": _columns(("label", "text"), said),
        "repeats": [(steps[0], steps[-1], line) for steps, line in repetitions(program)],
        "blocks": _columns(("tensor", "kind", "address", "bytes", "released", "end"), blocks),
        "work": _columns(("start", "ns", "stream", "what", "name", "tensor"), work),
        "reads": reads,
        "writes": writes,
        "events": _columns(("stream", "event"), events),
        **{name: numbered.values for name, numbered in lists.items()},
    }


def how(timeline: Timeline) -> str:
    """The source of its times; those of an emulated GPU are a model's."""
    return "emulated" if timeline.machine.endswith("emulated") else "simulated" if timeline.simulated else "measured"


def _columns(names: Sequence[str], rows: Rows) -> dict[str, list[Any]]:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def packed(data: Mapping[str, Any]) -> str:
    """As text for the page's `unpack`: JSON, gzip, base64.  The same data give the same text."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(errors="backslashreplace"), mtime=0)).decode()

"""The timeline as a Chrome trace: JSON in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.

One process is the machine, one thread each stream, that of the host's threads among them.  Every launch,
every copy, those of the host's threads too, is a complete slice ("X"), an arrow ("s" to "f") leads from
a copy out to each copy that brings the same content back, and counters ("C") show the bytes in device memory by kind,
draining ones among them, those in pinned memory, and those planned for maps in the store.

Times are microseconds, in eighths of one: a binary fraction, so that a slice that ends where the next begins does so
exactly, whatever a reader multiplies by.  (Slices that overlap by a rounding error would be drawn as nested.)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from refimpl.files import replace_text
from refimpl.machine import HOST, Span, Timeline
from refimpl.network import Step
from refimpl.planner import CopyIn, CopyOut, HostCopy, Launch, Program
from refimpl.planner.instructions import STORE
from refimpl.report.figures import memory_curve, title
from refimpl.report.times import HostStay, compute_clock, flows, host_stays, spans_by_instruction

PROCESS = 1
EIGHTHS = 8  #: parts of a microsecond


def microseconds(seconds: float) -> float:
    """To the nearest eighth."""
    return round(seconds * 1e6 * EIGHTHS) / EIGHTHS


def chrome_trace(program: Program, timeline: Timeline) -> dict[str, Any]:
    """The trace as JSON's objects and lists."""
    spans = spans_by_instruction(timeline)
    step_of_call = {call: step for step in program.network.steps for call in step.calls}
    work = [_slice(program, step_of_call, span) for span in sorted(timeline.spans, key=lambda span: span.start)]
    events = [*_names(program, timeline), *work, *_arrows(program, spans)]
    events += [*_device_bytes(program, timeline), *_host_bytes(program, timeline)]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "network": program.network.name,
            "batch": program.network.batch,
            "setup": program.setup.name,
            "machine": timeline.machine,
            "times": "simulated" if timeline.simulated else "measured",
            "budget_bytes": program.budget,
        },
    }


def write_chrome_trace(path: str | Path, program: Program, timeline: Timeline) -> None:
    """The trace as a file."""
    text = json.dumps(chrome_trace(program, timeline), separators=(",", ":"), ensure_ascii=False)
    replace_text(path, text + "\n")


def _names(program: Program, timeline: Timeline) -> list[dict[str, Any]]:
    """The names of the tracks, and their order: metadata events, which have no time."""
    events = [_metadata("process_name", 0, {"name": title(program, timeline)})]
    for stream, name in enumerate(timeline.streams):
        events.append(_metadata("thread_name", stream + 1, {"name": f"stream {name}"}))
        events.append(_metadata("thread_sort_index", stream + 1, {"sort_index": stream}))
    return events


def _metadata(name: str, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": PROCESS, "tid": thread, "args": args}


def _slice(program: Program, step_of_call: dict[Any, Step], span: Span) -> dict[str, Any]:
    """A launch, a copy or a piece of the work of the host's threads."""
    i = span.instruction
    layer = program.network.steps[i.step - 1].layer.name if i.step else "before the first step"
    args: dict[str, Any] = {"step": i.step, "layer": layer}
    if isinstance(i, Launch):
        step = step_of_call[i.call]
        kind = "rebuild" if i.rebuild else step.direction
        name = f"{step.layer} {i.call.function}"
        args |= {"kernel": i.call.function, "bytes": i.call.nbytes, "flops": i.call.flops}
        if i.rebuild:
            args["rebuilds"] = step.layer.name
        if i.choice is not None:
            args |= {"algorithm": i.choice.algorithm, "workspace_bytes": i.choice.workspace_bytes}
    else:
        kind, name = i.op, f"{i.op} {i.tensor}"
        args |= {"tensor": i.tensor.name, "bytes": i.nbytes}
        args |= {"stored_bytes": i.planned} if isinstance(i, HostCopy) else {"reason": i.why, "tier": i.tier}
    start, end = microseconds(span.start), microseconds(span.end)
    placed = {"ph": "X", "pid": PROCESS, "tid": span.stream + 1, "ts": start, "dur": end - start}
    return {"name": name, "cat": kind, **placed, "args": args}


def _arrows(program: Program, spans: dict[int, Span]) -> list[dict[str, Any]]:
    """Each in the middle of its two slices, which binds it to them."""
    events = []
    for number, (out_position, in_position) in enumerate(flows(program), start=1):
        for phase, position in (("s", out_position), ("f", in_position)):
            i = program.instructions[position]
            assert isinstance(i, (CopyOut, CopyIn))
            span = spans[id(i)]
            start, end = microseconds(span.start), microseconds(span.end)
            middle = start + (end - start) * EIGHTHS // 2 / EIGHTHS
            event = {"name": "copied back", "cat": "copy", "ph": phase, "id": number, "pid": PROCESS}
            binding = {"bp": "e"} if phase == "f" else {}
            events.append({**event, "tid": span.stream + 1, "ts": middle, **binding})
    return events


def _device_bytes(program: Program, timeline: Timeline) -> list[dict[str, Any]]:
    """The bytes that the pool holds, by kind, whenever they change."""
    curve, clock = memory_curve(program), compute_clock(program, timeline)
    samples: dict[float, dict[str, int]] = {}  # of several changes at one time the last counts
    for index, position in enumerate(curve.positions.tolist()):
        held = {kind: int(column[index]) for kind, column in curve.by_kind.items()}
        samples[microseconds(clock[max(position, 0)])] = held
    return _counters("device bytes", samples)


def _host_bytes(program: Program, timeline: Timeline) -> list[dict[str, Any]]:
    """The bytes whose content is still wanted, of pinned memory, other tiers and the store."""
    stays = host_stays(program, timeline)
    events = []
    for place in (HOST, *program.tier_bytes, STORE):
        name = "pinned" if place == HOST else place
        events += _wanted(f"{name} bytes", [stay for stay in stays if stay.place == place])
    return events


def _wanted(name: str, stays: Sequence[HostStay]) -> list[dict[str, Any]]:
    changes: Counter[float] = Counter()
    for stay in stays:
        changes[microseconds(stay.begin)] += stay.nbytes
        changes[microseconds(stay.end)] -= stay.nbytes
    moments = sorted(changes)
    held = accumulate(changes[moment] for moment in moments)
    return _counters(name, {moment: {"wanted": nbytes} for moment, nbytes in zip(moments, held, strict=True)})


def _counters(name: str, samples: dict[float, dict[str, int]]) -> list[dict[str, Any]]:
    return [{"name": name, "ph": "C", "pid": PROCESS, "ts": ts, "args": held} for ts, held in samples.items()]

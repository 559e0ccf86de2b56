"""One iteration in formats that other tools open: a Chrome trace, a PyTorch memory snapshot, an allocation log of RMM.

**chrome**: JSON in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.  One process is the
machine, one thread each stream, that of the host's threads among them.  Every launch, every copy, those of the host's
threads too, is a complete slice ("X"), an arrow ("s" to "f") leads from a copy out to each copy that brings the same
content back, and counters ("C") show the bytes in device memory by kind, draining ones among them, those in pinned
memory, and those planned for maps in the store.  Times are microseconds, in eighths of one: a binary fraction, so that
a slice that ends where the next begins does so exactly, whatever a reader multiplies by.  (Slices that overlap by a
rounding error would be drawn as nested.)

**snapshot**: a pickle for pytorch.org/memory_viz and torch.cuda._memory_viz.  It has `segments`, the allocator's state
at the end, and `device_traces`, the history that led there.  Ours has one segment, the pool; after an iteration only
the resident tensors are left in it.  In the history a release has two entries, as with PyTorch's own allocator:
`free_requested` where the plan released a tensor, `free_completed` where its block went back to the pool.  In between
it drains: a copy of it may still run.  In place of a Python stack, an entry's frames say what the block is for: the
tensor, the step, the fate of the map.

**rmm**: the allocations alone, as CSV, for other tools and for `refimpl.report.allocation_log.replay`.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from refimpl.files import replace_text, replacing
from refimpl.machine import HOST, Span, Timeline
from refimpl.network import Step
from refimpl.planner import CopyIn, CopyOut, HostCopy, Launch, Program
from refimpl.planner.instructions import STORE
from refimpl.report.allocation_log import LoggedEvent, write_rmm
from refimpl.report.figures import DrawnLifetime, lifetimes, memory_curve, pool_size, title
from refimpl.report.times import HostStay, compute_clock, flows, host_stays, spans_by_instruction

PROCESS = 1
EIGHTHS = 8  #: parts of a microsecond
BASE = 0x7F00_0000_0000  #: where the arena is said to begin, so that addresses look like a GPU's and none is null
PROTOCOL = 4  #: of pickle: the newest that the viewer of snapshots reads

# -- A Chrome trace ----------------------------------------------------------------------------------------------------


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
    of = program.network.steps[i.step - 1] if i.step else None
    args: dict[str, Any] = {"step": i.step, "layer": of.layer.name if of else "before the first step"}
    args |= {"part": f"{of.part} of {of.parts}"} if of and of.parts > 1 else {}
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


# -- A PyTorch memory snapshot -----------------------------------------------------------------------------------------


def torch_snapshot(program: Program, timeline: Timeline) -> dict[str, Any]:
    """The snapshot as dictionaries and lists; times are microseconds."""
    size, found = pool_size(program), lifetimes(program)
    clock = [round(seconds * 1e6) for seconds in compute_clock(program, timeline)]
    # Blocks are coloured by category.  One must be "unknown": some versions of the viewer add it themselves where it is
    # missing, misspell the list, and stop.
    segment = {"addr": BASE, "size": size, "stream": 0, "segment_pool_id": (0, 0), "category": "unknown"}
    trace: list[dict[str, Any]] = [{"action": "segment_alloc", **segment, "time_us": 0, "frames": []}]
    entries: list[tuple[float, int, dict[str, Any]]] = []  # sorted by position, then by what happens first there
    for life in found:
        block = {"addr": BASE + life.address, "size": life.nbytes, "stream": 0, "category": life.kind}
        begin, let_go, end = (clock[max(position, 0)] for position in (life.begin, life.let_go, life.end))
        frames = _frames(program, life)
        entries.append((life.begin, 2, {"action": "alloc", **block, "time_us": begin, "frames": frames}))
        if life.kind != "resident":
            entries.append((life.let_go, 0, {"action": "free_requested", **block, "time_us": let_go, "frames": frames}))
            entries.append((life.end, 1, {"action": "free_completed", **block, "time_us": end, "frames": frames}))
    entries.sort(key=lambda entry: entry[:2])
    trace += [entry for _, _, entry in entries]
    return {
        "segments": [_segment(program, size, [life for life in found if life.kind == "resident"])],
        "device_traces": [trace],
        "allocator_settings": {},
        "external_annotations": [],
    }


def write_torch_snapshot(path: str | Path, program: Program, timeline: Timeline) -> None:
    """The snapshot as a pickle."""
    with replacing(path) as file:
        file.write(pickle.dumps(torch_snapshot(program, timeline), protocol=PROTOCOL))


def _segment(program: Program, size: int, residents: list[DrawnLifetime]) -> dict[str, Any]:
    """The pool after the iteration: the resident tensors, and holes."""
    blocks: list[dict[str, Any]] = []
    end = 0

    def block(start: int, nbytes: int, requested: int, state: str, frames: list[Any]) -> None:
        place = {"address": BASE + start, "size": nbytes, "requested_size": requested}
        blocks.append({**place, "state": state, "frames": frames})

    for life in sorted(residents, key=lambda life: life.address):
        if life.address > end:
            block(end, life.address - end, 0, "inactive", [])
        block(life.address, life.nbytes, life.tensor.nbytes, "active_allocated", _frames(program, life))
        end = life.address + life.nbytes
    if end < size:
        block(end, size - end, 0, "inactive", [])
    held = sum(life.nbytes for life in residents)
    return {
        "device": 0, "address": BASE, "total_size": size, "allocated_size": held, "active_size": held,
        "requested_size": sum(life.tensor.nbytes for life in residents), "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
    }  # fmt: skip


def _frames(program: Program, life: DrawnLifetime) -> list[dict[str, Any]]:
    """Frames in the place of a stack trace, innermost first; each is shown as file:line:name."""
    shape = life.tensor.shape
    found = [_frame(life.tensor.kind, len(shape), f"{life.tensor} {'×'.join(map(str, shape))}")]
    fate = program.fates.get(life.tensor)
    if fate is not None:
        found.append(_frame(f"fate {fate.name}", 0, f"{fate.module}: {fate.reason}"))
    if life.kind != "resident":
        number = program.instructions[life.begin].step
        what = repr(program.network.steps[number - 1]) if number else "before the first step"
        found.append(_frame("allocated in", number, what))
    return [*found, _frame(f"setup {program.setup.name}", 0, program.network.name)]


def _frame(filename: str, line: int, name: str) -> dict[str, Any]:
    return {"filename": filename, "line": line, "name": name}


# -- An allocation log -------------------------------------------------------------------------------------------------


def rmm_events(program: Program, timeline: Timeline) -> list[LoggedEvent]:
    """Every allocation and every free of one iteration, the resident tensors' first; these are never freed.

    A free is where the block goes back to the pool.  Sizes are the requested ones, seconds count from the start of the
    iteration.
    """
    clock = compute_clock(program, timeline)
    changes: list[tuple[int, LoggedEvent]] = []  # position, event
    for life in lifetimes(program):
        address, nbytes = BASE + life.address, life.tensor.nbytes
        changes.append((life.begin, LoggedEvent("allocate", address, nbytes, clock[max(life.begin, 0)])))
        if life.kind != "resident":
            changes.append((life.end, LoggedEvent("free", address, nbytes, clock[life.end])))
    return [event for _, event in sorted(changes, key=lambda change: change[0])]


def write_rmm_log(path: str | Path, program: Program, timeline: Timeline) -> None:
    """The log as a file."""
    write_rmm(path, rmm_events(program, timeline))

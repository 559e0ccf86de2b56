"""The program's memory as a PyTorch memory snapshot: a pickle for pytorch.org/memory_viz and torch.cuda._memory_viz.

A snapshot has `segments`, the allocator's state at the end, and `device_traces`, the history that led there.  Ours
has one segment, the pool; after an iteration only the resident tensors are left in it.  In the history a release has
two entries, as with PyTorch's own allocator: `free_requested` where the plan released a tensor, `free_completed` where
its block went back to the pool.  In between it drains: a copy of it may still run.

In place of a Python stack, an entry's frames say what the block is for: the tensor, the step, the fate of the map.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from refimpl.files import replacing
from refimpl.machine import Timeline
from refimpl.planner import Program
from refimpl.report.figures import DrawnLifetime, lifetimes, pool_size
from refimpl.report.times import compute_clock

BASE = 0x7F00_0000_0000  #: where the arena is said to begin, so that addresses look like a GPU's and none is null
PROTOCOL = 4  #: of pickle: the newest that the viewer reads


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

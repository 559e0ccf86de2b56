"""The memory snapshot: PyTorch's own tools read it, and it tells the truth about the pool."""

from __future__ import annotations

import pickle
import pickletools

import pytest

from refimpl.report.figures import lifetimes, pool_size
from refimpl.report.torch_snapshot import BASE, torch_snapshot, write_torch_snapshot
from tests.refimpl.report.programs import ALL, SMALL, evicting, offloading, timeline

#: What the viewer's own reader of pickles (MemoryViz.js) understands.
UNDERSTOOD = {
    "PROTO", "STOP", "FRAME", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "APPEND", "APPENDS",
    "LIST", "EMPTY_LIST", "DICT", "EMPTY_DICT", "SETITEM", "SETITEMS", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "NEWFALSE", "NEWTRUE", "NONE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE",
    "BINUNICODE",
}  # fmt: skip


@pytest.mark.parametrize("make", ALL)
def test_replaying_the_history_gives_the_pool(make) -> None:
    program = make()
    snapshot = torch_snapshot(program, timeline(make))
    (trace,) = snapshot["device_traces"]
    assert trace[0]["action"] == "segment_alloc" and trace[0]["size"] == pool_size(program)
    alive, requested, most = {}, set(), 0
    for entry in trace[1:]:
        address = entry["addr"]
        if entry["action"] == "alloc":
            assert address not in alive
            alive[address] = entry["size"]
        elif entry["action"] == "free_requested":
            assert alive[address] == entry["size"] and address not in requested
            requested.add(address)
        else:
            assert entry["action"] == "free_completed" and alive.pop(address) == entry["size"]
            requested.remove(address)
        most = max(most, sum(alive.values()) if len(alive) < 500 else most)
    assert not requested
    assert {a - BASE for a in alive} == set(program.resident.values())
    if len(alive) < 500:
        assert most == program.peak_bytes
    times = [entry["time_us"] for entry in trace]
    assert times == sorted(times)


def test_a_free_is_requested_where_the_plan_let_go() -> None:
    program = offloading()
    (trace,) = torch_snapshot(program, timeline(offloading))["device_traces"]
    waiting = []
    for life in lifetimes(program):
        if life.kind == "resident":
            continue
        about = [
            e
            for e in trace
            if e["addr"] == BASE + life.address and e["frames"][0]["name"].startswith(f"{life.tensor} ")
        ]
        actions = [entry["action"] for entry in about]
        assert actions == ["alloc", "free_requested", "free_completed"] * (len(about) // 3)
        first, last = trace.index(about[1]), trace.index(about[2])
        waiting.append(last - first)
        assert (last > first + 1) <= (life.let_go < life.end) or len(about) > 3
    assert max(waiting) > 5, "on a slow link, blocks drain while others come and go"


@pytest.mark.parametrize("make", SMALL)
def test_a_segment_is_filled_without_gaps(make) -> None:
    (segment,) = torch_snapshot(make(), timeline(make))["segments"]
    at = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == at
        at += block["size"]
    assert at == segment["address"] + segment["total_size"]
    active = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
    assert sum(block["size"] for block in active) == segment["active_size"] == segment["allocated_size"]
    assert sum(block["requested_size"] for block in active) == segment["requested_size"]


def test_frames_say_what_a_block_is_for() -> None:
    (trace,) = torch_snapshot(evicting(), timeline(evicting))["device_traces"]
    for entry in trace[1:]:
        assert all(set(frame) == {"filename", "line", "name"} for frame in entry["frames"])
    said = {frame["filename"] for entry in trace for frame in entry["frames"]}
    assert {"map", "gradient map", "fate drop", "fate offload", "allocated in"} <= said


def test_the_file_is_what_the_viewer_can_read(tmp_path) -> None:
    path = tmp_path / "snapshot.pickle"
    write_torch_snapshot(path, evicting(), timeline(evicting))
    assert pickle.loads(path.read_bytes()) == torch_snapshot(evicting(), timeline(evicting))
    (trace,) = torch_snapshot(evicting(), timeline(evicting))["device_traces"]
    assert "unknown" in {entry["category"] for entry in trace}, "or some versions of it stop with an error"
    used = {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())}
    assert used <= UNDERSTOOD


@pytest.mark.parametrize("make", SMALL)
def test_pytorchs_tools_read_it(make) -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    snapshot = torch_snapshot(make(), timeline(make))
    assert "segments: 1" in viewer.segsum(snapshot)
    printed = viewer.trace(snapshot)
    managed = sum(i.op == "allocate" for i in make().instructions)
    assert printed.count("cudaMalloc") == 1 and printed.count("\ndel ") == managed
    flames = viewer.memory(snapshot, format_flamegraph=lambda lines: lines)
    assert "active_allocated" in flames and "inactive" in flames
    for plot in (viewer.trace_plot, viewer.segment_plot):
        assert "snapshot.pickle" in plot(snapshot)
    left = viewer.filter_alloc_free_pairs(snapshot)["device_traces"][0]
    assert sum(entry["action"] == "alloc" for entry in left) == len(make().resident)

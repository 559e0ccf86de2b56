"""Exports: Chrome traces keep their format, PyTorch's tools read snapshots, a replayed log has the same peak."""

from __future__ import annotations

import pickle
import pickletools
from collections import Counter
from typing import Any

import pytest

from refimpl.report.allocation_log import replay
from refimpl.report.exports import (
    BASE,
    chrome_trace,
    rmm_events,
    torch_snapshot,
    write_torch_snapshot,
)
from refimpl.report.figures import KINDS, memory_curve, pool_size
from refimpl.report.times import flows
from tests.refimpl.report.programs import SMALL, evicting, timeline

#: What each phase of event must have.
REQUIRED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "C": {"name", "pid", "ts", "args"},
}


def events(make: Any, *phases: str) -> list[dict[str, Any]]:
    return [event for event in chrome_trace(make(), timeline(make))["traceEvents"] if event["ph"] in phases]


@pytest.mark.parametrize("make", SMALL)
def test_every_event_has_what_its_phase_needs(make) -> None:
    found = events(make, *REQUIRED)
    assert len(found) == len(chrome_trace(make(), timeline(make))["traceEvents"]), "a phase that is not known"
    for event in found:
        assert set(event) == REQUIRED[event["ph"]] | {"ph"}
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
        nanoseconds = event.get("ts", 0) * 1000
        assert nanoseconds == int(nanoseconds), "a reader that cuts off fractions of nanoseconds loses nothing"


@pytest.mark.parametrize("make", SMALL)
def test_slices_of_a_stream_follow_one_another(make) -> None:
    end: dict[int, float] = {}
    for event in events(make, "X"):
        assert event["ts"] >= end.get(event["tid"], 0.0), "slices that overlap would be drawn as nested"
        end[event["tid"]] = event["ts"] + event["dur"]
    names = {event["tid"]: event["args"]["name"] for event in events(make, "M") if event["name"] == "thread_name"}
    assert set(end) <= set(names)
    assert list(names.values()) == [f"stream {name}" for name in make().streams]


@pytest.mark.parametrize("make", SMALL)
def test_every_launch_and_copy_is_a_slice_with_its_reason(make) -> None:
    program = make()
    slices = events(make, "X")
    ops = Counter(i.op for i in program.instructions)
    assert len(slices) == sum(ops[op] for op in ("launch", "copy out", "copy in", "compress", "decompress"))
    copies = [event for event in slices if event["cat"] in ("copy out", "copy in")]
    for op in ("copy out", "copy in"):
        expected = Counter((i.tensor.name, i.nbytes, i.why) for i in program.instructions if i.op == op)
        named = [event["args"] for event in copies if event["cat"] == op]
        assert Counter((args["tensor"], args["bytes"], args["reason"]) for args in named) == expected
    launches = [event for event in slices if event["cat"] in ("forward", "backward", "rebuild")]
    assert Counter(event["args"]["kernel"] for event in launches) == Counter(
        i.call.function for i in program.instructions if i.op == "launch"
    )
    assert all("algorithm" in e["args"] for e in launches if e["args"]["kernel"] == "conv.forward")


@pytest.mark.parametrize("make", SMALL)
def test_arrows_lead_from_a_copy_out_to_its_copy_in(make) -> None:
    slices, arrows = events(make, "X"), events(make, "s", "f")
    assert len(arrows) == 2 * len(flows(make()))
    assert Counter(Counter(arrow["id"] for arrow in arrows).values()) in ({2: len(arrows) // 2}, {})
    for start, finish in zip(arrows[::2], arrows[1::2], strict=True):
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert (start["id"], start["name"], start["cat"]) == (finish["id"], finish["name"], finish["cat"])
        assert start["ts"] <= finish["ts"]
        out, back = (
            [e["args"]["tensor"] for e in slices if e["cat"] == cat and e["tid"] == arrow["tid"] and encloses(e, arrow)]
            for cat, arrow in (("copy out", start), ("copy in", finish))
        )
        assert set(out) & set(back)


def encloses(event: dict[str, Any], arrow: dict[str, Any]) -> bool:
    """Whether an arrow is bound to a slice; one of no length begins and ends at once."""
    return event["ts"] <= arrow["ts"] < event["ts"] + max(event["dur"], 1 / 8)


@pytest.mark.parametrize("make", SMALL)
def test_counters_of_device_memory(make) -> None:
    program = make()
    counters = [event for event in events(make, "C") if event["name"] == "device bytes"]
    times = [event["ts"] for event in counters]
    assert times == sorted(set(times)), "one value a moment, in order"
    assert all(tuple(event["args"]) == KINDS for event in counters)
    totals = [sum(event["args"].values()) for event in counters]
    curve = memory_curve(program)
    assert max(totals) <= program.peak_bytes and totals[-1] == curve.total[-1]
    assert set(totals) <= set(curve.total.tolist())
    assert max(totals) > 0.8 * program.peak_bytes


# -- The memory snapshot -----------------------------------------------------------------------------------------------

#: What the viewer's own reader of pickles (MemoryViz.js) understands.
UNDERSTOOD = {
    "PROTO", "STOP", "FRAME", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "APPEND", "APPENDS",
    "LIST", "EMPTY_LIST", "DICT", "EMPTY_DICT", "SETITEM", "SETITEMS", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "NEWFALSE", "NEWTRUE", "NONE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE",
    "BINUNICODE",
}  # fmt: skip


@pytest.mark.parametrize("make", SMALL)
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


def test_the_file_is_what_the_viewer_can_read(tmp_path) -> None:
    path = tmp_path / "snapshot.pickle"
    write_torch_snapshot(path, evicting(), timeline(evicting))
    assert pickle.loads(path.read_bytes()) == torch_snapshot(evicting(), timeline(evicting))
    (trace,) = torch_snapshot(evicting(), timeline(evicting))["device_traces"]
    assert "unknown" in {entry["category"] for entry in trace}, "or some versions of it stop with an error"
    used = {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())}
    assert used <= UNDERSTOOD


def test_pytorchs_tools_read_it() -> None:
    make = evicting
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


# -- The allocation log ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", SMALL)
def test_a_replay_gives_the_programs_peak(make) -> None:
    program = make()
    events = rmm_events(program, timeline(make))
    assert all(event.pointer for event in events), "a null pointer would be a failure"
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)
    found = replay(events, program.setup.allocator.open(program.budget))
    assert found.fits and not found.unknown
    assert (found.statistics.peak, found.statistics.holes >= 1) == (program.peak_bytes, True)
    assert len(found.unfreed) == len(program.resident)

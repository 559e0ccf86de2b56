"""Allocation logs in RMM's format: read, written and replayed, and what is wrong with one said clearly.

`rmm_small_cnn.csv` is made up: three iterations of a small CNN's allocations, laid out as RMM's documentation shows
its logs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.memory import ALLOCATORS, Allocator, BestFit
from refimpl.report.allocation_log import Action, LogError, LoggedEvent, LogReplay, read_rmm, replay, write_rmm
from tests.messages import raises_naming

SMALL_CNN = Path(__file__).parents[2] / "data" / "rmm_small_cnn.csv"
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
MIB = 1 << 20

every = pytest.mark.parametrize("allocator", ALLOCATORS.values(), ids=ALLOCATORS.keys())


def log(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(header + "".join(line + "\n" for line in lines))
    return path


def test_a_line_is_read_as_rmm_means_it(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        "2342727,15:47:02.841961,allocate,0x10012400000,1048576,0",
        "1980043,14:21:32.661875,free,0x30a000000,256,0x2",
        "7,00:00:01.000000,allocate failure,(nil),17179869184,0x55d0c3a81f20",
    )
    assert read_rmm(path) == [
        LoggedEvent("allocate", 0x10012400000, 1048576, 15 * 3600 + 47 * 60 + 2.841961, 0, 2342727),
        LoggedEvent("free", 0x30A000000, 256, 14 * 3600 + 21 * 60 + 32.661875, 2, 1980043),
        LoggedEvent("allocate failure", 0, 17179869184, 1.0, 0x55D0C3A81F20, 7),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1,00:00:00.000001,allocate,0x100,5", "5 6"),
        ("1,00:00:00.000001,alloc,0x100,5,0", "action alloc allocate free"),
        ("1,00:00:00.000001,allocate,0xxyz,5,0", "pointer 0xxyz"),
        ("1,00:00:00.000001,allocate,0x100,-5,0", "size -5"),
        ("1,yesterday,free,0x100,5,0", "time yesterday"),
        ("1," + "9" * 400 + ",free,0x100,5,0", "15:47:02.841961"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = log(tmp_path, "1,00:00:00.000000,allocate,0x100,5,0", "", line, "1,00:00:09.000000,free,0x100,5,0")
    with raises_naming(LogError, path, 4, *says.split()):
        read_rmm(path)


@pytest.mark.parametrize(
    "text", ["", "1,00:00:00.000000,allocate,0x100,5,0\n", "Time,Thread\n", "\x00\x00\n", "\x89PNG\n"]
)
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, text: str) -> None:
    path = log(tmp_path, header=text)
    with raises_naming(LogError, "log.csv", 1):
        read_rmm(path)


events = st.builds(
    LoggedEvent,
    action=st.sampled_from(["allocate", "free", "allocate failure"]),
    pointer=st.integers(0, 2**64 - 1),
    nbytes=st.integers(0, 200 << 30),
    seconds=st.integers(0, 10**12).map(lambda microseconds: microseconds / 1e6),
    stream=st.integers(0, 2**64 - 1),
    thread=st.integers(0, 2**63),
)


@given(st.lists(events, max_size=20))
def test_what_was_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, written: list[LoggedEvent]) -> None:
    path = tmp_path_factory.mktemp("log") / "log.csv"
    write_rmm(path, written)
    read = read_rmm(path)
    assert [event.seconds for event in read] == pytest.approx([event.seconds for event in written], rel=0, abs=1e-7)
    assert [(e.action, e.pointer, e.nbytes, e.stream, e.thread) for e in read] == [
        (e.action, e.pointer, e.nbytes, e.stream, e.thread) for e in written
    ]


def recount(read: list[LoggedEvent]) -> tuple[int, Counter[str]]:
    """The most bytes alive at once, straight from the log's own pointers; and how often each action occurs."""
    alive: dict[int, int] = {}
    peak = 0
    for event in read:
        if event.action == "allocate":
            alive[event.pointer] = event.nbytes
        elif event.action == "free":
            alive.pop(event.pointer, None)
        peak = max(peak, sum(alive.values()))
    return peak, Counter(event.action for event in read)


@every
def test_the_small_cnn_fits_every_allocator(allocator: Allocator) -> None:
    read = read_rmm(SMALL_CNN)
    peak, actions = recount(read)
    result = replay(read, allocator.open(16 * MIB))
    assert result.fits and result.failures == []
    assert result.asked_peak == peak
    assert peak <= result.statistics.peak < peak + actions["allocate"] * allocator.granularity
    assert result.unknown == [0], "the log began after this block was allocated"
    assert [read[position].action for position in result.recorded_failures] == ["allocate failure"]
    assert len(result.unfreed) == 6, "the parameters stay"
    assert result.statistics.allocations == actions["allocate"]
    assert result.statistics.frees == actions["free"] - 1
    assert result.statistics.blocks == 6


def test_a_replay_says_where_the_first_failure_was() -> None:
    allocator = BestFit()
    read = read_rmm(SMALL_CNN)
    enough = replay(read, allocator.open(16 * MIB)).statistics.peak
    result = replay(read, allocator.open(enough // 2))
    assert not result.fits and result.first_failure is not None
    position = result.first_failure.position
    assert position == result.failures[0] and read[position].nbytes == result.first_failure.nbytes
    at = result.first_failure.statistics
    assert at.largest_hole < result.first_failure.nbytes and at.held + at.free_bytes == at.size <= enough // 2
    assert replay(read[:position], allocator.open(enough // 2)).fits
    assert result.statistics.failures == len(result.failures)
    assert result.unknown == [0], "the free of what did not fit is left out and is no surprise"
    assert len(result.unfreed) == 6


def run(*lines: tuple[Action, int, int]) -> LogReplay:
    """Replay (action, pointer, bytes) in a pool of ten granules."""
    return replay([LoggedEvent(*line) for line in lines], BestFit().open(10 * 512))


def test_what_is_odd_in_a_log_is_reported() -> None:
    result = run(
        ("free", 0x10, 1),
        ("allocate", 0x10, 100),
        ("allocate", 0x20, 100),
        ("free", 0x10, 100),
        ("free", 0x10, 100),
        ("allocate failure", 0, 100),
    )
    assert (result.unknown, result.unfreed, result.recorded_failures) == ([0, 4], [2], [5])
    assert result.statistics.held == 512 and result.asked_peak == 200

"""The allocation log: replayed in the program's own allocator, it gives the program's own peak."""

from __future__ import annotations

import pytest

from refimpl.report.allocation_log import read_rmm, replay
from refimpl.report.rmm_log import rmm_events, write_rmm_log
from tests.refimpl.report.programs import ALL, evicting, timeline


@pytest.mark.parametrize("make", ALL)
def test_a_replay_gives_the_programs_peak(make) -> None:
    program = make()
    found = replay(rmm_events(program, timeline(make)), program.setup.allocator.open(program.budget))
    assert found.fits and not found.unknown
    assert (found.statistics.peak, found.statistics.holes >= 1) == (program.peak_bytes, True)
    assert len(found.unfreed) == len(program.resident)


def test_the_file_reads_back(tmp_path) -> None:
    path = tmp_path / "log.csv"
    write_rmm_log(path, evicting(), timeline(evicting))
    events = rmm_events(evicting(), timeline(evicting))
    read = read_rmm(path)
    assert [(e.action, e.pointer, e.nbytes) for e in read] == [(e.action, e.pointer, e.nbytes) for e in events]
    assert [e.seconds for e in read] == pytest.approx([e.seconds for e in events], abs=1e-6)
    assert all(e.pointer for e in read), "a null pointer would be a failure"
    times = [e.seconds for e in events]
    assert times == sorted(times)

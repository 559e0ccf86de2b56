"""Faults of pictures and pages."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "draining bytes are counted with their tensor",
        "refimpl/report/figures.py",
        "        if life.let_go < life.end:\n            changes +=",
        "        if life.let_go > life.end:\n            changes +=",
        "tests/refimpl/report",
    ),
    Fault(
        "the JSON document's stall is the time in kernels",
        "refimpl/report/json.py",
        '"stall": timeline.stall',
        '"stall": timeline.busy("compute")',
        "tests/refimpl/report tests/refimpl/cli",
    ),
    Fault(
        "slower algorithms count as kernels",
        "refimpl/planner/losses.py",
        "launch.choice.seconds - fastest.seconds",
        "0.0",
        "tests/refimpl/report/test_attribution.py",
    ),
)

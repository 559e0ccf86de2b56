"""Faults of pictures and pages."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "the line of an interval is drawn at its slow-down, not at its seconds",
        "refimpl/report/comparison_picture.py",
        "np.transpose(slow_downs) * least",
        "np.transpose(slow_downs)",
        "tests/refimpl/report/test_pictures.py",
    ),
    Fault(
        "names in forward are said to keep nothing",
        "refimpl/report/uncounted.py",
        "if uses[tensor][-1].forward]",
        "if not uses[tensor][-1].forward]",
        "tests/refimpl/importing/test_any_module.py",
    ),
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
        "a trace's slices are on the wrong track",
        "refimpl/report/exports.py",
        '"tid": span.stream + 1, "ts": start',
        '"tid": span.stream, "ts": start',
        "tests/refimpl/report",
        slow=True,
    ),
    Fault(
        "slower algorithms count as kernels",
        "refimpl/planner/losses.py",
        "launch.choice.seconds - fastest.seconds",
        "0.0",
        "tests/refimpl/report/test_attribution.py",
    ),
)

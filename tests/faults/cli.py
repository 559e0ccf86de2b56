"""Faults of the command."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a plan that does not fit ends with status 0",
        "refimpl/cli/plan.py",
        "    return DOES_NOT_FIT\n",
        "    return DONE\n",
        "tests/refimpl/cli",
    ),
    Fault(
        "an interrupt ends with status 0",
        "refimpl/cli/__init__.py",
        'status, says = INTERRUPTED, "interrupted"',
        'status, says = DONE, "interrupted"',
        "tests/refimpl/cli/test_command.py",
    ),
    Fault(
        "the JSON document leaves out what would fit",
        "refimpl/cli/plan.py",
        '"cheapest": cheapest}',
        '"cheapest": None}',
        "tests/refimpl/cli",
    ),
    Fault(
        "a resumed run takes the algorithms that are the fastest here",
        "refimpl/cli/run.py",
        "path = options.like or (options.resume if",
        "path = options.like or (None if",
        "tests/refimpl/cli/test_run.py -k calibration",
        slow=True,
    ),
    Fault(
        "a name out of a file is printed with what a terminal obeys",
        "refimpl/cli/terminal.py",
        "return super().render_str(harmless(text), **how)",
        "return super().render_str(text, **how)",
        "tests/refimpl/test_damaged_files.py -k terminal_obeys",
    ),
)

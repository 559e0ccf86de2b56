"""Write every text that a fast test compares whole, after a change that is meant to change them.

    python -m tests.stored

Then read the difference before you commit it: each line of it is something that a user, a page or a picture shows.
"""

from __future__ import annotations

from runpy import run_module

MODULES = (
    "tests.refimpl.cli.test_golden", "tests.refimpl.report.test_whole",
    "tests.refimpl.importing.described_networks", "tests.refimpl.planner.test_listing",
)  # fmt: skip

if __name__ == "__main__":
    for module in MODULES:
        run_module(module, run_name="__main__")

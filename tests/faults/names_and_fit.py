"""Faults of names, budgets, what fits, and files that are read."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "1024 bytes are not 1 KiB",
        "refimpl/text.py",
        "        if nbytes >= unit:",
        "        if nbytes > unit:",
        "tests/refimpl/report tests/refimpl/test_text.py tests/refimpl/cli",
    ),
    Fault(
        "GB means GiB",
        "refimpl/names/budgets.py",
        '"gb": 10**9',
        '"gb": 1 << 30',
        "tests/refimpl/names",
    ),
    Fault(
        "the least budget is one step of the search too large",
        "refimpl/names/least_budget.py",
        "while enough - too_small > 1:",
        "while enough - too_small > 2:",
        "tests/refimpl/names tests/refimpl/cli/test_plan.py",
    ),
    Fault(
        "of the setups that would fit the slowest is offered",
        "refimpl/names/least_budget.py",
        "cheapest = min(found",
        "cheapest = max(found",
        "tests/refimpl/names tests/refimpl/points tests/refimpl/cli",
    ),
    Fault(
        "a pipe that is given as a file is waited for",
        "refimpl/text.py",
        'waits_not = getattr(os, "O_NONBLOCK", 0)',
        "waits_not = 0",
        "tests/refimpl/test_damaged_files.py -k no_file_is_refused",
    ),
    Fault(
        "a link in bits is taken for bytes",
        "refimpl/machine/own_machine.py",
        'if quantity.unit.startswith("B") and read and BITS.fullmatch(read["unit"]):',
        "if False:",
        "tests/refimpl/machine/test_own_machine.py",
    ),
    Fault(
        "half a line of a killed run is read as a row",
        "refimpl/points/many_plans.py",
        'complete = text[: text.rfind(b"\\n") + 1]',
        "complete = text",
        "tests/refimpl/points/test_many_plans.py",
    ),
    Fault(
        "two processes write one file of rows",
        "refimpl/points/many_plans.py",
        "            lock(file, path)\n",
        "",
        "tests/refimpl/points/test_many_plans.py",
    ),
    Fault(
        "rows of a module of one's own stay when the module changes",
        "refimpl/studies/grid/rows.py",
        "json.dumps([*self, own, measured, refimpl.__version__])",
        "json.dumps([*self, measured, refimpl.__version__])",
        "tests/refimpl/studies/grid",
    ),
    Fault(
        "a row of a file that has changed meanwhile is kept",
        "refimpl/points/many_plans.py",
        "if one.key == keys[one]:",
        "if keys[one]:",
        "tests/refimpl/points/test_many_plans.py",
    ),
    Fault(
        "processes that die here and there end a study",
        "refimpl/points/workers.py",
        "                    in_a_row = 0\n",
        "",
        "tests/refimpl/points/test_workers.py",
    ),
    Fault(
        "a task whose process was killed is forgotten",
        "refimpl/points/workers.py",
        "(dead if alone else suspects).extend(busy.values())",
        "(dead if alone else suspects).extend([])",
        "tests/refimpl/points/test_workers.py",
    ),
)

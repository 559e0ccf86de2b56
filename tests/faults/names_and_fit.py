"""Faults of names, budgets, what fits, and files that are read."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
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
        "half a line of a killed run is read as a row",
        "refimpl/points/many_plans.py",
        'complete = text[: text.rfind(b"\\n") + 1]',
        "complete = text",
        "tests/refimpl/points/test_many_plans.py",
    ),
    Fault(
        "a row of a file that has changed meanwhile is kept",
        "refimpl/points/many_plans.py",
        "if one.key == keys[one]:",
        "if keys[one]:",
        "tests/refimpl/points/test_many_plans.py",
    ),
    Fault(
        "a damaged row of a file is taken as it is",
        "refimpl/points/many_plans.py",
        "if wrong := fault(one):",
        "if (wrong := fault(one)) and number > 9:",
        "tests/refimpl/points/test_many_plans.py tests/refimpl/studies/grid",
    ),
    Fault(
        "a task whose process was killed is forgotten",
        "refimpl/points/workers.py",
        "(dead if alone else suspects).extend(busy.values())",
        "(dead if alone else suspects).extend([])",
        "tests/refimpl/points/test_workers.py",
    ),
)

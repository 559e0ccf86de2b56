"""Faults of the studies: figures, bounds, benches."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a point of the challenge that does not fit counts as the best",
        "refimpl/studies/challenge/score.py",
        "        return MOST",
        "        return 1.0",
        "tests/refimpl/studies/challenge",
    ),
    Fault(
        "Rotor's second forward costs nothing",
        "refimpl/studies/neighbours/rotor.py",
        "again = run[j] - run[s] + without(",
        "again = without(",
        "tests/refimpl/studies/optimum/test_rotor.py",
    ),
    Fault(
        "the enumeration ends before the optimum",
        "refimpl/studies/optimum/exhaustive.py",
        "best.planned_seconds * (1 - ROUNDING)",
        "best.planned_seconds * 0.5",
        "tests/refimpl/studies/optimum/test_exhaustive.py",
        slow=True,
    ),
    Fault(
        "the bound leaves the workspace of a single step out",
        "refimpl/studies/optimum/bound.py",
        "return max(used(network, step) + least_workspace(machine, step) for",
        "return max(used(network, step) for",
        "tests/refimpl/studies/optimum/test_bound.py",
    ),
    Fault(
        "the bound counts a map as there although it is away",
        "refimpl/studies/optimum/bound.py",
        "held - self.solver.qsum(self.absent[moment]) <=",
        "held - 0 * self.solver.qsum(self.absent[moment]) <=",
        "tests/refimpl/studies/optimum/test_bound.py",
        slow=True,
    ),
    Fault(
        "a published peak of SuperNeurons is another",
        "refimpl/studies/reproduce/superneurons/published.json",
        '"within": 0.02, "value": 1489.355}',
        '"within": 0.0, "value": 1489.355}',
        "tests/refimpl/studies/reproduce",
    ),
    Fault(
        "DTR's cost leaves out what would have to run again with it",
        "refimpl/studies/neighbours/rematerialization.py",
        "cost = sum(self.seconds[one] for one in (tensor, *again))",
        "cost = self.seconds[tensor]",
        "tests/refimpl/studies/neighbours",
    ),
    Fault(
        "a program that is read may use algorithms that the machine does not have",
        "refimpl/studies/program_file.py",
        "        if (found is None) != (value is None):",
        "        if False:",
        "tests/refimpl/studies/test_program_file.py",
    ),
)

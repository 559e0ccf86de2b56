"""Faults of the studies: figures, bounds, benches."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "performance lost is a share of the oracle's time",
        "refimpl/studies/reproduce/vdnn/figures.py",
        "None if self.performance is None else 1 - self.performance",
        "None if self.performance is None else 1 / self.performance - 1",
        "tests/refimpl/studies/reproduce/vdnn",
    ),
    Fault(
        "Rotor's second forward costs nothing",
        "refimpl/studies/optimum/rotor.py",
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
        "half a line of a killed run is read as a point",
        "refimpl/studies/pareto/points.py",
        'complete = text[: text.rfind("\\n") + 1]',
        "complete = text",
        "tests/refimpl/studies/pareto/test_points.py",
        slow=True,
    ),
    Fault(
        "the link of AccUDNN's four claims ignores that the workers also compute",
        "refimpl/studies/reproduce/accudnn/figures.py",
        "reduce_seconds = seconds * (workers / scaling - 1)",
        "reduce_seconds = seconds * workers / scaling",
        "tests/refimpl/studies/reproduce/accudnn",
    ),
    Fault(
        "a figure that is far too small is shown as met",
        "refimpl/studies/reproduce/published.py",
        "abs(self.deviation) <= CLOSE",
        "self.deviation <= CLOSE",
        "tests/refimpl/studies/reproduce",
    ),
    Fault(
        "a published peak of SuperNeurons is another",
        "refimpl/studies/reproduce/superneurons/published.py",
        '"MiB", "P", TEXT, CLOSE_MIB),\n    "offload"',
        '"MiB", "P", TEXT, EXACTLY),\n    "offload"',
        "tests/refimpl/studies/reproduce/superneurons",
    ),
    Fault(
        "a fixed cost a call leaves out what a bias costs",
        "refimpl/studies/reproduce/superneurons/fixed_cost.py",
        '"conv.forward": 2, "conv.backward_filter": 2,',
        '"conv.forward": 1, "conv.backward_filter": 1,',
        "tests/refimpl/studies/reproduce/superneurons",
    ),
    Fault(
        "a median of the summary keeps signs",
        "refimpl/studies/reproduce/evaluation.py",
        "        abs(figure.deviation)\n",
        "        figure.deviation\n",
        "tests/refimpl/studies/reproduce",
    ),
    Fault(
        "a block begins in the middle of a residual branch",
        "refimpl/studies/transformers/yardsticks.py",
        "if read_until <= number:",
        "if read_until <= number + 1:",
        "tests/refimpl/studies/transformers",
    ),
    Fault(
        "what a cache evicts does not count as moved",
        "refimpl/studies/transformers/outcomes.py",
        '"on_demand_bytes", "evicted_bytes")',
        '"on_demand_bytes")',
        "tests/refimpl/studies/transformers",
    ),
    Fault(
        "what is missed beside PyTorch is told as met",
        "refimpl/studies/bench/attention_and_block.py",
        "verdict(row.ratio <= ASKED[row.path])",
        "verdict(1 / row.ratio <= ASKED[row.path])",
        "tests/refimpl/studies/bench/test_attention_and_block.py",
    ),
    Fault(
        "probabilities that are computed again are counted by their layers' inputs",
        "refimpl/studies/transformers/probability_maps.py",
        "for one in rebuilt for y in one.call.writes",
        "for one in rebuilt for y in one.call.reads",
        "tests/refimpl/studies/transformers/test_outcomes.py",
    ),
)

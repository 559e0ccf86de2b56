"""Faults of what carries a plan out in PyTorch."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a block is freed while its copy to the host still runs",
        "refimpl/torch/blocks.py",
        "        self._arrived()  # the allocator may give the bytes to the next kernel\n",
        "        self.copying = None\n",
        "tests/refimpl/torch/test_transfers.py",
    ),
    Fault(
        "batch normalisation that runs again updates its statistics again",
        "refimpl/torch/running_again.py",
        "args[place] = None if args[place] is None else args[place].clone()",
        "args[place] = args[place]",
        "tests/refimpl/torch/test_planned.py",
    ),
    Fault(
        "a clone that an operator in place saves is taken for a mask that only the operator itself can make",
        "refimpl/torch/iteration.py",
        "if block is own and before and _is_clone(made, out):",
        "if False:",
        "tests/refimpl/torch/test_predictions.py",
    ),
    Fault(
        "what an operator's backward takes for a moment is not counted",
        "refimpl/importing/any_module.py",
        "            backward_levels=seen.backward_levels,\n",
        "",
        "tests/refimpl/torch/test_predictions.py",
    ),
)

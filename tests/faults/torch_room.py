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
)

"""The guest lab: fill in the five functions, in this order.  Test them: pytest test_guest.py -x

`chain` is a list of `Block` (simulator.py has its fields); a budget is in MiB, a time in microseconds.  A plan is a
string with a letter for each block: k keeps its maps, c checkpoints it, o offloads its maps.
"""

from __future__ import annotations

from simulator import Block, simulate  # noqa: F401  (simulate is for tasks 2 to 4)


def peak(chain: list[Block], plan: str) -> int:
    """Task 1: the most MiB that a plan holds, without the simulator."""
    raise NotImplementedError("peak: the largest sum over the blocks: inputs, kept rests, its own, and what arrives")


def time(chain: list[Block], plan: str) -> int:
    """Task 1: the microseconds of an iteration, without the simulator."""
    raise NotImplementedError("time: walk forward, then back; remember how long the copy under way still takes")


def checkpointing(chain: list[Block], budget: int) -> str:
    """Task 2: the fastest plan of k and c whose peak is at most the budget."""
    raise NotImplementedError("checkpointing: block by block, a table of MiB kept so far → least time added, and plan")


def offloading(chain: list[Block], budget: int) -> str:
    """Task 3: a plan of k and o that fits, in which no kernel waits, and no block leaves that need not."""
    raise NotImplementedError("offloading: from the first block on, those without a wait, until it fits; then undo")


def both(chain: list[Block], budget: int) -> str:
    """Task 4: a plan of k, c and o within the budget, at most 3 % slower than the fastest one."""
    raise NotImplementedError("both: the table of task 2, with the state of the copies; or change pairs of letters")

"""SuperNeurons on the device at hand: its heap against driver calls, the largest batch in a budget, the budget's price.

- The heap (§3.3.1): an iteration with all memory from one chunk, and the same iteration with a real cuMemAlloc for
  every allocation and a real cuMemFree for every free, at their places in it (`refimpl.backend.driver_calls`).  On a
  GPU only: a CPU has no driver.
- The largest batch (§4): the planner says how many images fit the budget, and iterations of so many are trained.
- The budget: a policy within it, and the same convolutions with all of the device's memory.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from refimpl.machine import Machine
from refimpl.machine.measure import device_at_hand
from refimpl.memory import BlockHeap, DriverCalls
from refimpl.network import Network
from refimpl.network.zoo import build
from refimpl.planner import DoesNotFit, Program, Setup, plan
from refimpl.registry import planning, presets
from refimpl.reproduce import measured
from refimpl.reproduce.measured import Comparison, Run
from refimpl.reproduce.superneurons import capacity
from refimpl.reproduce.superneurons.published import DRIVER_SHARE
from refimpl.superneurons import presets as stages
from refimpl.text import duration, size

HEAP_NETWORK, HEAP_BATCH = "resnet50:superneurons", 32  #: the published share is that of ResNet-50
LARGEST_NETWORK = "alexnet:superneurons"
MOVED_NETWORK, MOVED_BATCH = "resnet50:superneurons", 256  #: more than 12 GiB hold: some of it must move

Watch = Callable[[str], None]
Table = tuple[str, list[str], list[list[str]]]  #: title, head, rows


@dataclass(frozen=True)
class Pools:
    """One network with the heap, and with a call of the driver for every allocation and every free."""

    network: str
    heap: Run
    calls: Run
    planned_heap: float  #: seconds of an iteration by the model of the device
    planned_calls: float

    @property
    def share(self) -> float:
        """Of an iteration's time, what the calls make it longer."""
        return 1 - self.heap.seconds / self.calls.seconds

    @property
    def share_inside(self) -> float:
        """Of an iteration's time, what passes inside the calls, as a profiler counts: a free's waiting is in it too."""
        assert self.calls.driver_calls is not None
        return self.calls.driver_calls.seconds / self.calls.seconds


@dataclass(frozen=True)
class Measured:
    device: str
    date: str
    network: str  #: that has the largest batch
    budget_bytes: int
    iterations: int
    pools: Pools | None  #: None on a CPU
    largest: tuple[Run, ...]  #: the policy's and the baseline's, each with the most images that fit
    comparison: Comparison | None  #: None where the device cannot hold everything

    def json(self) -> str:
        document: dict[str, Any] = asdict(self)
        if self.pools:
            document["pools"] |= {"share": self.pools.share, "share_inside": self.pools.share_inside}
        if self.comparison:
            document["comparison"]["slowdown"] = self.comparison.slowdown
        return json.dumps(document, indent=1)

    def tables(self) -> list[Table]:
        """For people, one a question."""
        first = [pools_table(self.pools)] if self.pools else []
        within = f"within {size(self.budget_bytes)}"
        names = ["", *(run.setup for run in self.largest)]
        tables = [*first, (f"{self.network}, the most images {within}", names, measured.side_by_side(self.largest))]
        if self.comparison:
            what = f"{self.comparison.network}({self.comparison.batch}) {within}, and without"
            tables.append((what, *measured.table(self.comparison)))
        return tables

    def notes(self) -> list[str]:
        """What is missing, and why."""
        found = []
        if len(self.largest) < 2:
            found.append(f"Not measured: the baseline; not one image of it fits {size(self.budget_bytes)}.")
        if self.pools is None:
            found.append("Not measured: the heap against driver calls; a CPU has no driver to call.")
        if self.comparison is None:
            found.append("Not measured: the same without a budget; the device cannot hold it.")
        return found


def steps(backend: str, iterations: int) -> int:
    """How often `measure` calls its `watch`."""
    return (6 if backend == "cuda" else 4) * iterations


def measure(
    network: str | None,
    batch: int | None,
    policy: str,
    machine: Machine,
    budget: str,
    backend: str,
    iterations: int = 5,
    watch: Watch = lambda text: None,
) -> Measured:
    """All three.

    `network` is trained in each; None: AlexNet for the largest batch, ResNet-50 for the others.  `batch` images, for
    the heap and within the budget; None: as many as its paper's, and the most that fit (without a network: 32 and 256).
    `budget` is a text such as "12GiB".
    """
    wanted = presets.setup(policy)
    name = network or LARGEST_NETWORK
    nbytes = planning.budget_bytes(budget, build(name, batch), machine)
    first = largest(name, wanted, machine, nbytes)
    if first is None:
        planning.plan(build(name, 1), wanted, machine, nbytes)  # says what does not fit, and what would
        raise AssertionError("one image fits, and was not found")
    compared = build(network, batch or first.network.batch) if network else build(MOVED_NETWORK, batch or MOVED_BATCH)
    planning.plan(compared, wanted, machine, nbytes)  # what does not fit is said before anything is measured
    pools = None
    if backend == "cuda":
        with_driver = build(network, batch) if network else build(HEAP_NETWORK, batch or HEAP_BATCH)
        pools = against_driver_calls(with_driver, machine, iterations, watch)
    programs = [first, largest(name, capacity.SETUPS["baseline"], machine, nbytes)]
    return Measured(
        device=device_at_hand().name,
        date=datetime.date.today().isoformat(),
        network=first.network.name,
        budget_bytes=nbytes,
        iterations=iterations,
        pools=pools,
        largest=tuple(measured.measure(program, backend, iterations, watch) for program in programs if program),
        comparison=within_and_without(compared, wanted, machine, nbytes, backend, iterations, watch),
    )


# -- the heap against driver calls -------------------------------------------------------------------------------------


def against_driver_calls(network: Network, machine: Machine, iterations: int, watch: Watch) -> Pools:
    """With liveness analysis alone, which allocates and frees every tensor; on a GPU."""
    heap, calls = (
        plan(network, stages.liveness().replace(name=made.name, allocator=made), machine, machine.memory_bytes)
        for made in (BlockHeap(), DriverCalls())
    )
    return Pools(
        network=f"{network.name}({network.batch})",
        heap=measured.measure(heap, "cuda", iterations, watch),
        calls=measured.measure(calls, "cuda", iterations, watch),
        planned_heap=heap.planned_seconds,
        planned_calls=calls.planned_seconds,
    )


def pools_table(pools: Pools) -> Table:
    heap, calls, times = pools.heap, pools.calls, pools.calls.driver_calls
    assert times is not None

    def each(seconds: float, count: int) -> str:
        return f"{duration(seconds)}, {duration(seconds / count)} each"

    rows = [
        ["an iteration", duration(heap.seconds), duration(calls.seconds)],
        ["images a second", f"{heap.images_rate:,.1f}", f"{calls.images_rate:,.1f}"],
        ["allocations, frees", "0", f"{times.allocations:,}, {times.frees:,}"],
        ["in cuMemAlloc", "", each(times.allocating, times.allocations)],
        ["in cuMemFree, its waiting included", "", each(times.freeing, times.frees)],
        ["share of the iteration inside the calls", "", f"{pools.share_inside:.1%}"],
        ["share of the iteration that they cost", "", f"{pools.share:.1%}"],
        ["published share (ResNet-50)", "", f"{DRIVER_SHARE.value:g} {DRIVER_SHARE.unit}"],
        ["an iteration, by the model of the device", duration(pools.planned_heap), duration(pools.planned_calls)],
    ]
    return f"{pools.network}: the heap, and a call of the driver an allocation", ["", heap.setup, calls.setup], rows


# -- the budget --------------------------------------------------------------------------------------------------------


def largest(name: str, setup: Setup, machine: Machine, budget: int) -> Program | None:
    """The program of as many images as the planner finds room for in `budget` bytes; None if not one image fits."""
    program = capacity.largest_batch(name, setup, machine, budget).program
    if program is not None:
        program.verify()
    return program


def within_and_without(
    network: Network, setup: Setup, machine: Machine, budget: int, backend: str, iterations: int, watch: Watch
) -> Comparison | None:
    """None where the device is too small for everything; within the budget it must fit."""
    within = plan(network, setup, machine, budget)
    try:
        plan(network, measured.everything_held(measured.SameAlgorithms.as_in(within)), machine, machine.memory_bytes)
    except DoesNotFit:
        return None
    return measured.compare(network, setup, machine, budget, backend, iterations, watch)


# -- written down ------------------------------------------------------------------------------------------------------


def write(found: Measured, root: Path) -> Iterator[Path]:
    """The tables as Markdown and JSON, in docs/measurements."""
    return measured.write_tables(found, root, "superneurons", "SuperNeurons")

"""SuperNeurons on this computer: its heap against driver calls, the largest batch in a budget, the budget's price.

- The heap (§3.3.1): an iteration with all memory from one chunk, and the same iteration with a real cuMemAlloc for
  every allocation and a real cuMemFree for every free, at their places in it (`refimpl.backend.driver_calls`).  On a
  GPU only: a CPU has no driver.
- The largest batch (§4): the planner finds the most images that fit the budget, and they are trained.
- The budget: a policy within it, and the same convolutions with all of the device's memory.
- Another framework: PyTorch's largest batch in the same budget, with and without its ways of saving memory; on a CPU
  only.  The paper has Caffe, MXNet, Torch and TensorFlow on a GPU (Figures 13 and 14).  PyTorch's bytes are those of
  all tensors that an iteration holds at once, without scratch memory inside an operator.  It has one thread: several
  of them wait for each other on a processor that others use too.  It is optional: `pip install torch`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from refimpl.machine import Machine
from refimpl.machine.devices import device_at_hand
from refimpl.machine.timing import Run as Timed
from refimpl.machine.timing import by, least_in_turns
from refimpl.memory import BlockHeap, DriverCalls
from refimpl.names import by_name, presets
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Program, Setup, plan
from refimpl.report.tables import Column, Table, count, in_units, percent
from refimpl.studies.bench import pytorch
from refimpl.studies.reproduce import measured
from refimpl.studies.reproduce.measured import Comparison, Measurement, Request, Run, side_by_side
from refimpl.studies.reproduce.published import Watch
from refimpl.studies.reproduce.superneurons import capacity
from refimpl.studies.reproduce.superneurons.memory import FIGURES
from refimpl.superneurons import presets as stages
from refimpl.text import duration, size

HEAP_NETWORK, HEAP_BATCH = "resnet50:superneurons", 32  #: the published share is that of ResNet-50
LARGEST_NETWORK = "alexnet:superneurons"
MOVED_NETWORK, MOVED_BATCH = "resnet50:superneurons", 256  #: more than 12 GiB hold: some of it must move


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
        """The share of an iteration's time that the calls add."""
        return 1 - self.heap.seconds / self.calls.seconds

    @property
    def share_inside(self) -> float:
        """The share of an iteration's time inside the calls, as a profiler counts: a free's waiting is in it too."""
        assert self.calls.driver_calls is not None
        return self.calls.driver_calls.seconds / self.calls.seconds


@dataclass(frozen=True)
class TorchRun:
    """PyTorch's largest batch in a budget.  Bytes, seconds of an iteration."""

    way: str
    batch: int
    peak_bytes: int
    pinned_bytes: int  #: of the copies on the host, at most
    seconds: float

    @property
    def images_rate(self) -> float:
        return self.batch / self.seconds


@dataclass(frozen=True, kw_only=True)
class MeasuredSuperNeurons(Measurement):
    """All four; `network` is that of the largest batch."""

    budget_bytes: int
    pools: Pools | None  #: None on a CPU
    largest: tuple[Run, ...]  #: the policy's and the baseline's, each with the most images that fit
    comparison: Comparison | None  #: None where the device cannot hold everything
    torch: tuple[TorchRun, ...]  #: PyTorch's; empty on a GPU, and without PyTorch
    torch_version: str = ""

    def tables(self) -> list[Table]:
        within = f"within {size(self.budget_bytes)}"
        largest = side_by_side(f"{self.network}, the most images {within}", self.largest)
        pools = [pools_table(self.pools)] if self.pools else []
        torch = [torch_table(self)] if self.torch else []
        return [*pools, largest, *torch, *(self.comparison.tables() if self.comparison else [])]

    def notes(self) -> list[str]:
        missing = {
            f"the baseline; not one image of it fits {size(self.budget_bytes)}": len(self.largest) < 2,
            "the heap against driver calls; a CPU has no driver to call": self.pools is None,
            "the same without a budget; the device cannot hold it": self.comparison is None,
            "PyTorch in the same budget; that comparison is for a CPU": self.pools is not None,
            "PyTorch in the same budget; it is not installed: pip install torch": not (
                self.pools or self.torch_version
            ),
        }
        return [f"Not measured: {what}." for what, is_missing in missing.items() if is_missing]


def rounds(backend: str, iterations: int) -> int:
    """How often `measure` calls its progress callback."""
    if backend != "cpu":
        return 6 * iterations
    return (4 + (len(pytorch.WAYS) if pytorch.at_hand() else 0)) * iterations


def measure(ask: Request) -> MeasuredSuperNeurons:
    """All four.

    The request's network is trained in each; without one, AlexNet for the largest batch and ResNet-50 for the others.
    Its batch is that of the heap and of the comparison; without one, the network's own for the heap, and the largest
    that fits (without a network: 32 and 256).
    """
    wanted, machine = presets.setup(ask.policy), ask.machine
    name = ask.network or LARGEST_NETWORK
    nbytes = by_name.budget_bytes(ask.budget, build(name, ask.batch), machine)
    first = largest(name, wanted, machine, nbytes)
    if first is None:
        by_name.plan(build(name, 1), wanted, machine, nbytes)  # raises, and says what does not fit and what would
        raise AssertionError("one image fits, and was not found")
    moved = ask.batch or (first.network.batch if ask.network else MOVED_BATCH)
    compared = build(ask.network or MOVED_NETWORK, moved)
    within = by_name.plan(compared, wanted, machine, nbytes)  # raises before anything is measured
    pools = against_driver_calls(ask.build(HEAP_NETWORK, HEAP_BATCH), ask) if ask.backend != "cpu" else None
    programs = [first, largest(name, capacity.SETUPS["baseline"], machine, nbytes)]
    runs = tuple(ask.run(program) for program in programs if program)
    held = measured.everything_held(measured.SameAlgorithms.as_in(within))
    comparison = ask.compare(compared, nbytes) if attempt(compared, held, machine, machine.memory_bytes) else None
    beside = pytorch.WAYS if ask.backend == "cpu" and pytorch.at_hand() else ()
    found = [largest_by_torch(partial(build, name), way, nbytes, ask.iterations, ask.watch) for way in beside]
    return MeasuredSuperNeurons(
        device=device_at_hand().name,
        network=first.network.name,
        iterations=ask.iterations,
        budget_bytes=nbytes,
        pools=pools,
        largest=runs,
        comparison=comparison,
        torch=tuple(run for run in found if run),
        torch_version=pytorch.version() if beside else "",
    )


def largest(name: str, setup: Setup, machine: Machine, budget: int) -> Program | None:
    """The program of the most images that fit `budget` bytes; None if not one image fits."""
    program = capacity.largest_batch(name, setup, machine, budget).program
    if program is not None:
        program.verify()
    return program


def largest_by_torch(
    build: Callable[[int], Network], way: str, budget: int, iterations: int, watch: Watch
) -> TorchRun | None:
    """The most images with which PyTorch trains a network within the budget; None if not one image fits.

    Args:
        build: batch → the network.
        way: one of `WAYS`.
        budget: bytes.
        iterations: timed ones; the least time counts.
        watch: called with the name of each timed iteration.
    """

    @cache
    def device_bytes(batch: int) -> int:
        return pytorch.TorchTraining(build(batch), way).peak().device

    over = 1
    while device_bytes(over) <= budget:
        over *= 2
    fits = bisect_right(range(1, over), budget, key=device_bytes)
    if not fits:
        return None
    training = pytorch.TorchTraining(build(fits), way)
    peak = training.peak()

    def watched(run: Timed, times: int) -> float:
        watch(f"{way}: an iteration")
        return by()(run, times)

    seconds = least_in_turns({way: training.step}, watched, iterations)[way]
    return TorchRun(way, fits, peak.device, peak.host, seconds)


def against_driver_calls(network: Network, ask: Request) -> Pools:
    """The heap against driver calls, with liveness analysis alone, which allocates and frees every tensor; on a GPU."""
    heap, calls = (
        plan(network, stages.liveness().replace(name=made.name, allocator=made), ask.machine, ask.machine.memory_bytes)
        for made in (BlockHeap(), DriverCalls())
    )
    name = f"{network.name}({network.batch})"
    return Pools(name, ask.run(heap), ask.run(calls), heap.planned_seconds, calls.planned_seconds)


TORCH = (
    Column("images", lambda pair: pair[0].batch, count), Column("peak", lambda pair: pair[0].peak_bytes, size),
    Column("on the host", lambda pair: pair[0].pinned_bytes, size),
    Column("an iteration", lambda pair: pair[0].seconds, duration),
    Column("images a second", lambda pair: pair[0].images_rate, in_units(1)),
    Column("images, × plain", lambda pair: pair[0].batch / pair[1].batch, "{:.2f} ×".format),
    Column("time an image, × plain", lambda pair: pair[1].images_rate / pair[0].images_rate, "{:.2f} ×".format),
)  # fmt: skip


def torch_table(found: MeasuredSuperNeurons) -> Table:
    """The largest batches in the budget: ours, and PyTorch's; each beside its own framework's plain way."""

    def pairs(runs: Sequence[Run] | Sequence[TorchRun], plain: str) -> list[tuple[Run | TorchRun, Run | TorchRun]]:
        named = {run.setup if isinstance(run, Run) else run.way: run for run in runs}
        return [(run, named.get(plain, run)) for run in named.values()]

    ours, theirs = pairs(found.largest[::-1], "baseline"), pairs(found.torch, pytorch.PLAIN)
    names = [*(run.setup for run in found.largest[::-1]), *(f"PyTorch, {run.way}" for run in found.torch)]
    title = f"{found.network} beside {found.torch_version} on one thread, within {size(found.budget_bytes)}"
    return Table.side_by_side(title, names, [*ours, *theirs], TORCH)


def pools_table(pools: Pools) -> Table:
    """An iteration with the heap and with driver calls, and the time in the calls."""
    heap, calls, times = pools.heap, pools.calls, pools.calls.driver_calls
    assert times is not None
    share = FIGURES.one("driver share")

    def each(seconds: float, count: int) -> str:
        return f"{duration(seconds)}, {duration(seconds / count)} each"

    rows = [
        ["an iteration", duration(heap.seconds), duration(calls.seconds)],
        ["images a second", f"{heap.images_rate:,.1f}", f"{calls.images_rate:,.1f}"],
        ["allocations, frees", "0", f"{times.allocations:,}, {times.frees:,}"],
        ["in cuMemAlloc", "", each(times.allocating, times.allocations)],
        ["in cuMemFree, its waiting included", "", each(times.freeing, times.frees)],
        ["share of the iteration inside the calls", "", percent(pools.share_inside)],
        ["share of the iteration that they cost", "", percent(pools.share)],
        ["published share (ResNet-50)", "", f"{share.value:g} {share.unit}"],
        ["an iteration, by the model of the device", duration(pools.planned_heap), duration(pools.planned_calls)],
    ]
    title = f"{pools.network}: the heap, and a call of the driver for each allocation"
    return Table(title, ["", heap.setup, calls.setup], rows)

"""The time that SuperNeurons' heap saves over a driver call for every allocation and every free (§3.3.1).

The paper's reason for the heap is one figure: cudaMalloc and cudaFree took 36 % of ResNet-50's training time.  It does
not give the time of one call, on which that share depends, so `against_driver_calls` gives both: the share at the
machine's seconds a call, and the seconds a call that give the paper's share.  The heap's own work is not counted.

The speeds of Table 2 are compared with the second: one number, fitted to the text's share for ResNet-50, and tried on
six networks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from refimpl.machine import Machine
from refimpl.memory import UNLIMITED, DriverCalls
from refimpl.network import Network
from refimpl.planner import Setup, plan
from refimpl.reproduce.published import Found, Reproduced, Watch
from refimpl.reproduce.superneurons import published
from refimpl.reproduce.superneurons.figures import FASTEST, GPUS, K40C, network
from refimpl.reproduce.superneurons.published import DRIVER_SHARE
from refimpl.superneurons import Heap
from refimpl.superneurons import presets as stages


@dataclass(frozen=True)
class PoolStudy:
    """One iteration with the heap, and with a driver call for every allocation and every free; seconds, simulated.

    `allocate_seconds` and `free_seconds` are the machine's.  Those of the machines that have a name are an assumption
    of this project, a round figure and not a measurement; in both calls the whole device waits.
    """

    network: str
    batch: int
    machine: str
    setup: str
    allocations: int  #: an iteration
    frees: int
    allocate_seconds: float  #: a call
    free_seconds: float
    seconds_heap: float
    seconds_driver: float

    @property
    def calls(self) -> int:
        return self.allocations + self.frees

    @property
    def seconds_in_calls(self) -> float:
        """Added by driver calls to an iteration."""
        return self.seconds_driver - self.seconds_heap

    @property
    def share_of_driver_calls(self) -> float:
        """Of an iteration with driver calls; the paper's is 0.36 for ResNet-50."""
        return self.seconds_in_calls / self.seconds_driver

    @property
    def speed(self) -> float:
        """The speed with the heap over that with driver calls."""
        return self.seconds_driver / self.seconds_heap

    @property
    def call_seconds_published(self) -> float:
        """The mean time of a call with which the share is the published one."""
        share = DRIVER_SHARE.value / 100
        return self.seconds_heap * share / (1 - share) / self.calls


def against_driver_calls(network: Network, machine: Machine, setup: Setup | None = None) -> PoolStudy:
    """The heap against the driver: by default with liveness analysis alone, which allocates and frees every tensor."""
    setup = setup or stages.liveness()
    heap = plan(network, setup.replace(allocator=Heap()), machine, UNLIMITED)
    driver = plan(network, setup.replace(allocator=DriverCalls()), machine, UNLIMITED)
    trace = driver.allocation_trace()
    allocations = sum(event.nbytes > 0 for event in trace)
    return PoolStudy(
        network=network.name,
        batch=network.batch,
        machine=machine.name,
        setup=setup.name,
        allocations=allocations,
        frees=len(trace) - allocations,
        allocate_seconds=machine.allocate_seconds,
        free_seconds=machine.free_seconds,
        seconds_heap=heap.simulate().seconds,
        seconds_driver=driver.simulate().seconds,
    )


# -- Table 2 -----------------------------------------------------------------------------------------------------------


def pool(watch: Watch) -> Found:
    """The heap against one driver call an allocation, for the networks and the batches of the paper's Table 2."""
    found: list[Reproduced] = []
    watch(K40C.name)
    assumed, timed = pool_studies(K40C), pool_studies(with_calls_of_the_text(K40C))
    watch(GPUS[1].name)
    resnet = assumed["resnet50"]
    wanted = f"the published share is that of {1e6 * resnet.call_seconds_published:.0f} µs"
    note = f"on a {resnet.machine}, {_call(resnet)}, an assumption; {wanted}"
    found.append(Reproduced(published.DRIVER_SHARE, 100 * resnet.share_of_driver_calls, note))
    found += table2(K40C, timed, assumed)
    return Found(found, [*assumed.values(), *timed.values(), *pool_studies(GPUS[1]).values()])


def with_calls_of_the_text(machine: Machine) -> Machine:
    """A machine whose driver calls take so long that they take the share of ResNet-50's time that the text has."""
    batch = published.FASTER_WITH_POOL["resnet50"].batch
    seconds = against_driver_calls(network("resnet50", batch), machine, FASTEST).call_seconds_published
    return replace(machine, allocate_seconds=seconds, free_seconds=seconds)


def pool_studies(machine: Machine) -> dict[str, PoolStudy]:
    """Network of Table 2 → its iteration with the heap and with driver calls."""
    return {
        name: against_driver_calls(network(name, theirs.batch), machine, FASTEST)
        for name, theirs in published.FASTER_WITH_POOL.items()
    }


def table2(
    machine: Machine, timed: dict[str, PoolStudy] | None = None, assumed: dict[str, PoolStudy] | None = None
) -> list[Reproduced]:
    """Table 2, with the time of a driver call that gives the text's share of ResNet-50's time."""
    timed = timed or pool_studies(with_calls_of_the_text(machine))
    found = []
    for name, theirs in published.FASTER_WITH_POOL.items():
        study = timed[name]
        how = f"{_call(study)}, from the text's share"
        other = f"; {_call(assumed[name])}, assumed: {assumed[name].speed:.2f}" if assumed else ""
        found += [
            Reproduced(theirs.calls, study.batch / study.seconds_driver, how),
            Reproduced(theirs.pool, study.batch / study.seconds_heap, f"simulated on a {study.machine}"),
            Reproduced(theirs.ratio, study.speed, how + other),
        ]
    return found


def _call(study: PoolStudy) -> str:
    return f"{1e6 * study.allocate_seconds:.0f} µs a call"

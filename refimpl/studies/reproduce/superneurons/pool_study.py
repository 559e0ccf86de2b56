"""The time that SuperNeurons' heap saves over a driver call for every allocation and every free (§3.3.1).

The paper's reason for the heap is one figure: cudaMalloc and cudaFree took 36 % of ResNet-50's training time.  It does
not give the time of one call, on which that share depends, so `against_driver_calls` gives both: the share at the
machine's seconds a call, and the seconds a call that give the paper's share.  The heap's own work is not counted.

Table 2 is compared with two numbers fitted to ResNet-50 alone: a call of the driver takes as long as gives the text's
share, and a call of a library costs as much more as gives the speed of ResNet-50 with the pool.  All other lines, the
five other networks among them, have not been seen by the fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from refimpl.machine import Machine
from refimpl.memory import UNLIMITED, DriverCalls
from refimpl.network import Network
from refimpl.planner import Setup, plan
from refimpl.studies.reproduce.published import Found, Reproduced, Watch
from refimpl.studies.reproduce.superneurons import published
from refimpl.studies.reproduce.superneurons.figures import FASTEST, GPUS, K40C, network
from refimpl.studies.reproduce.superneurons.fixed_cost import FixedCost, library_calls
from refimpl.studies.reproduce.superneurons.published import DRIVER_SHARE
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
    library_calls: int  #: an iteration
    fixed_seconds: float  #: a call of a library, more than its kernel; 0 but for a `FixedCost`

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
        library_calls=sum(library_calls(call) for step in network.steps for call in step.calls),
        fixed_seconds=machine.call_seconds if isinstance(machine, FixedCost) else 0.0,
    )


# -- Table 2 -----------------------------------------------------------------------------------------------------------


#: The network whose line of Table 2 the fixed cost is fitted to, and of which the text has the driver calls' share.
FITTED = "resnet50"


def pool(watch: Watch) -> Found:
    """The heap against one driver call an allocation, for the networks and the batches of the paper's Table 2."""
    found: list[Reproduced] = []
    watch(K40C.name)
    assumed, plain = pool_studies(K40C), pool_studies(with_calls_of_the_text(K40C))
    watch("with a fixed cost")
    cost = cost_of(assumed[FITTED])
    dear = pool_studies(with_calls_of_the_text(FixedCost.of(K40C, cost)))
    watch(GPUS[1].name)
    resnet = assumed[FITTED]
    wanted = f"the published share is that of {1e6 * resnet.call_seconds_published:.0f} µs"
    note = f"on a {resnet.machine}, {1e6 * resnet.allocate_seconds:.0f} µs a call, an assumption; {wanted}"
    found.append(Reproduced(published.DRIVER_SHARE, 100 * resnet.share_of_driver_calls, note))
    without = {figure.published: figure for figure in table2(plain)}
    for figure in table2(dear):
        other = without[figure.published]
        if figure.published == published.FASTER_WITH_POOL[FITTED].pool:
            found.append(replace(other, note="without a fixed cost, which is fitted to this line"))
        else:
            found.append(replace(figure, note=f"without a fixed cost: {other.ours:.4g}"))
    studies = (assumed, plain, dear, pool_studies(GPUS[1]))
    return Found(found, [row for rows in studies for row in rows.values()])


def study(name: str, machine: Machine) -> PoolStudy:
    """A network of Table 2."""
    return against_driver_calls(network(name, published.FASTER_WITH_POOL[name].batch), machine, FASTEST)


def pool_studies(machine: Machine) -> dict[str, PoolStudy]:
    """Network of Table 2 → its iteration with the heap and with driver calls."""
    return {name: study(name, machine) for name in published.FASTER_WITH_POOL}


def with_calls_of_the_text(machine: Machine) -> Machine:
    """A machine whose driver calls take so long that they take the share of ResNet-50's time that the text has."""
    seconds = study(FITTED, machine).call_seconds_published
    return replace(machine, allocate_seconds=seconds, free_seconds=seconds)


def cost_of(study: PoolStudy) -> float:
    """Seconds that each call of a library costs more, so that a network is as fast with the pool as published."""
    theirs = published.FASTER_WITH_POOL[study.network.partition(":")[0]]
    return (theirs.batch / theirs.pool.value - study.seconds_heap) / study.library_calls


def fitted_cost() -> float:
    """The fixed cost by ResNet-50's line."""
    return cost_of(study(FITTED, K40C))


def table2(studies: Mapping[str, PoolStudy]) -> list[Reproduced]:
    """Table 2 beside studies of its networks."""
    found = []
    for name, theirs in published.FASTER_WITH_POOL.items():
        ours = studies[name]
        found += [
            Reproduced(theirs.calls, ours.batch / ours.seconds_driver, ""),
            Reproduced(theirs.pool, ours.batch / ours.seconds_heap, ""),
            Reproduced(theirs.ratio, ours.speed, ""),
        ]
    return found

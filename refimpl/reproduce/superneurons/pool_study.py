"""The time that SuperNeurons' heap saves over a driver call for every allocation and every free (§3.3.1).

The paper's reason for the heap is one figure: cudaMalloc and cudaFree took 36 % of ResNet-50's training time.  It does
not give the time of one call, on which that share depends, so `against_driver_calls` gives both: the share at the
machine's seconds a call, and the seconds a call that give the paper's share.  The heap's own work is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.machine import Machine
from refimpl.memory import UNLIMITED, DriverCalls
from refimpl.network import Network
from refimpl.planner import Setup, plan
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

"""A call of the driver for every allocation and every free: what a pool is there to avoid, made to be measured.

The calls have the sizes that the program's own instructions have, and are made at their places among the launches
and copies.  What they give is not used: launches are bound to fixed addresses, and those are the arena's.  So such a
program takes its memory twice, once in the arena and once here.  A free waits until the device has done all it was
given, and that waiting is part of what it costs, here as in a program that uses what it allocates.
"""

from __future__ import annotations

from time import perf_counter

from cuda.bindings import driver

from refimpl.backend.cuda_host import checked
from refimpl.backend.device import CallTimes
from refimpl.backend.run_errors import DeviceFailed
from refimpl.planner import Allocate, Free
from refimpl.text import size


class DriverMemory:
    """Memory allocated by real calls, by the address of its twin in the arena."""

    def __init__(self) -> None:
        self._pointers: dict[int, driver.CUdeviceptr] = {}
        self.times = CallTimes()  #: of the iteration that runs, or the last

    def begin(self) -> None:
        """Before an iteration: what one that was cut off has left is given back."""
        self.give_back()
        self.times = CallTimes()

    def allocate(self, instruction: Allocate) -> None:
        began = perf_counter()
        status, pointer = driver.cuMemAlloc(instruction.nbytes)
        self.times.allocating += perf_counter() - began
        self.times.allocations += 1
        if status != driver.CUresult.CUDA_SUCCESS:
            raise DeviceFailed(
                f"the GPU refused cuMemAlloc of {size(instruction.nbytes)} ({status.name}): with driver calls a "
                "program takes its memory twice; give a smaller batch, or another allocator"
            )
        self._pointers[instruction.address] = pointer

    def free(self, instruction: Free) -> None:
        pointer = self._pointers.pop(instruction.address)
        began = perf_counter()
        result = driver.cuMemFree(pointer)
        self.times.freeing += perf_counter() - began
        self.times.frees += 1
        checked(result, "cuMemFree")

    def give_back(self) -> None:
        """Whatever is still held."""
        while self._pointers:
            driver.cuMemFree(self._pointers.popitem()[1])

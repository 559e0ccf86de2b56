"""`here`: the GPU at hand or, without one, the CPU, from what the device says of itself.

A rough model, for planning something that will run here; `refimpl profile` measures the calls of a network instead, and
its file is a machine too.  Nothing is timed, so that the same plan comes out every time.
"""

from __future__ import annotations

import os
from typing import Any

from refimpl.machine.machines import ASSUMED, H100, TITAN_X_EFFICIENCY
from refimpl.machine.model import Efficiency, Machine

#: Of one core, from docs/measurements (AMD EPYC, 2 cores, 2026-11-21): on both, our best matrix product reaches
#: 66.6 GFLOP/s and a copy 25.8 to 28.6 GB/s; convolution by implicit GEMM 41.5, 28.8 and 26.2 GFLOP/s in its passes.
CORE_FLOPS = 33.3e9
CORE_BANDWIDTH = 13e9
CPU_EFFICIENCY = Efficiency(forward=0.62, backward=0.41, products=1.0, transforms=1.0, streaming=1.0)

#: fp32 lanes of a multiprocessor by compute capability (CUDA C++ Programming Guide, "Arithmetic instructions").
LANES = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
MOST_LANES = 128
UNTOLD_CLOCK = 1_500_000  #: kHz, where a driver keeps a clock to itself


def here() -> Machine:
    """The device at hand."""
    from kernels import gpu

    return cpu() if gpu.why_not() is not None else current_gpu()


def cpu() -> Machine:
    """This computer without a GPU: copies "to the host" are copies within its memory."""
    count = cores()
    return Machine(
        name="here",
        memory_bytes=_memory_bytes(),
        flops=count * CORE_FLOPS,
        bandwidth=count * CORE_BANDWIDTH,
        link=count * CORE_BANDWIDTH / 2,  # a byte copied is read and written
        multiprocessors=count,
        efficiency=CPU_EFFICIENCY,
        launch_seconds=2e-6,
        source=f"the CPU at hand, {count} cores; speeds a core: docs/measurements; measure with: refimpl profile",
    )


def current_gpu() -> Machine:
    """The current GPU."""
    from cuda.core import Device

    from kernels.shim import cuda

    memory = int(cuda.current_context().get_memory_info().total)
    device = Device()
    return from_properties(str(device.name), memory, device.properties)


def from_properties(device_name: str, memory_bytes: int, properties: Any) -> Machine:
    """A GPU from its clocks (kHz) and widths, as the driver gives them out."""
    capability = properties.compute_capability_major, properties.compute_capability_minor
    hertz, memory_hertz = (
        1e3 * (clock or UNTOLD_CLOCK) for clock in (properties.clock_rate, properties.memory_clock_rate)
    )
    lanes = LANES.get(capability, MOST_LANES) * properties.multiprocessor_count
    return Machine(
        name="here",
        memory_bytes=memory_bytes,
        flops=2 * lanes * hertz,
        bandwidth=2 * memory_hertz * properties.global_memory_bus_width / 8,
        link=H100.link if capability >= (9, 0) else H100.link / 2,  # PCIe 5, else taken to be PCIe 4
        multiprocessors=properties.multiprocessor_count,
        efficiency=TITAN_X_EFFICIENCY,
        source=f"{device_name}, as its driver describes it; link by PCIe generation; {ASSUMED}",
    )


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_bytes() -> int:
    """Main memory; 8 GiB where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30

"""This computer: its CPU, memory and load, and rough models of the GPU at hand and of the CPU.

A CPU's kernels are measured once (`refimpl.machine.cpu_costs`).  A GPU's model is rough, and so is a CPU's with
REFIMPL_CALIBRATE=0: nothing is timed, so that the same plan comes out every time.  `refimpl profile` measures the calls
of a network instead, and its file is a machine too.  What the operating system does not tell is replaced by a guess,
never by an error.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from refimpl.machine.gpus import ASSUMED, ASSUMED_EFFICIENCY, H100, LINK, SIZES
from refimpl.machine.model import Efficiency, Machine, Source

#: Of one core, from docs/measurements (AMD EPYC, 2 cores, 2026-11-21): on both, our best matrix product reaches
#: 66.6 GFLOP/s and a copy 25.8 to 28.6 GB/s; convolution by implicit GEMM 41.5, 28.8 and 26.2 GFLOP/s in its passes.
CORE_FLOPS = 33.3e9
CORE_BANDWIDTH = 13e9
CPU_EFFICIENCY = Efficiency(forward=0.62, backward=0.41, products=1.0, transforms=1.0, streaming=1.0)

#: fp32 lanes of a multiprocessor by compute capability (CUDA C++ Programming Guide, "Arithmetic instructions").
LANES = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
MOST_LANES = 128
UNTOLD_CLOCK = 1_500_000  #: kHz, where a driver keeps a clock to itself
UNTOLD_MEMORY = 8 << 30  #: bytes, where the system does not say


#: The start of what a launcher of MPI's puts into the environment → whose launcher it is.
LAUNCHERS = {"OMPI_COMM_WORLD": "Open MPI", "PMI": "MPICH"}


class Launched(NamedTuple):
    """What the environment says of the launcher that has started this process as one of several."""

    by: str
    rank: int
    size: int


def launched() -> Launched | None:
    """The launcher of this process and others; None: it is started alone."""
    for start, by in LAUNCHERS.items():
        rank, size = (os.environ.get(f"{start}_{name}", "") for name in ("RANK", "SIZE"))
        if all(re.fullmatch("[0-9]{1,9}", number) for number in (rank, size)) and int(size) > 1:
            return Launched(by, int(rank), int(size))
    return None


def rough_cpu() -> Machine:
    """This computer without a GPU, not measured: copies "to the host" are copies within its memory."""
    from kernels.targets.cpu.threads import cores

    count = cores()
    return Machine(
        name="here",
        memory_bytes=memory_bytes(),
        flops=count * CORE_FLOPS,
        bandwidth=count * CORE_BANDWIDTH,
        link=count * CORE_BANDWIDTH / 2,  # a byte copied is read and written
        multiprocessors=count,
        efficiency=CPU_EFFICIENCY,
        launch_seconds=2e-6,
        sources=(
            Source("system", f"the CPU at hand, {count} cores", ("memory_bytes", "multiprocessors")),
            Source("assumed", "speeds a core: docs/measurements", ("flops", "bandwidth", "link", "efficiency")),
        ),
    )


def current_gpu() -> Machine:
    """The current GPU."""
    from cuda.core import Device

    from kernels.targets.shim import cuda

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
        efficiency=ASSUMED_EFFICIENCY,
        sources=(
            Source("system", f"{device_name}, as its driver describes it", SIZES),
            Source("assumed", "by PCIe generation", LINK),
            ASSUMED,
        ),
    )


# -- what the operating system says ------------------------------------------------------------------------------------


def processor() -> str:
    """The CPU's name, and how many of its cores this process may use."""
    from kernels.targets.cpu.threads import cores

    found = _told("/proc/cpuinfo", r"^model name\s*:\s*(\S.*)$")
    return f"{(found or platform.processor() or platform.machine()).strip()}, {cores()} cores"


def memory_bytes() -> int:
    """Bytes of main memory."""
    try:
        page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNTOLD_MEMORY
    return page * pages if min(page, pages) > 0 else UNTOLD_MEMORY


def available_bytes() -> int:
    """Bytes of main memory that are not in use now; all of it where the system does not say."""
    found = _told("/proc/meminfo", r"^MemAvailable:\s*(\d{1,15}) kB")
    return 1024 * int(found) if found else memory_bytes()


def process_bytes() -> int | None:
    """The most bytes of main memory that this process has had in use; None where the system does not say."""
    found = _told("/proc/self/status", r"^VmHWM:\s*(\d{1,15}) kB")
    return 1024 * int(found) if found else None


def load_average() -> float:
    """Processes that wanted a core in the last minute; 0 where the system does not say."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def is_busy() -> bool:
    """Whether other work has had at least half of the cores in the last minute: what is timed now is too slow."""
    from kernels.targets.cpu.threads import cores

    return load_average() >= cores() / 2


def _told(path: str, pattern: str) -> str | None:
    """The pattern's group in a file of the operating system; None if it is not there."""
    try:
        found = re.search(pattern, Path(path).read_text(encoding="utf-8", errors="replace"), re.MULTILINE | re.ASCII)
    except OSError:
        return None
    return found.group(1) if found else None


@cache
def gpu_at_hand() -> bool:
    """Whether a CUDA driver finds a device.  It asks the driver itself, because importing Numba takes a second."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        count = ctypes.c_int()
        if hasattr(driver, "emulated_register"):  # `kernels.targets.emulated` has put its own driver there
            return False
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return False

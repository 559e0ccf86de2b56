"""Running kernels on a GPU: flat views of device arrays, launches, streams and events.

`kernels.targets.launch` comes here when a kernel's arrays are on a GPU.  Numba's own way to launch, `kernel[grid,
block](...)`, inspects and repacks every argument each time, about 8 µs an array; the launches of a network are the same
in every iteration, so `bind` does that once and leaves a function that hands ready values to the driver, in 1 to 2 µs.

Everything here can be imported without a GPU and without a driver; `why_not()` says what is missing.  One process uses
one GPU, the device that is current when the first kernel is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.checks import arguments
from kernels.checks.arguments import FlatView, KernelError
from kernels.targets import emulated
from kernels.targets.collector import collector_paused
from kernels.targets.declare import Dim3, Kernel
from kernels.targets.shim import cuda

INSTALL = "pip install 'refimpl[cu13]'"

try:
    from cuda.bindings import nvjitlink, nvrtc, nvvm
    from cuda.core import Device, LaunchConfig, Stream, StreamOptions
    from cuda.core import launch as driver_launch

    from kernels.targets import private
    from kernels.targets.compiled import compiled
except ImportError:
    absent: str | None = (
        f"numba-cuda is not installed: {INSTALL}; macOS has no wheel of it, so use the container there: "
        ".devcontainer, Containerfile"
    )
else:
    absent = None


# --- What there is ---------------------------------------------------------------------------------------------------


def why_not() -> str | None:
    """The reason why kernels cannot run on a GPU here, in one line; None if they can."""
    if emulated.active():
        return "the GPU of this process is emulated"
    return why_not_at_all()


def why_not_at_all() -> str | None:
    """The reason why kernels cannot run on a GPU here, a real one or an emulated one."""
    if absent is None and not cuda.is_available() and (error := cuda.cuda_error()) is not None:
        return "no CUDA driver or no GPU: " + " ".join(str(error).split())
    return why_not_compile()


def why_not_compile() -> str | None:
    """The reason why kernels cannot be compiled for any GPU, in one line; None if they can."""
    if absent is not None:
        return absent
    libraries = {"NVVM": nvvm.version, "NVRTC": nvrtc.nvrtcVersion, "nvJitLink": nvjitlink.version}
    for name, version in libraries.items():
        try:
            version()
        except Exception as error:  # the binding raises its own types for a library that is absent, too old or broken
            return f"the CUDA compiler ({name}) is not installed: {INSTALL} ({type(error).__name__})"
    return None


def device_name() -> str:
    """The GPU's name."""
    return str(Device().name)


# --- Arrays ----------------------------------------------------------------------------------------------------------


def flat(array: Any) -> FlatView:
    """`kernels.checks.arguments.flat` of a device array; a NumPy array is refused."""
    if isinstance(array, np.ndarray):
        raise KernelError(
            "a kernel on the GPU cannot be given a NumPy array; copy it with kernels.targets.gpu.to_device first"
        )
    view: FlatView = arguments.flat(array)
    return view


def empty(shape: int | Sequence[int], dtype: Any = np.float32) -> Any:
    """A new device array; what is in it is not defined."""
    return cuda.device_array(shape, dtype)


def to_device(array: np.ndarray[Any, Any]) -> Any:
    """A contiguous copy of a NumPy array on the GPU."""
    return cuda.to_device(np.ascontiguousarray(array))


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """A NumPy copy of a device array, once everything that was launched before has finished."""
    synchronize()
    return np.asarray(cuda.as_cuda_array(array).copy_to_host())


# --- Streams and events ----------------------------------------------------------------------------------------------


def stream() -> Stream:
    """A new stream that runs beside all others.

    `cuda.stream()` would make a blocking one: each piece of work on the default stream waits for it, and it for them.
    """
    cuda.current_context()  # the device's, made here if this is the first thing that is asked of it
    device = Device()
    device.set_current()
    return device.create_stream(options=StreamOptions(nonblocking=True))


class CudaEvent:
    """A moment in a stream's work, for the host and other streams to wait for; `stream=None` is the default stream."""

    def __init__(self, timing: bool = False) -> None:
        self._event = cuda.event(timing=timing)

    def record(self, stream: Any = None) -> None:
        """The moment is when the work given to `stream` so far is done."""
        self._event.record(as_stream(stream))

    def wait(self, stream: Any = None) -> None:
        """Work that is given to `stream` from now on waits for the moment; the host does not."""
        self._event.wait(as_stream(stream))

    def done(self) -> bool:
        return bool(self._event.query())

    def synchronize(self) -> None:
        """The host waits for the moment."""
        self._event.synchronize()

    def seconds_until(self, later: CudaEvent) -> float:
        """Time to a later moment; both events were made with `timing=True`, and have happened."""
        return float(cuda.event_elapsed_time(self._event, later._event)) / 1000


def synchronize() -> None:
    """Wait until the GPU has finished all work."""
    cuda.synchronize()


@functools.cache
def default_stream() -> Stream:
    """The stream of launches that name none: Numba's, which waits for every blocking stream."""
    return Device().default_stream


def as_stream(given: Any) -> Stream:
    """`given` as the driver interface takes it: None is the default stream, another library's stream is wrapped."""
    if given is None:
        return default_stream()
    if type(given).__module__.startswith("cuda.core"):  # a stream, or a graph builder
        return given
    if not hasattr(given, "__cuda_stream__"):
        raise KernelError(f"stream is a {type(given).__name__}; give one of kernels.targets.gpu.stream() or None")
    return Stream.from_handle(given.__cuda_stream__()[1])


# --- Launches --------------------------------------------------------------------------------------------------------


@functools.cache
def loaded(kernel: Kernel) -> Any:
    """The kernel's machine code on the GPU, in a library of its own."""
    with collector_paused():
        made = compiled(kernel)
    return private.loaded(made)


def bind(kernel: Kernel, grid: Dim3, values: Sequence[Any]) -> Callable[[Any], None]:
    """A function of a stream that makes this launch, as often as it is called.  It keeps the arrays alive.

    `values` are the arguments as `Kernel.values` gives them out: flat arrays, integers, float32 numbers.
    """
    cuda.current_context()  # the driver needs one in this thread
    code, config = loaded(kernel), LaunchConfig(grid=grid, block=kernel.block)
    arguments = private.words(values)

    def run(stream: Any, _alive: tuple[Any, ...] = tuple(values)) -> None:  # `arguments` holds addresses, not arrays
        driver_launch(stream if type(stream) is Stream else as_stream(stream), config, code, *arguments)

    return run


def launch(kernel: Kernel, grid: Dim3, values: Sequence[Any], stream: Any) -> None:
    """Make one launch."""
    bind(kernel, grid, values)(stream)

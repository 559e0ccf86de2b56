"""Running kernels on a GPU: flat views of device arrays, launches, streams and events.

`kernels.launch` comes here when a kernel's arrays are on a GPU.  Numba's own way to launch, `kernel[grid, block](...)`,
inspects and repacks every argument each time, about 8 µs an array; the launches of a network are the same in every
iteration, so `bind` does that once and leaves a function that hands ready values to the driver, in 1 to 2 µs.

Everything here can be imported without a GPU and without a driver; `why_not()` says what is missing.  One process uses
one GPU, the device that is current when the first kernel is compiled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cuda.bindings import nvvm
from cuda.core import Device, LaunchConfig, Stream, StreamOptions
from cuda.core import launch as driver_launch

from kernels.arguments import KernelError
from kernels.launch import Dim3, Kernel
from kernels.shim import cuda

INSTALL = "pip install 'refimpl[cu13]'"


# --- What there is ---------------------------------------------------------------------------------------------------


def why_not() -> str | None:
    """What keeps kernels from running on a GPU here, in one line; None when nothing does."""
    if not cuda.is_available() and (error := cuda.cuda_error()) is not None:
        return "no CUDA driver or no GPU: " + " ".join(str(error).split())
    return why_not_compile()


def why_not_compile() -> str | None:
    """What keeps kernels from being compiled for any GPU, in one line; None when nothing does."""
    try:
        nvvm.version()
    except Exception as error:  # the binding raises its own types for a library that is absent, too old or broken
        return f"the CUDA compiler (NVVM) is not installed: {INSTALL} ({type(error).__name__})"
    return None


def available() -> bool:
    """Can kernels run on a GPU here?"""
    return why_not() is None


def device_name() -> str:
    """What the GPU calls itself."""
    return str(Device().name)


# --- Arrays ----------------------------------------------------------------------------------------------------------


class FlatView:
    """Elements of device memory in one dimension, without gaps; a slice of it is another view.

    Numba's own device arrays would do, but one of those takes 10 to 50 µs to make, and this takes 1.  A view keeps
    `owner`, whose memory it shows, alive.  Anything that reads `__cuda_array_interface__` can use it.
    """

    __slots__ = ("dtype", "owner", "pointer", "size")
    ndim = 1

    def __init__(self, pointer: int, size: int, dtype: np.dtype[Any], owner: Any) -> None:
        self.pointer, self.size, self.dtype, self.owner = pointer, size, dtype, owner

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.pointer, False)
        return {"version": 3, "shape": self.shape, "strides": None, "typestr": self.dtype.str, "data": data}

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> FlatView:
        if not isinstance(part, slice):
            raise TypeError("a flat view can only be sliced: its elements are on the GPU")
        start, stop, step = part.indices(self.size)
        if step != 1:
            raise KernelError(f"a flat view has no gaps: it cannot be sliced with step {step}")
        pointer = self.pointer + start * self.dtype.itemsize
        return FlatView(pointer, max(0, stop - start), self.dtype, self.owner)

    def __repr__(self) -> str:
        return f"FlatView({self.size} {self.dtype} at {self.pointer:#x})"


def flat(array: Any) -> FlatView:
    """All elements of a device array from the first to the last, gaps between them included.  Never a copy.

    Any array with a `__cuda_array_interface__` will do.  Nothing is synchronised: the array's data must be ready on the
    stream that the kernel is launched on.
    """
    if isinstance(array, FlatView):
        return array
    if isinstance(array, np.ndarray):
        raise KernelError("a kernel on the GPU cannot be given a NumPy array; copy it with kernels.gpu.to_device first")
    interface = array.__cuda_array_interface__
    dtype, shape, strides = np.dtype(interface["typestr"]), interface["shape"], interface.get("strides")
    if strides is None or 0 in shape:
        size = math.prod(shape)
    elif any(stride < 0 or stride % dtype.itemsize for stride in strides):
        raise KernelError(
            f"a device array with strides of {tuple(strides)} bytes runs backwards or is not aligned; copy it first"
        )
    else:
        size = 1 + sum((n - 1) * (stride // dtype.itemsize) for n, stride in zip(shape, strides, strict=True))
    return FlatView(interface["data"][0], size, dtype, array)


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


class Event:
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

    def seconds_until(self, later: Event) -> float:
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
        raise KernelError(f"stream is a {type(given).__name__}; give one of kernels.gpu.stream() or None")
    return Stream.from_handle(given.__cuda_stream__()[1])


# --- Launches --------------------------------------------------------------------------------------------------------


def signature(kernel: Kernel) -> tuple[Any, ...]:
    """The argument types a kernel is compiled for: they follow from its declaration, never from a call."""
    types = cuda.types
    kinds = {
        "Floats": types.Array(types.float32, 1, "C"),
        "Ints": types.Array(types.int32, 1, "C"),
        "int": types.int64,
        "float": types.float32,
    }
    return tuple(kinds[kind] for kind in kernel.parameters.values())


@functools.cache
def compiled(kernel: Kernel) -> Any:
    """The kernel's machine code, loaded on the GPU."""
    return kernel.gpu.compile(signature(kernel))._codelibrary.get_cufunc().kernel


def words(values: Sequence[Any]) -> list[Any]:
    """The values of a launch as the machine code takes them.

    Numba passes an array as the fields of its array structure: two object pointers (none on a GPU), number of elements,
    bytes of an element, address, then shape and strides, here of one axis.  A Python integer is passed as 64 bits and a
    NumPy float as its own 32.
    """
    out: list[Any] = []
    for value in values:
        if isinstance(value, (int, np.float32)):
            out.append(value)
        else:
            view = flat(value)
            itemsize = view.dtype.itemsize
            out += (0, 0, view.size, itemsize, view.pointer, view.size, itemsize)
    return out


def bind(kernel: Kernel, grid: Dim3, values: Sequence[Any]) -> Callable[[Any], None]:
    """A function of a stream that makes this launch, as often as it is called.  It keeps the arrays alive.

    `values` are the arguments as `Kernel.values` gives them out: flat arrays, integers, float32 numbers.
    """
    cuda.current_context()  # the driver needs one in this thread
    code, config = compiled(kernel), LaunchConfig(grid=grid, block=kernel.block)
    arguments = words(values)

    def run(stream: Any, _alive: tuple[Any, ...] = tuple(values)) -> None:  # `arguments` holds addresses, not arrays
        driver_launch(stream if type(stream) is Stream else as_stream(stream), config, code, *arguments)

    return run


def launch(kernel: Kernel, grid: Dim3, values: Sequence[Any], stream: Any) -> None:
    """Make one launch."""
    bind(kernel, grid, values)(stream)

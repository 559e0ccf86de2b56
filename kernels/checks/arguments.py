"""Arguments of kernels: the checks that every public function makes, and flat views of the arrays.

NumPy arrays live on the CPU; anything with `__cuda_array_interface__` (Numba's device arrays, CuPy's, PyTorch's) on
the GPU. A wrong shape, type or stride, or arrays on different devices, is one `KernelError` that names the function
and the argument, raised before anything is launched.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

Place = Literal["cpu", "gpu"]
LARGEST = 2**31 - 1  #: elements of one array: index arithmetic in the kernels is 32 bits wide


class KernelError(ValueError):
    """A call that cannot be made as asked; the message says which argument and what would do."""


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__")


def place(array: Any) -> Place:
    """The device of an array."""
    return "cpu" if isinstance(array, np.ndarray) else "gpu"


def dtype_of(array: Any) -> np.dtype[Any]:
    """An array's type as NumPy names it, whatever its own library calls it."""
    return array.dtype if isinstance(array, np.ndarray) else np.dtype(array.__cuda_array_interface__["typestr"])


def strides(array: Any) -> tuple[int, ...]:
    """Strides in elements, for NumPy and device arrays alike."""
    if isinstance(array, np.ndarray):
        given, itemsize = array.strides, array.itemsize
    else:
        interface = array.__cuda_array_interface__
        given, itemsize = interface.get("strides"), dtype_of(array).itemsize
        if given is None:
            return contiguous_strides(interface["shape"])
    if any(stride % itemsize for stride in given):
        raise KernelError(
            f"an array with strides of {given} bytes cannot be used: its elements are not aligned; copy it"
        )
    return tuple(stride // itemsize for stride in given)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_contiguous(array: Any) -> bool:
    """Row-major without gaps (the stride of an axis of length 1 does not matter)."""
    wanted = contiguous_strides(tuple(array.shape))
    return all(n == 1 or have == want for n, have, want in zip(array.shape, strides(array), wanted, strict=True))


def span(array: Any) -> int:
    """Elements from the first to the last of a (possibly strided) array, both included."""
    return 1 + sum((n - 1) * s for n, s in zip(array.shape, strides(array), strict=True))


def check(where: str, dtype: type = np.float32, **arrays: Any) -> None:
    """Every array (None is skipped) has the type, is contiguous, not empty, small enough, and all are on one device."""
    first: tuple[str, Place] | None = None
    for name, array in arrays.items():
        if array is None:
            continue
        if not is_array(array):
            raise KernelError(f"{where}: {name} is a {type(array).__name__}; give a NumPy array or a device array")
        if dtype_of(array) != np.dtype(dtype):
            raise KernelError(f"{where}: {name} is {dtype_of(array)}; only {np.dtype(dtype)} is supported here")
        if math.prod(array.shape) == 0:
            raise KernelError(f"{where}: {name} has shape {tuple(array.shape)}: nothing to compute")
        if not is_contiguous(array):
            raise KernelError(f"{where}: {name} has strides {strides(array)} elements; make it contiguous first")
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            raise KernelError(f"{where}: {name} is read-only; copy it first")
        if math.prod(array.shape) > LARGEST:
            raise KernelError(
                f"{where}: {name} has {math.prod(array.shape)} elements; at most {LARGEST} can be indexed"
            )
        if first is None:
            first = (name, place(array))
        elif place(array) != first[1]:
            raise KernelError(
                f"{where}: {first[0]} is on the {first[1].upper()} but {name} on the {place(array).upper()}"
            )


def check_shape(where: str, name: str, array: Any, shape: tuple[int, ...]) -> None:
    """`array` (None is skipped) has exactly this shape."""
    if array is not None and tuple(array.shape) != tuple(shape):
        raise KernelError(f"{where}: {name} has shape {tuple(array.shape)}, expected {tuple(shape)}")


def given_workspace(workspace: Any) -> Any:
    """The workspace, or None for an array of no elements: what `np.empty(workspace_bytes // 4)` may turn out to be."""
    return None if is_array(workspace) and 0 in workspace.shape else workspace


class FlatView:
    """Elements of device memory in one dimension, without gaps; a slice of it is another view.

    A `ShapedView` has more dimensions.

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


class ShapedView(FlatView):
    """Elements of device memory in several dimensions, without gaps."""

    __slots__ = ("_shape",)

    def __init__(self, flat: FlatView, shape: tuple[int, ...]) -> None:
        super().__init__(flat.pointer, flat.size, flat.dtype, flat.owner)
        self._shape = shape

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self._shape


def shaped(array: Any, shape: tuple[int, ...]) -> Any:
    """A view of all elements of a contiguous array with this shape; never a copy.  One length may be -1."""
    if not is_contiguous(array):
        raise KernelError(f"an array with strides of {strides(array)} elements has gaps; copy it first")
    if isinstance(array, np.ndarray):
        return array.reshape(shape)
    view = flat(array)
    known = math.prod(length for length in shape if length >= 0)
    return ShapedView(view, tuple(view.size // known if length < 0 else length for length in shape))


def flat(array: Any) -> Any:
    """A one-dimensional view of all elements from the first to the last, gaps included; never a copy.

    A NumPy array for a NumPy array, and a `FlatView` for any other with a `__cuda_array_interface__`.  Nothing is
    synchronised: the data must be ready on the stream that the kernel is launched on.
    """
    if isinstance(array, FlatView):
        return FlatView(array.pointer, array.size, array.dtype, array.owner)
    if isinstance(array, np.ndarray):
        if array.flags.c_contiguous:
            return array.reshape(-1)
        _refuse_backwards(array)
        return np.lib.stride_tricks.as_strided(array, (span(array),), (array.itemsize,))
    interface = array.__cuda_array_interface__
    shape, size = interface["shape"], math.prod(interface["shape"])
    if interface.get("strides") is not None and 0 not in shape:
        _refuse_backwards(array)
        size = span(array)
    return FlatView(interface["data"][0], size, np.dtype(interface["typestr"]), array)


def _refuse_backwards(array: Any) -> None:
    if min(strides(array)) < 0:
        raise KernelError(f"an array with strides of {strides(array)} elements runs backwards; copy it first")

"""What a kernel may be given, how a launch is made from it, and what is said when it cannot be.

Arrays on a GPU are played by `OnDevice`: shape, type and strides, and memory that is never read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import arguments
from kernels.checks.arguments import LARGEST, KernelError
from kernels.fast import concat, conv, dropout, elementwise, gemm, join, relu, sgd
from kernels.targets import declare, gpu, launch
from kernels.targets.launch import REGISTRY, Floats, Ints, Kernel
from kernels.targets.shim import cuda
from tests.messages import raises_naming


class OnDevice:
    """Looks like an array on a GPU."""

    def __init__(self, *shape: int, dtype: str = "<f4", strides: tuple[int, ...] | None = None) -> None:
        self.shape, self.ndim, self.dtype = shape, len(shape), np.dtype(dtype)
        interface = {"shape": shape, "typestr": dtype, "strides": strides, "data": (4096, False), "version": 3}
        self.__cuda_array_interface__ = interface


def add_kernel(x: Floats, y: Floats, n: int, scale: float) -> None:
    i = cuda.grid(1)
    if i < n:
        y[i] += scale * x[i]


ADD = Kernel(add_kernel, "add_kernel", (64, 1, 1), {})


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# -- arrays ------------------------------------------------------------------------------------------------------------


def test_where_arrays_are() -> None:
    assert arguments.place(ones(2)) == "cpu"
    assert arguments.place(OnDevice(2)) == "gpu"
    assert arguments.is_array(ones(2)) and arguments.is_array(OnDevice(2))
    assert not arguments.is_array([1.0]) and not arguments.is_array(np.float32(1)) and not arguments.is_array(None)


@given(st.lists(st.integers(1, 4), max_size=4), st.permutations(range(4)))
def test_strides_are_in_elements_on_either_device(shape: list[int], order: list[int]) -> None:
    whole = ones(*shape)
    assert arguments.strides(whole) == arguments.strides(OnDevice(*shape)) == arguments.contiguous_strides(tuple(shape))
    assert arguments.is_contiguous(whole) and arguments.is_contiguous(OnDevice(*shape))
    turned = whole.transpose([axis for axis in order if axis < len(shape)])
    there = OnDevice(*turned.shape, strides=turned.strides)
    assert arguments.strides(there) == arguments.strides(turned)
    assert arguments.is_contiguous(turned) == arguments.is_contiguous(there) == turned.flags.c_contiguous


def test_the_stride_of_an_axis_of_length_one_does_not_matter() -> None:
    x = ones(4, 6)[:1, :]
    assert arguments.is_contiguous(x[:, None])
    assert arguments.is_contiguous(OnDevice(1, 6, strides=(400, 4)))
    assert not arguments.is_contiguous(OnDevice(2, 6, strides=(400, 4)))


@pytest.mark.parametrize("cut", [np.s_[:, :], np.s_[:, 1:3], np.s_[1:, 2:], np.s_[::2, ::3], np.s_[1:2, 4:5]])
def test_a_flat_view_shows_the_same_memory_with_its_gaps(cut: Any) -> None:
    whole = np.arange(30, dtype=np.float32).reshape(5, 6)
    part = whole[cut]
    view = arguments.flat(part)
    assert view.shape == (arguments.span(part),)
    assert view.strides == (4,)
    assert (view[0], view[-1]) == (part.flat[0], part[-1, -1])
    assert np.shares_memory(view, whole)
    steps = arguments.strides(part)
    for index in np.ndindex(*part.shape):
        assert view[sum(i * step for i, step in zip(index, steps, strict=True))] == part[index]


# -- check -------------------------------------------------------------------------------------------------------------


def test_what_is_fine() -> None:
    arguments.check("f", x=ones(2, 3), y=None, z=ones(1))
    arguments.check("f", x=OnDevice(2, 3), y=None, z=OnDevice(1))
    arguments.check("f", np.int32, labels=np.zeros(3, np.int32))
    arguments.check_shape("f", "x", ones(2, 3), (2, 3))
    arguments.check_shape("f", "x", None, (2, 3))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([1.0, 2.0], ("list", "NumPy")),
        (3.0, ("float", "NumPy")),
        (np.zeros(3), ("float64", "float32")),
        (np.zeros(3, ">f4"), (">f4", "float32")),
        (OnDevice(3, dtype="<f8"), ("float64", "float32")),
        (ones(2, 0, 3), ((2, 0, 3),)),
        (ones(3, 4).T, ("contiguous", (1, 4))),
        (ones(3, 4)[:, ::2], ("contiguous", (4, 2))),
        (ones(4)[::-1], ("contiguous", (-1,))),
        (OnDevice(3, 4, strides=(4, 12)), ("contiguous", (1, 3))),
        (np.broadcast_to(ones(1), (5,)), ("contiguous", (0,))),
        (OnDevice(2**20, 2**11), (2**31, LARGEST)),
    ],
)
def test_one_clear_line_for_a_bad_array(bad: Any, says: tuple[object, ...]) -> None:
    with raises_naming(KernelError, "f", "x", *says):
        arguments.check("f", w=None, x=bad)


def test_arrays_on_different_devices() -> None:
    with raises_naming(KernelError, "f", "w", "CPU", "y", "GPU"):
        arguments.check("f", w=ones(2), x=ones(2), y=OnDevice(2))
    with raises_naming(KernelError, "f", "w", "GPU", "y", "CPU"):
        arguments.check("f", w=OnDevice(2), x=None, y=ones(2))


def test_a_wrong_shape() -> None:
    with raises_naming(KernelError, "f", "y", (3, 2), (2, 3)):
        arguments.check_shape("f", "y", ones(3, 2), (2, 3))


DROPOUT: dict[str, Any] = {"probability": 0.5, "seed": 0, "layer": 0, "iteration": 0}
MIXED: dict[tuple[str, str, str], Callable[[Any, Any], None]] = {
    ("elementwise.copy", "x", "y"): lambda x, y: elementwise.copy(x, y),
    ("elementwise.axpy", "x", "y"): lambda x, y: elementwise.axpy(1.0, x, y),
    ("relu.forward", "x", "y"): lambda x, y: relu.forward(x, y),
    ("relu.backward", "y", "dx"): lambda x, y: relu.backward(x, x, y),
    ("dropout.forward", "x", "y"): lambda x, y: dropout.forward(x, y, **DROPOUT),
    ("dropout.backward", "dy", "dx"): lambda x, y: dropout.backward(x, y, **DROPOUT),
    ("join.forward", "y", "inputs[1]"): lambda x, y: join.forward([x, y], x),
    ("join.backward", "dy", "dxs[0]"): lambda x, y: join.backward(x, [y]),
    ("join.fork_forward", "x", "ys[0]"): lambda x, y: join.fork_forward(x, [y]),
    ("join.fork_backward", "dx", "dys[1]"): lambda x, y: join.fork_backward([x, y], x),
    ("concat.forward", "y", "inputs[0]"): lambda x, y: concat.forward([y], x),
    ("concat.backward", "dy", "dxs[0]"): lambda x, y: concat.backward(x, [y]),
    ("sgd.update", "w", "momentum_buffer"): lambda x, y: sgd.update(x, x, y, rate=0.1),
}


@pytest.mark.parametrize("names", MIXED, ids=" ".join)
def test_families_refuse_arrays_on_different_devices(names: tuple[str, str, str]) -> None:
    x = ones(2, 3)
    with raises_naming(KernelError, *names, "CPU", "GPU"):
        MIXED[names](x, OnDevice(2, 3))
    assert (x == 1).all()


# -- launches ----------------------------------------------------------------------------------------------------------


def test_arrays_reach_a_kernel_flat_and_numbers_in_the_declared_type() -> None:
    x, y = ones(2, 3), ones(3, 4)[:, :2]
    a, b, n, scale = ADD.values((x, y, np.int16(7), 3))
    assert a.shape == (6,) and b.shape == (10,)
    assert np.shares_memory(a, x) and np.shares_memory(b, y)
    assert type(n) is int and n == 7
    assert type(scale) is np.float32 and scale == 3


def test_a_launch_writes_through_a_view_with_gaps() -> None:
    whole = np.zeros((4, 5), np.float32)
    part = whole[:, 1:3]
    launch.launch(ADD, 1, ones(12), part, 12, 1.0)  # flat: the kernel sees the gaps too
    assert whole.ravel().tolist() == [0] + [1] * 12 + [0] * 7


@pytest.mark.parametrize(
    ("grid", "args", "says"),
    [
        (1, (ones(3), ones(3), 3), (4, 3)),
        (1, ([1.0], ones(3), 3, 1.0), ("x", "float32", "list")),
        (1, (ones(3), np.zeros(3), 3, 1.0), ("y", "float32", "float64")),
        (1, (ones(3), OnDevice(3), 3, 1.0), ("CPU", "GPU")),
        (0, (ones(3), ones(3), 3, 1.0), ((0, 1, 1),)),
        (2**31, (ones(3), ones(3), 3, 1.0), ((2**31, 1, 1),)),
        ((1, 65536), (ones(3), ones(3), 3, 1.0), ((1, 65536, 1),)),
        ((1, 1, -1), (ones(3), ones(3), 3, 1.0), ((1, 1, -1),)),
    ],
)
def test_a_launch_that_cannot_be_made(grid: Any, args: tuple[Any, ...], says: tuple[object, ...]) -> None:
    with raises_naming(KernelError, "add_kernel", *says):
        launch.launch(ADD, grid, *args)


def test_an_array_that_spans_too_much() -> None:
    with raises_naming(KernelError, "add_kernel", "x", 2**31, LARGEST):
        ADD.values((OnDevice(2**31), OnDevice(3), 3, 1.0))


def test_grids_and_blocks_have_three_dimensions() -> None:
    assert launch.dim3(5) == launch.dim3(np.int64(5)) == (5, 1, 1)
    assert launch.dim3((5, 6)) == (5, 6, 1)
    assert launch.dim3([5, 6, 7]) == (5, 6, 7)
    with raises_naming(KernelError, (1, 2, 3, 4)):
        launch.dim3((1, 2, 3, 4))
    assert [launch.ceil_div(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


# -- declarations ------------------------------------------------------------------------------------------------------


def test_what_a_declaration_says() -> None:
    kernel = elementwise.elementwise_axpy
    assert REGISTRY["elementwise_axpy"] is kernel
    assert (kernel.name, kernel.family, kernel.block, kernel.threads) == (
        "elementwise_axpy",
        "elementwise",
        (256, 1, 1),
        256,
    )
    assert kernel.parameters == {"alpha": "float", "x": "Floats", "y": "Floats", "n": "int"}


def test_annotations_may_be_text_or_types() -> None:
    def typed(x, labels, n, scale):  # type: ignore[no-untyped-def]
        pass

    typed.__annotations__ = {"x": Floats, "labels": "Ints", "n": int, "scale": float}
    assert list(Kernel(typed, "typed", (1, 1, 1), {}).parameters.values()) == ["Floats", "Ints", "int", "float"]
    typed.__annotations__["n"] = complex
    with raises_naming(TypeError, "typed", "n", "Floats", "Ints"):
        _ = Kernel(typed, "typed", (1, 1, 1), {}).parameters


def test_a_name_belongs_to_one_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declare, "REGISTRY", dict(REGISTRY))

    def relu_forward(x: Floats, n: int) -> None:
        pass

    with raises_naming(ValueError, "relu_forward", "kernels.fast.relu"):
        declare.kernel(block=32)(relu_forward)
    named = declare.kernel(block=(8, 4), name="another")(relu_forward)
    assert declare.REGISTRY["another"] is named
    assert (named.block, named.threads) == ((8, 4, 1), 32)


def test_labels_are_another_type_than_numbers() -> None:
    def pick(labels: Ints, y: Floats) -> None:
        pass

    picked = Kernel(pick, "pick", (1, 1, 1), {})
    picked.values((np.zeros(3, np.int32), ones(3)))
    with raises_naming(KernelError, "pick", "labels", "int32", "int64"):
        picked.values((np.zeros(3, np.int64), ones(3)))


# -- bound launches ----------------------------------------------------------------------------------------------------


def test_bind_runs_nothing_and_what_it_returns_can_run_again_and_again() -> None:
    x, y = ones(2000), np.zeros(2000, np.float32)
    bound = launch.bind(elementwise.axpy, 2.0, x, y)
    assert not y.any()
    assert [(b.kernel.name, b.grid) for b in bound] == [("elementwise_axpy", (2, 1, 1))]
    for expected in (2, 4, 6):
        bound[0].run(None)
        assert (y == expected).all()
    x[:] = 10  # it is bound to the array, not to the numbers that were in it
    bound[0].run(None)
    assert (y == 26).all()


def test_launches_are_recorded_in_order() -> None:
    parts, y = [ones(2, 1, 3), ones(2, 2, 3)], np.zeros((2, 3, 3), np.float32)
    with launch.recording() as noted:
        concat.forward(parts, y)
        elementwise.fill(y, 5.0)
    assert [b.kernel.name for b in noted] == ["concat_copy_rows", "concat_copy_rows", "elementwise_fill"]
    assert not y.any()
    for bound in noted:
        bound.run(None)
    assert (y == 5).all()


def test_after_recording_launches_run_again_also_when_it_failed() -> None:
    y = np.zeros(3, np.float32)
    with pytest.raises(KernelError), launch.recording() as noted:
        elementwise.fill(y, 1.0)
        elementwise.copy(y, ones(4))
    assert len(noted) == 1 and not y.any()
    elementwise.fill(y, 1.0)
    assert (y == 1).all()


def test_a_read_only_array_is_refused() -> None:
    frozen = ones(4)
    frozen.flags.writeable = False
    with raises_naming(KernelError, "f", "x", "read-only"):
        arguments.check("f", x=frozen)


def test_elements_that_are_not_aligned_are_refused() -> None:
    records = np.zeros((3, 2), dtype=np.dtype([("tag", "u1"), ("value", "<f4")]))
    with raises_naming(KernelError, "aligned", (10, 5)):
        arguments.check("f", x=records["value"])


def test_a_view_that_runs_backwards_is_refused() -> None:
    with raises_naming(KernelError, "backwards"):
        arguments.flat(ones(4)[::-1])


def test_a_workspace_of_no_bytes_is_none() -> None:
    assert arguments.given_workspace(np.empty(0, np.float32)) is None
    assert arguments.given_workspace(OnDevice(0)) is None
    assert arguments.given_workspace(None) is None
    some = ones(3)
    assert arguments.given_workspace(some) is some


def test_families_take_a_workspace_of_no_bytes() -> None:
    x, w, y = ones(1, 1, 3, 3), ones(1, 1, 3, 3), ones(1, 1, 1, 1)
    conv.forward(x, w, None, y, workspace=np.empty(conv.workspace_bytes("forward", x.shape, w.shape) // 4, np.float32))
    assert y.item() == 9
    c = ones(3, 3)
    gemm.gemm(ones(3, 3), ones(3, 3), c, workspace=np.empty(0, np.float32))
    assert (c == 3).all()


def test_the_gpu_takes_no_array_of_the_host() -> None:
    with raises_naming(KernelError, "NumPy", "kernels.targets.gpu.to_device"):
        gpu.flat(np.zeros(3, np.float32))

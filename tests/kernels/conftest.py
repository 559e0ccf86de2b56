"""With `pytest --device emulated` every launch of the tests marked `ptx` is made twice, on the same numbers.

Once by the CPU's compiler, and once from the kernel's PTX on the emulated GPU; the results are the same, bit for bit.
The families choose the kernels that they would choose for arrays on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kernels.checks.arguments import FlatView, shaped
from kernels.targets import cpu, emulated, gpu
from kernels.targets.cpu.checked import current_mode
from kernels.targets.declare import Kernel

#: Kernels whose last bits may differ; `ptx(rounded=True)` says so of one test.  The first four subtract a product,
#: or from one, which the CPU's compiler fuses and the PTX does not; the others call exp, log or a power, which the PTX
#: computes by approximate instructions.  gemm_register_2d differs where the processor has AVX2 and no AVX-512 (an AMD
#: Zen 3, 2026-11-30), in the products of attention; why was not found.
ROUNDED = (
    "batchnorm_apply_gradients", "batchnorm_apply_gradients_by_map", "batchnorm_update_running",
    "layernorm_backward_1", "layernorm_backward_32", "rmsnorm_backward_1", "rmsnorm_backward_32", "rotary_turn",
    "sgd_update", "adamw_update", "clip_norm", "gemm_register_2d", "softmax_cross_entropy", "pixel_softmax_parts",
    "pieces_add_losses_by_block",
    "mean_loss_binary_parts", "mean_loss_binary_backward", "mean_loss_sigmoid", "lrn_forward", "lrn_backward",
)  # fmt: skip
#: Plain kernels that do so.
PLAIN_ROUNDED = (
    "adamw_average", "adamw_update", "attention_backward", "attention_forward", "batchnorm_backward_data",
    "batchnorm_update_running", "gelu_backward", "gelu_forward", "gelu_tanh_backward", "gelu_tanh_forward",
    "lrn_backward", "lrn_forward", "mean_loss_binary_backward", "mean_loss_binary_forward", "pieces_add_losses",
    "pixel_softmax_cross_entropy", "pixel_softmax_forward", "rotary_turn", "scores_softmax", "sgd_update",
    "sigmoid_forward", "silu_backward", "silu_forward", "softmax_cross_entropy", "softmax_forward",
    "tanh_forward",
)  # fmt: skip
LAST_BITS = 3e-7  #: of the largest number of an array


class Copies:
    """Copies on the GPU of flat NumPy arrays; those that share memory share it there."""

    def __init__(self, arrays: list[Any]) -> None:
        self.spans: list[tuple[int, int]] = []  #: addresses
        for low, high in sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays):
            if self.spans and low < self.spans[-1][1]:
                low, before = self.spans.pop()
                high = max(high, before)
            self.spans.append((low, high))
        self.there = [gpu.to_device(self.here(span)) for span in self.spans]

    @staticmethod
    def here(span: tuple[int, int]) -> Any:
        low, high = span
        return np.ctypeslib.as_array((ctypes.c_float * ((high - low) // 4)).from_address(low))

    def view(self, array: Any) -> Any:
        place = array.ctypes.data
        number = next(n for n, (low, high) in enumerate(self.spans) if low <= place < high)
        owner = self.there[number]
        view = FlatView(gpu.flat(owner).pointer + place - self.spans[number][0], array.size, array.dtype, owner)
        return shaped(view, array.shape)


@pytest.fixture(autouse=True)
def by_way_of_ptx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether every launch is made from PTX, too."""
    if request.config.getoption("--device") != "emulated" or not request.node.get_closest_marker("ptx"):
        yield False
        return
    from tests import gpu_device
    from tests.kernels.operations import as_on_a_gpu

    if (reason := gpu_device.start()) is not None:
        pytest.skip(reason)
    real = cpu.run
    rounded = request.node.get_closest_marker("ptx").kwargs.get("rounded", False)

    def both(kernel: Kernel, grid: Any, values: Any, columns: int = 0) -> None:
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        if current_mode() is not None or not all(array.size for array in arrays):
            return real(kernel, grid, values, columns)
        copies = Copies(arrays)
        given = [copies.view(value) if isinstance(value, np.ndarray) else value for value in values]
        real(kernel, grid, values, columns)
        gpu.launch(kernel, grid, given, None)
        for span, owner in zip(copies.spans, copies.there, strict=True):
            compare(kernel, copies.here(span), gpu.to_host(owner), rounded)
        assert emulated.findings() == []

    monkeypatch.setattr(cpu, "run", both)
    with as_on_a_gpu():
        yield True


def compare(kernel: Kernel, ours: Any, theirs: Any, rounded: bool) -> None:
    same = (ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))
    if same.all():
        return
    worst = np.max(np.abs(ours[~same] - theirs[~same])) / max(1e-30, np.nanmax(np.abs(ours)))
    says = f"{kernel.name}: {np.sum(~same)} of {same.size} numbers differ, by up to {worst:.1e} of the largest"
    known = kernel.name in (PLAIN_ROUNDED if kernel.is_plain else ROUNDED)
    assert worst <= (LAST_BITS if rounded or known else 0), says

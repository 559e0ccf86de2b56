"""What runs the tests marked `gpu`: the GPU at hand, or without one the emulated GPU.

`pytest --device gpu`, `--device emulated` and `--device none` say which, and run all of them.  Without the option the
GPU runs all, and the emulated GPU a selection that takes a minute or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

CHOSEN = "none"  #: "gpu", "emulated" or "none"
BACKEND = "cuda"  #: the trainer's backend on that device

#: Tests for the selection, by the start of what follows the file's name: every family of kernels, both back ends'
#: agreement, and each paper's programs.
SELECTED = {
    "test_backend": (
        "test_every_set_up_comes_to_the_same_bits[vgg]", "test_gpu_and_cpu_agree[resnet-memory]",
        "test_a_nan",
    ),
    "test_data_parallel": ("test_two_equal_ranks_learn_what_one_learns[vdnn-all", "test_what_does_not_wait"),
    "test_host": ("test_an_event_orders", "test_a_bound_network", "test_work_on_the_default_stream"),
    "test_superneurons": (
        "test_no_preset_changes_a_bit_and_the_peak_is_the_predicted[tiny-resnet:superneurons-all, cost-aware",
        "test_no_preset_changes_a_bit_and_the_peak_is_the_predicted[lenet:superneurons-offload",
    ),
    "test_vdnnpp": (
        "test_no_preset_changes_a_bit_and_the_peak_is_the_predicted[lenet:vdnnpp-vdnnpp-compressed-vdnnpp-all",
        "test_the_pinned_arena", "test_a_failing_piece",
    ),
}  # fmt: skip
FAMILIES = "test_kernels"  #: one test of each family's functions
#: The rungs between GEMM's first and its last; networks use none of them.
BETWEEN = ("gemm naive", "gemm coalesced", "gemm tiled", "gemm register_1d", "gemm register_2d", "gemm double_buffered")


def choose(wanted: str | None) -> None:
    """Called before any test is collected."""
    global CHOSEN, BACKEND
    if wanted is None:
        from refimpl.machine.here import gpu_at_hand

        wanted = "gpu" if gpu_at_hand() else "emulated"
    CHOSEN, BACKEND = wanted, "emulated" if wanted == "emulated" else "cuda"


def selection(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests that run on an emulated GPU where not all are requested."""
    chosen, families = set(), set()
    for item in items:
        path, _, name = item.nodeid.partition("::")
        file = path.rpartition("/")[2].removesuffix(".py")
        family = name.partition("[")[2].partition(",")[0]
        if any(name.startswith(start) for start in SELECTED.get(file, ())):
            chosen.add(item)
        elif file == FAMILIES and family not in families and family not in BETWEEN:
            families.add(family)
            chosen.add(item)
    return chosen


def sized(full: T, small: T) -> T:
    """A size that fills a GPU; on an emulated one, where times are a model's, a small one that asks the same."""
    return full if BACKEND == "cuda" else small


def start() -> str | None:
    """Make the device ready; why the tests cannot run on it, in one line."""
    from kernels import emulated, gpu

    if CHOSEN == "none":
        return "pytest --device none"
    if CHOSEN == "gpu":
        return gpu.why_not()
    reason = emulated.why_not() or gpu.why_not_compile()
    if reason is None:
        emulated.start()
    return reason

"""What runs the tests marked `gpu`: the GPU at hand, or without one the emulated GPU.

`pytest --device gpu`, `--device emulated` and `--device none` say which, and run all of them.  Without the option the
GPU runs all, and the emulated GPU a selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

CHOSEN = "none"  #: "gpu", "emulated" or "none"
BACKEND = "cuda"  #: the trainer's backend on that device

#: Tests for the selection, by the start of what follows the file's name: few kernels, because one takes seconds to
#: compile for the emulated GPU.  Programs that offload and compress are in `tests/refimpl/backend/test_script.py`.
SELECTED = {
    "test_host": ("test_an_event_orders", "test_work_on_the_default_stream"),
    "test_kernels": tuple(f"test_the_gpu_agrees_with_the_cpu_and_itself[{case}" for case in (
        "softmax", "elementwise",
    )),
}  # fmt: skip


def choose(wanted: str | None) -> None:
    """Called before any test is collected."""
    global CHOSEN, BACKEND
    if wanted is None:
        from refimpl.machine.here import gpu_at_hand

        wanted = "gpu" if gpu_at_hand() else "emulated"
    CHOSEN, BACKEND = wanted, "emulated" if wanted == "emulated" else "cuda"


def selection(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests that run on an emulated GPU where not all are requested."""
    return {item for item in items if item.name.startswith(SELECTED.get(item.path.stem, ()))}


def sized(full: T, small: T) -> T:
    """A size that fills a GPU; on an emulated one, where times are a model's, a small one that asks the same."""
    return full if BACKEND == "cuda" else small


def start() -> str | None:
    """Make the device ready; why the tests cannot run on it, in one line."""
    from kernels.targets import emulated, gpu

    if CHOSEN == "none":
        return "pytest --device none"
    if CHOSEN == "gpu":
        return gpu.why_not()
    reason = emulated.why_not() or gpu.why_not_compile()
    if reason is None:
        emulated.start()
    return reason

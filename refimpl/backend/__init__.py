"""Running a program: on CUDA streams, or on the CPU with the same kernels."""

from refimpl.backend.errors import BatchError, CheckpointError, DeviceFailed, NotFinite, RunError
from refimpl.backend.orders import CopiesEarly, CopiesLate, Drawn, Order, ProgramOrder
from refimpl.backend.script import written_out
from refimpl.backend.trainer import BACKENDS, Evaluation, Trainer

__all__ = [
    "BACKENDS", "BatchError", "CheckpointError", "CopiesEarly", "CopiesLate", "DeviceFailed", "Drawn", "Evaluation",
    "NotFinite", "Order", "ProgramOrder", "RunError", "Trainer", "written_out",
]  # fmt: skip

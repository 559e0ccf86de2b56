"""Running a program: on CUDA streams, or on the CPU with the same kernels."""

from refimpl.backend.alone import Alone, Communicator
from refimpl.backend.orders import CopiesEarly, CopiesLate, Drawn, LegalOrder, ProgramOrder
from refimpl.backend.run_errors import BatchError, CheckpointError, DeviceFailed, NotFinite, RankFailed, RunError
from refimpl.backend.schedules import Schedule
from refimpl.backend.script import written_out
from refimpl.backend.trainer import BACKENDS, Evaluation, Trainer
from refimpl.backend.writing import fill_in, write_on

__all__ = [
    "BACKENDS", "Alone", "BatchError", "CheckpointError", "Communicator", "CopiesEarly", "CopiesLate", "DeviceFailed",
    "Drawn", "Evaluation", "LegalOrder", "NotFinite", "ProgramOrder", "RankFailed", "RunError", "Schedule",
    "Trainer", "fill_in", "write_on", "written_out",
]  # fmt: skip

"""The command `refimpl`, with a fault planted in one rank in the middle of an iteration.

RANK:FAULT@ITERATION, and a file that is written at that moment:

    mpiexec -n 2 python -m tests.refimpl.cli.faulty_rank 1:SIGKILL@2=moment run lenet --parallel mpi …
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from refimpl.backend import Trainer
from refimpl.cli import main


def plant(rank: int, fault: str, iteration: int, moment: str) -> None:
    """`fault`: NaN, "error", or a signal that the rank gets once its losses are known."""
    step, meet = Trainer.step, Trainer._meet

    def is_here(trainer: Trainer) -> bool:
        here = trainer.communicator.rank == rank and trainer.iteration == iteration
        if here and moment:
            Path(moment).touch()
        return here

    def faulty_step(trainer: Trainer, images: Any, labels: Any) -> float:
        return step(trainer, np.full_like(images, 3e38) if fault == "NaN" and is_here(trainer) else images, labels)

    def faulty_meet(trainer: Trainer, loss: float) -> None:
        if is_here(trainer) and fault == "SIGINT":
            os.kill(os.getpid(), signal.SIGINT)
        meet(trainer, loss)
        if is_here(trainer) and fault == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        if is_here(trainer) and fault == "error":
            raise RuntimeError("a kernel failed")

    Trainer.step, Trainer._meet = faulty_step, faulty_meet  # type: ignore[method-assign]


if __name__ == "__main__":
    found = re.fullmatch(r"(\d+):(\w+)@(\d+)=?(.*)", sys.argv[1])
    assert found
    plant(int(found[1]), found[2], int(found[3]), found[4])
    sys.exit(main(sys.argv[2:]))

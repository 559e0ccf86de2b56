"""The command `refimpl`, with a fault planted in one rank.

RANK:FAULT@WHEN, and a file that is written at that moment:

    mpiexec -n 2 python -m tests.refimpl.cli.faulty_rank 1:SIGKILL@2=moment run lenet --parallel mpi …
    mpiexec -n 2 python -m tests.refimpl.cli.faulty_rank FILE

FILE lists, as JSON, faults with a command for each rank.  The same processes run them one after another, and what each
rank ended with is written beside the file.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend import Trainer
from refimpl.cli import main, resolve

LONG = 600.0  #: seconds that the other ranks go on preparing, unless they are told to stop; mpiexec is killed sooner


def plant(patch: pytest.MonkeyPatch, rank: int, mine: int, fault: str, when: str, moment: Path) -> None:
    """Plant a fault in `rank`; this one is `mine`.

    Args:
        fault: NaN, "error" or a signal.
        when: the iteration, once its losses are known, or what else the rank does: compiling or saving.
    """
    step, meet, save = Trainer.step, Trainer._meet, os.fsync

    def strike() -> None:
        moment.touch()
        if fault.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, fault))
        if fault == "error":
            raise RuntimeError("a kernel failed")

    def is_here(trainer: Trainer) -> bool:
        return mine == rank and when == str(trainer.iteration)

    def faulty_step(trainer: Trainer, images: Any, labels: Any) -> float:
        if fault == "NaN" and is_here(trainer):
            moment.touch()
            images = np.full_like(images, 3e38)
        return step(trainer, images, labels)

    def faulty_meet(trainer: Trainer, loss: float) -> None:
        if is_here(trainer) and fault == "SIGINT":
            strike()
        meet(trainer, loss)
        if is_here(trainer) and fault != "SIGINT":
            strike()

    def faulty_save(descriptor: int) -> None:
        if mine == rank:
            strike()
        save(descriptor)

    def endless(*_: Any, **__: Any) -> Any:
        if mine == rank:
            strike()
        time.sleep(LONG)
        raise AssertionError("another rank's fault was not told")

    patch.setattr(Trainer, "step", faulty_step)
    patch.setattr(Trainer, "_meet", faulty_meet)
    if when == "saving":
        patch.setattr(os, "fsync", faulty_save)
    if when == "compiling":
        patch.setattr(resolve, "trainer", endless)


def planted(patch: pytest.MonkeyPatch, text: str) -> None:
    from mpi4py import MPI

    found = re.fullmatch(r"(\d+):(\w+)@(\w+)=(.+)", text)
    assert found
    plant(patch, int(found[1]), MPI.COMM_WORLD.rank, found[2], found[3], Path(found[4]))


def several(file: Path) -> None:
    """One command after another in this process."""
    from mpi4py import MPI

    rank, ended = MPI.COMM_WORLD.rank, []
    for case in json.loads(file.read_text()):
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            if case["fault"]:
                planted(patch, case["fault"])
            status = main(case["commands"][rank])
        printed = {"out": out.getvalue(), "err": err.getvalue()}
        ended.append({"status": status, **printed})
    file.with_suffix(f".{rank}").write_text(json.dumps(ended))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        several(Path(sys.argv[1]))
    else:
        with pytest.MonkeyPatch.context() as patch:
            planted(patch, sys.argv[1])
            sys.exit(main(sys.argv[2:]))

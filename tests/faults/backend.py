"""Faults of the back ends: replay, training, checkpoints, ranks."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "the CPU runs instructions before the events they wait for",
        "refimpl/backend/orders.py",
        "if awaited is not None and awaited not in happened:",
        "if awaited is not None and awaited not in happened and awaited < 0:",
        "tests/refimpl/backend",
    ),
    Fault(
        "bytes that are not valid any more are left readable",
        "refimpl/backend/poison.py",
        "            if not self._left[value]:\n",
        "            if self._left[value] < 0:\n",
        "tests/refimpl/backend/test_poison.py",
        slow=True,
    ),
    Fault(
        "a checkpoint of another shape is loaded",
        "refimpl/backend/checkpoint.py",
        "if array.shape != tensor.shape or array.dtype",
        "if array.size == 0 or array.dtype",
        "tests/refimpl/backend",
        or_else=(("if found.shape != tensor.shape or found.dtype", "if found.dtype"),),
    ),
    Fault(
        "restoring a checkpoint does not restore the settings",
        "refimpl/backend/trainer.py",
        "            setattr(self, name, value)\n",
        "            getattr(self, name)\n",
        "tests/refimpl/backend",
    ),
    Fault(
        "a label one past the last class is accepted",
        "refimpl/backend/batches.py",
        "(given < 0) | (given >= classes)",
        "(given < 0) | (given > classes)",
        "tests/refimpl/backend",
    ),
    Fault(
        "the images that fill up the last batch count in an evaluation",
        "refimpl/backend/batches.py",
        "        count = len(some)\n",
        "        count = batch\n",
        "tests/refimpl/backend",
    ),
    Fault(
        "running averages are not put back after a loss that is NaN",
        "refimpl/backend/trainer.py",
        "            self.device.copy_in(address, host, nbytes)\n",
        "            pass\n",
        "tests/refimpl/backend",
    ),
    Fault(
        "the first weights do not depend on the tensor's name",
        "refimpl/backend/initial_state.py",
        'f"{seed}/{name}".encode()',
        'f"{seed}/".encode()',
        "tests/refimpl/backend",
    ),
    Fault(
        "an epoch's batches overlap",
        "refimpl/backend/data.py",
        "[place * batch : (place + 1) * batch]",
        "[place : place + batch]",
        "tests/refimpl/backend",
    ),
    Fault(
        "a setting that has changed is not bound again",
        "refimpl/backend/bound_program.py",
        "if value != self._settings[name]}",
        "if value is None}",
        "tests/refimpl/backend",
    ),
    Fault(
        "a piece of the host's work runs although the one before it failed",
        "refimpl/backend/host_thread.py",
        "if before is not None and before.error is not None:",
        "if before is not None and before is self:",
        "tests/refimpl/backend/test_host_thread.py",
    ),
    Fault(
        "an exported script uploads the batch of another iteration",
        "refimpl/backend/script.py",
        "first = iteration % (len(images) // batch) * batch",
        "first = (iteration + 1) % (len(images) // batch) * batch",
        "tests/refimpl/backend/test_script.py",
        slow=True,
    ),
    Fault(
        "each process adds its own gradient first",
        "refimpl/backend/communicators.py",
        "total = rows[0]\n                for other in rows[1:]:",
        "total = rows[rank].copy()\n                for other in (*rows[:rank], *rows[rank + 1 :]):",
        "tests/refimpl/backend/test_communicators.py",
        slow=True,
    ),
    Fault(
        "a rank looks at its own loss alone",
        "refimpl/backend/trainer.py",
        "if not np.isfinite(self._losses).all():",
        "if not np.isfinite(self._losses[self.communicator.rank]):",
        "tests/refimpl/backend/test_communicators.py",
    ),
    Fault(
        "the first rank does not say which rank failed",
        "refimpl/backend/run_errors.py",
        'super().__init__(f"rank {rank}: {why}")',
        "super().__init__(why)",
        "tests/refimpl/backend/test_communicators.py",
    ),
)

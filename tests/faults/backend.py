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
    ),
    Fault(
        "a checkpoint of another shape is loaded",
        "refimpl/backend/checkpoint.py",
        "if found.shape != tensor.shape or found.dtype",
        "if found.dtype",
        "tests/refimpl/backend",
    ),
    Fault(
        "restoring a checkpoint does not restore the settings",
        "refimpl/backend/trainer.py",
        "        for name, value in settings.items():\n            setattr(self, name, value)\n",
        "        for name in settings:\n            getattr(self, name)\n",
        "tests/refimpl/backend",
    ),
    Fault(
        "running averages are not put back after a loss that is NaN",
        "refimpl/backend/trainer.py",
        "self.device.copy(out, *place)",
        "out and self.device.copy(out, *place)",
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
        "refimpl/backend/script_text.py",
        "first = iteration % (images // batch) * batch",
        "first = (iteration + 1) % (images // batch) * batch",
        "tests/refimpl/backend/test_script.py",
        slow=True,
    ),
    Fault(
        "each process adds its own gradient first",
        "refimpl/parallel/communicators.py",
        "total = rows[0]\n                for other in rows[1:]:",
        "total = rows[rank].copy()\n                for other in (*rows[:rank], *rows[rank + 1 :]):",
        "tests/refimpl/parallel/test_communicators.py",
        slow=True,
    ),
    Fault(
        "every loss counts in full in the sum that is reported",
        "refimpl/backend/trainer.py",
        "output.layer.weight * float(np.mean(values(output.losses), dtype=np.float64))",
        "float(np.mean(values(output.losses), dtype=np.float64))",
        "tests/refimpl/backend/test_several.py",
    ),
    Fault(
        "a rank looks at its own loss alone",
        "refimpl/backend/trainer.py",
        "if not np.isfinite(self._losses).all():",
        "if not np.isfinite(self._losses[self.communicator.rank]):",
        "tests/refimpl/parallel/test_communicators.py",
    ),
)

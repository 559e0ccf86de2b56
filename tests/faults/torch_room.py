"""Faults of what carries a plan out in PyTorch."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a block is freed while its copy to the host still runs",
        "refimpl/torch/values.py",
        "            self._arrived()  # the allocator may give the bytes to the next kernel\n",
        "            self.copying = None\n",
        "tests/refimpl/torch/test_transfers.py",
    ),
    Fault(
        "batch normalisation that runs again updates its statistics again",
        "refimpl/torch/running_again.py",
        "args[place] = None if args[place] is None else args[place].clone()",
        "args[place] = args[place]",
        "tests/refimpl/torch/test_planned.py",
    ),
    Fault(
        "a clone that an operator in place saves is taken for a mask that only the operator itself can make",
        "refimpl/importing/recorded.py",
        "name(one, before if before and one.copied is first else one.nbytes)",
        "name(one, one.nbytes)",
        "tests/refimpl/torch/test_predictions.py",
    ),
    Fault(
        "what a checkpoint begins with is not held",
        "refimpl/importing/observed.py",
        "            self._current.saves.setdefault(self._key(tensor))\n",
        "            pass\n",
        "tests/refimpl/torch/test_own_module.py",
    ),
    Fault(
        "what is dropped on a way that is new is not compared with what is computed again",
        "refimpl/torch/values.py",
        "        if torch.equal(found.cpu(), original):\n",
        "        if True:\n",
        "tests/refimpl/torch/test_own_module.py",
    ),
    Fault(
        "a value that is read stays dropped where a weight or buffer that it is computed from is about to change",
        "refimpl/torch/watching.py",
        "            elif self._read:\n                self._changes(one)\n",
        "",
        "tests/refimpl/torch/test_own_module.py",
    ),
    Fault(
        "a storage that the module keeps holds what it was computed from",
        "refimpl/torch/watching.py",
        "            self._pending = []\n            self._untie()\n",
        "            self._pending = []\n",
        "tests/refimpl/torch/test_own_module.py",
    ),
    Fault(
        "autocast casts once more what runs again in backward",
        "refimpl/torch/private.py",
        "with torch._C._DisableAutocast(), torch._C",
        "with torch._C",
        "tests/refimpl/torch/test_private.py",
    ),
    Fault(
        "what an operator's backward takes for a moment is not counted",
        "refimpl/importing/any_module.py",
        "            backward_levels=seen.backward_levels,\n",
        "",
        "tests/refimpl/torch/test_predictions.py",
    ),
)

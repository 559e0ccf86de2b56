"""Bytes of live tensors, counted operator by operator: what `torch.cuda.max_memory_allocated` is on a GPU, on the CPU.

    with Meter(planned.parameters()) as meter:
        loss = functional.cross_entropy(planned(images), labels)
        meter.turn()
        loss.backward()
    print(meter.held, meter.peak)

The weights, their gradients, copies on the host and what was there before are left out: what is counted is what a
plan manages.  Rounding and fragmentation are an allocator's, and are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import finalize

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Meter(TorchDispatchMode):
    """Counts storages from their making to their end.  It makes each operator slower by some ten microseconds."""

    def __init__(self, weights: Iterable[Any], transfers: Any = None) -> None:
        """Args:
        weights: whose gradients are left out; none of them: a network with `keeps="pytorch"` counts them, too.
        transfers: a planned module's, whose buffers on the host are left out.
        """
        super().__init__()
        self._weights = list(weights)
        self._transfers = transfers
        self._known: dict[int, int] = {}  #: storage that is alive → its number
        self._left_out: set[int] = set()
        self._log: list[tuple[int, int]] = []  #: number and bytes; fewer than none: it has ended
        self._turn: int | None = None
        self._hooks: list[Any] = []

    def __enter__(self) -> Meter:
        self._hooks = [
            weight.register_post_accumulate_grad_hook(lambda one: self._leave_out(one.grad.untyped_storage()))
            for weight in self._weights
            if weight.requires_grad
        ]
        if self._transfers is not None:
            self._transfers.note_host = self._leave_out
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for hook in self._hooks:
            hook.remove()
        if self._transfers is not None:
            self._transfers.note_host = lambda storage: None

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata not in self._known:
                self._leave_out(value.untyped_storage())  # it was there before
        out = operator(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in self._known:
                    self._note(storage)
        return out

    def turn(self) -> None:
        """Now forward is over."""
        self._turn = len(self._log)

    @property
    def held(self) -> int:
        """Bytes at the turn."""
        return sum(nbytes for number, nbytes in self._log[: self._turn] if number not in self._left_out)

    @property
    def peak(self) -> int:
        """The most bytes at a time."""
        return self.peak_since(0)

    def mark(self) -> int:
        """Now, for `peak_since`."""
        return len(self._log)

    def peak_since(self, mark: int) -> int:
        """The most bytes at a time beyond those that were there."""
        return max((0, *self.levels_since(mark)))

    def levels_since(self, mark: int) -> tuple[int, ...]:
        """Bytes beyond those that were there, each time before some are freed, and at last: the peak is among them."""
        levels, now, grows = [], 0, False
        for number, nbytes in self._log[mark:]:
            if number not in self._left_out and nbytes:  # an empty storage is no change
                if grows and nbytes < 0:
                    levels.append(now)
                now, grows = now + nbytes, nbytes > 0
        return (*levels, now) if grows else tuple(levels)

    @property
    def left(self) -> int:
        """Bytes that are still there."""
        return sum(nbytes for number, nbytes in self._log if number not in self._left_out)

    def _note(self, storage: Any) -> int:
        number, nbytes, key = len(self._log), storage.nbytes(), storage._cdata
        self._known[key] = number
        self._log.append((number, nbytes))
        finalize(storage, self._ended, key, number, nbytes)
        return number

    def _leave_out(self, storage: Any) -> None:
        known = self._known.get(storage._cdata)
        self._left_out.add(self._note(storage) if known is None else known)

    def _ended(self, key: int, number: int, nbytes: int) -> None:
        if self._known.get(key) == number:
            del self._known[key]
        self._log.append((number, -nbytes))

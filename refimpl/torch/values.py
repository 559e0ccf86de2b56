"""What a storage holds between two changes: on the device, on the host, or nowhere until it is computed again.

A storage that is overwritten gets a new value; the old one lives on as the calls that compute it, if another value is
computed from it.  A storage knows its value.  It holds it as long as the value does not hold the storage, so the two
end together; then who needs the value holds it: autograd, and calls that read it.

A value is let go only if it has a copy on the host or the calls that compute it.  So a wrong plan costs memory or time,
and never a bit.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

import torch

from refimpl.torch.private import count_together, fate_of, tie, unwatched
from refimpl.torch.transfers import storage_bytes

CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of shape "
    "{} was saved at version {} and is now at version {}"
)


class StridedView:
    """A tensor without its storage: type, size, strides, offset."""

    __slots__ = ("dtype", "needs_grad", "offset", "size", "stride")

    def __init__(self, tensor: Any) -> None:
        self.dtype, self.needs_grad = tensor.dtype, tensor.requires_grad
        self.size, self.stride, self.offset = tensor.size(), tensor.stride(), tensor.storage_offset()

    def tensor(self, witness: Any) -> Any:
        """The tensor, in the storage of another one."""
        if witness.dtype is self.dtype:
            return witness.as_strided(self.size, self.stride, self.offset)
        storage = witness.untyped_storage()
        return torch.empty(0, dtype=self.dtype, device=witness.device).set_(
            storage, self.offset, self.size, self.stride
        )

    def is_whole(self, nbytes: int) -> bool:
        """Whether it is all of a storage of that many bytes, and a clone of it is the same storage again."""
        dense = 1
        for size, stride in zip(reversed(self.size), reversed(self.stride), strict=True):
            if size > 1 and stride != dense:
                return False
            dense *= size
        return dense * self.dtype.itemsize == nbytes


class StorageValue:
    """Of one storage, until an operator overwrites it."""

    witness: Any = None  #: a tensor that holds the storage; None: others do, or it is gone
    host: Any = None  #: a copy
    copying: Any = None  #: the event of a copy that is under way
    calls: Any = None  #: that compute it again, and more; None: it is never dropped
    number = 0  #: among the values that these make
    original: Any = None  #: where it was dropped, and its bytes on the host, to be compared with what is computed again
    saved = False  #: by autograd
    stale = False  #: its storage was overwritten
    unfilled = False  #: made empty, and nothing was seen that filled it
    is_left = False  #: its time on the device is over
    is_wanted = False  #: on the host, if it is needed at all
    readers: tuple[Any, ...] = ()  #: calls that read it
    leaving = False  #: as soon as the copy that is under way is over

    def __init__(self, iteration: Any, tensor: Any, storage: Any, label: str | None, entry: Any, output: int) -> None:
        """Args:
        iteration: that watches.
        tensor: all or a part of the storage.
        storage: the tensor's.
        label: the plan's name for it; None: the plan orders nothing of it.
        entry: of the operator that made it; None: it is not in the plan.
        output: its place among the operator's fresh outputs; -1: what it overwrites.
        """
        self.ref = ref(self)
        self.iteration, self.label, self.entry, self.output = iteration, label, entry, output
        self.device, self.nbytes, self.version = tensor.device, storage.nbytes(), tensor._version
        self.storage, self.holder = ref(storage), ref(tensor)  #: who may hold the storage beside the plan
        tie(storage, self)

    # -- who needs it --------------------------------------------------------------------------------------------------

    def save(self, tensor: Any, place: Any) -> Any:
        """Autograd saves a tensor in it, as the last that it saves after an operator: what it holds instead."""
        self.saved = True
        self.need(tensor)
        return self, StridedView(tensor), place

    def unpacked(self, view: StridedView) -> Any:
        """The tensor, wherever its bytes are now."""
        if self.stale:
            raise RuntimeError(CHANGED.format(tuple(view.size), self.version, self.version + 1))
        return view.tensor(self.have())

    def need(self, tensor: Any) -> None:
        """Backward reads it, or calls that may run again do."""
        self.iteration.noted[id(self)] = self.ref
        if self.witness is not None or (self.is_left and (self.host is not None or self.calls is not None)):
            if self.witness is None and self.host is None:
                self.iteration.unseen(self._remember, tensor)
            return
        is_left = self.is_left
        self.take(tensor)
        if self.is_wanted:
            self.iteration.unseen(self.offload)
            if is_left:
                self.release()

    def take(self, tensor: Any) -> None:
        """Hold the storage."""
        with unwatched():
            self.witness = tensor.detach()  # an output leads to its node of autograd, and that to what it saves
        self.version, self.is_left = self.witness._version, False
        tie(tensor.untyped_storage(), self, weakly=True)

    # -- what a plan orders --------------------------------------------------------------------------------------------

    def offload(self) -> None:
        """Start a copy to the host, as soon as it is known that backward reads it at all."""
        self.is_wanted = self.witness is None and self.host is None
        if self.witness is not None and self.host is None:
            self.host, self.copying = self.iteration.transfers.out(self.witness.untyped_storage(), self.device)

    def release(self) -> None:
        """Give the device's bytes back as soon as a copy that is under way is over."""
        if self.copying is not None and not self.iteration.transfers.is_over(self.copying):
            if not self.leaving:
                self.iteration.draining.append(self)
            self.leaving = True
        else:
            self.free()

    def free(self) -> None:
        """Give the device's bytes back now."""
        if self.witness is None:
            self.is_left = True
        elif self.host is not None or self.calls is not None:
            self._arrived()  # the allocator may give the bytes to the next kernel
            if self.host is None:
                self._remember(self.witness)
            storage, self.witness = self.witness.untyped_storage(), None
            self.leaving, self.is_left = False, True
            self.iteration.transfers.freed(storage)

    def prefetch(self) -> None:
        if self.witness is not None or self.host is None:
            return
        if (tensor := self.kept_by_others()) is not None:
            self.take(tensor)
        else:
            there, self.copying = self.iteration.transfers.back(self.host, self.device)
            self.arrive(there)

    def recompute(self) -> None:
        if self.witness is not None or self.host is not None or self.calls is None:
            return
        tensor = self.kept_by_others()
        if tensor is None:
            self.arrive(self.calls.again(self))
        else:
            if self.original is not None:
                self._compare(self.calls.again(self))
            self.take(tensor)

    # -- what autograd and other calls need ----------------------------------------------------------------------------

    def have(self) -> Any:
        """A tensor with its storage on the device: it is there, or is copied back, or computed again."""
        if self.witness is None:
            self.iteration.unseen(self.prefetch)
            self.iteration.unseen(self.recompute)
        if self.witness is None:
            raise RuntimeError("a tensor needed for backward was overwritten by an operator in place")
        if self.witness._version != self.version:
            raise RuntimeError(CHANGED.format(tuple(self.witness.shape), self.version, self.witness._version))
        self._arrived()
        return self.witness

    def alone(self, is_borrowed: bool = False) -> Any:
        """Its bytes in a storage that a call may overwrite: its own, if that is there for this alone."""
        if self.witness is None and self.host is None:
            return self.calls.again(self)
        if self.witness is not None:
            there = self.have()
            if not is_borrowed:
                return storage_bytes(there.untyped_storage(), self.device).clone()
            self.witness = None
            return there
        there, event = self.iteration.transfers.back(self.host, self.device)
        self.iteration.transfers.wait(event)
        return there

    def arrive(self, there: Any) -> None:
        """Its bytes are in the storage of this tensor from now on."""
        if self.original is not None:
            self._compare(there)
        self.witness, self.version, self.is_left = there, there._version, False
        tie(there.untyped_storage(), self, weakly=True)

    @property
    def is_missing(self) -> bool:
        """Whether it is worth filling on the way: backward reads it, and it is nowhere."""
        return self.saved and self.witness is None and self.host is None and not self.stale

    def kept_by_others(self) -> Any:
        """A tensor outside of the plan that still holds the storage."""
        tensor = None if self.stale else self.holder()
        same = tensor is not None and fate_of(tensor.untyped_storage()) is self and tensor._version == self.version
        return tensor if same else None

    def _arrived(self) -> None:
        if self.copying is not None:
            self.iteration.transfers.wait(self.copying)
            self.copying = None

    # -- whether what is computed again is what was there --------------------------------------------------------------

    def _remember(self, tensor: Any) -> None:
        """On a path that is new, what is dropped goes to the host, to be compared."""
        place, key = self.iteration.place, (self.iteration.kind, self.entry.index, self.output)
        if self.iteration.is_forward and self.original is None and key not in place.checked:
            host = storage_bytes(self.iteration.transfers.host_buffer(self.nbytes), "cpu")
            with unwatched():
                host.copy_(storage_bytes(tensor.untyped_storage(), self.device))
            self.original = place, host
            self.iteration.compared += self.nbytes

    def _compare(self, there: Any) -> None:
        (place, original), self.original = self.original, None
        found = storage_bytes(there.untyped_storage(), self.device)
        if torch.equal(found.cpu(), original):
            place.checked.add((self.iteration.kind, self.entry.index, self.output))
        else:  # memory was written past the dispatcher, or numbers were drawn without a word
            found.copy_(original)
            self.entry.differs[self.output] = self.nbytes

    # -- changes in place ----------------------------------------------------------------------------------------------

    def before_change(self) -> None:
        """An operator is about to overwrite it: if it cannot be had again, what is computed from it has to be there."""
        self._arrived()
        if self.saved or (self.calls is None and self.host is None):
            self._settle_readers()

    def changed(self, tensor: Any) -> bool:
        """An operator has overwritten it as this tensor; False: as `.data`, which autograd does not count."""
        known = self.holder() if self.witness is None else self.witness
        if self.saved and known is not None and not count_together(known, tensor):
            self.host = self.calls = self.original = None
            self.iteration.is_new = True
            if self.witness is None:
                self.take(known)
            return False
        self.witness, self.stale = None, True
        return True

    def _settle_readers(self) -> None:
        for known in self.readers:
            reader = known()
            if reader is not None:
                reader.settle()

    def stay(self) -> None:
        """From now on it cannot be computed again."""
        if self.stale:
            self._settle_readers()
        elif self.host is None:
            self.recompute()
        self.calls = None

"""Blocks of memory that autograd saved: on the device, on the host, or nowhere until they are computed again.

A block is a storage.  Views, tensors that are saved twice and operators that work in place need no special case: each
is a `SavedTensor`, a size and strides in a block.  A block is let go only if it has a copy on the host or the runs that
compute it.  So a wrong plan costs memory or time, and never a bit.
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import ref

import torch

from refimpl.torch.transfers import Transfers

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

    def tensor(self, storage: Any, device: Any) -> Any:
        """The tensor, in this storage."""
        return torch.empty(0, dtype=self.dtype, device=device).set_(storage, self.offset, self.size, self.stride)


class SavedTensor:
    """What autograd holds instead of a tensor: the tensor itself, until its block leaves the device."""

    __slots__ = ("__weakref__", "block", "tensor", "version", "view")

    def __init__(self, tensor: Any, block: StorageBlock) -> None:
        self.tensor = tensor.detach()  # an output leads to its node of autograd, and that to what it saves
        self.block, self.version = block, tensor._version
        self.view: StridedView | None = None

    def part(self) -> None:
        """Its block leaves the device."""
        self.view, self.tensor = StridedView(self.tensor), None

    def unpacked(self) -> Any:
        """The tensor, wherever its bytes are now."""
        tensor, view = self.tensor, self.view
        version = self.block.version if view is not None else tensor._version
        if version != self.version:
            raise RuntimeError(CHANGED.format(tuple((view or StridedView(tensor)).size), self.version, version))
        return tensor if view is None else view.tensor(self.block.have(), self.block.device)


class Repeatable(Protocol):
    """What computes a storage again: a run of a node (`running_again`)."""

    def again(self, own: Any) -> Any: ...


class BlockTable:
    """The blocks of one iteration by their storages."""

    def __init__(self, transfers: Transfers) -> None:
        self.transfers = transfers
        self.operator: object = None  #: the one that is running
        self.recomputed = 0  #: blocks that were computed again
        self.fixed: set[int] = set()  #: storages that are not the plan's: weights, statistics, the batch
        self._blocks: dict[int, ref[StorageBlock]] = {}

    def __getitem__(self, tensor: Any) -> StorageBlock | None:
        """The block of a tensor's storage, a new one if need be; None: it is a weight's or the batch's."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.fixed:
            return None
        known = self._blocks.get(key)
        block = None if known is None else known()
        if block is None:
            block = StorageBlock(self, key, storage, tensor)
            self._blocks[key] = ref(block)
        return block

    def forget(self, block: StorageBlock) -> None:
        """Its storage goes back to the allocator, which may give another the same key."""
        known = self._blocks.get(block.key)
        if known is not None and known() is block:
            del self._blocks[block.key]

    def held(self) -> int:
        """Bytes on the device that backward needs; the outputs are the caller's."""
        blocks = [known() for known in self._blocks.values()]
        return sum(one.nbytes for one in blocks if one and one.storage is not None and (one.saved or one.read_by))


class StorageBlock:
    """A storage that autograd saved, or that others are computed from."""

    __slots__ = (
        "__weakref__", "beside", "copying", "device", "host", "is_wanted", "key", "leaving", "made_by", "map", "nbytes",
        "read_by", "readers", "runs", "saved", "saved_as", "storage", "table", "version",
    )  # fmt: skip

    def __init__(self, table: BlockTable, key: int, storage: Any, tensor: Any) -> None:
        self.table, self.key = table, key
        self.storage: Any = storage  #: on the device; None: not now
        self.device, self.nbytes, self.version = tensor.device, storage.nbytes(), tensor._version
        self.host: Any = None  #: its copy
        self.copying: Any = None  #: the event of a copy that is under way
        self.made_by = table.operator  #: the operator that was running
        self.map = ""  #: the plan's name
        self.saved = False  #: by autograd
        self.saved_as: list[ref[SavedTensor]] = []  #: tensors in it, while it is on the device
        self.is_wanted = False  #: on the host, if it is saved
        self.runs: list[Repeatable] = []  #: that compute it, the later ones in place; none: it is never dropped
        self.beside: ref[StorageBlock] | None = None  #: of a by-product: the block of the node's output
        self.read_by: list[ref[StorageBlock]] = []  #: blocks that are computed from it
        self.readers = 0  #: values of the forward pass in it
        self.leaving = ""  #: the order that is carried out when there are no readers

    # -- what a plan orders --------------------------------------------------------------------------------------------

    def offload(self) -> None:
        """Start a copy to the host, as soon as it is known that backward reads the block at all."""
        self.is_wanted = not (self.saved or self.read_by)
        if not self.is_wanted and self.host is None and self.storage is not None:
            self.host, self.copying = self.table.transfers.out(self.storage, self.device)

    def save(self, tensor: Any) -> SavedTensor:
        """Autograd saves a tensor in it."""
        self.saved = True
        if self.is_wanted:
            self.offload()
        saved = SavedTensor(tensor, self)
        self.saved_as.append(ref(saved))
        return saved

    def release(self) -> None:
        """Give the device's bytes back as soon as a copy that is under way is over."""
        self._let_go("release")

    def free(self) -> None:
        """Give the device's bytes back now."""
        self._let_go("free")

    def prefetch(self) -> None:
        if self.storage is None and self.host is not None:
            self.storage, self.copying = self.table.transfers.back(self.host, self.device)

    def recompute(self) -> None:
        if self.storage is None and self.host is None:
            self._compute()

    # -- what autograd and other runs need -----------------------------------------------------------------------------

    def have(self) -> Any:
        """The storage on the device: it is there, or is copied back, or computed again."""
        if self.storage is None:
            if self.host is not None:
                self.prefetch()
            else:
                self._compute()
        if self.copying is not None:
            self._arrived()
        return self.storage

    def before_change(self) -> None:
        """An operator is about to overwrite it: what was computed from its value has to be there, and to stay."""
        for one in self.read_by:
            block = one()
            if block is not None and block.runs and block is not self:
                if block.storage is None and block.host is None:
                    block._compute()
                block.runs = []
        self.read_by = []
        self.host = self.copying = None  # a copy that is under way is of no use

    def leave(self) -> None:
        """One value of the forward pass less."""
        self.readers -= 1
        if self.leaving and not self.readers:
            self._let_go(self.leaving)

    def _let_go(self, order: str) -> None:
        if self.readers:
            self.leaving = order
            return
        if self.storage is None or (self.host is None and not self.runs):
            return
        if self.copying is not None and order == "release" and not self.table.transfers.is_over(self.copying):
            self.leaving = order
            return
        self._arrived()  # the allocator may give the bytes to the next kernel
        self.leaving = ""
        for known in self.saved_as:
            saved = known()
            if saved is not None:
                saved.part()
        self.saved_as = []
        storage, self.storage = self.storage, None
        self.table.forget(self)
        self.table.transfers.freed(storage)

    def _arrived(self) -> None:
        if self.copying is not None:
            self.table.transfers.wait(self.copying)
            self.copying = None

    def _compute(self) -> None:
        """Run again what made it; a by-product comes with its node's output where that is gone too."""
        beside = self.beside() if self.beside is not None else None
        if beside is not None and beside.storage is None and beside.host is None and beside.runs:
            beside._compute()
            if self.storage is not None:
                return
        storage = None
        for run in self.runs:
            storage = run.again(storage)
        if self.beside is None:
            self.storage = storage
        assert self.storage is not None
        self.table.recomputed += 1

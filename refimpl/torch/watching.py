"""One forward pass of the user's own module, watched operator by operator, and the backward pass that belongs to it.

The module runs as it is.  A mode below autograd sees every operator; where it is the next one of the plan's script, the
plan's orders are carried out.  Where it is not, the operator runs and nothing else happens: what autograd saves of it
stays, as in plain PyTorch.  `_pack` is called for everything that backward will read: it remembers the value instead
of the tensor.  A hook before and one after the nodes of autograd of a layer are the two ends of its backward step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch.utils._pytree import tree_leaves

from refimpl.torch.module_script import Entry
from refimpl.torch.paths import OperatorPlace, Paths, Stray
from refimpl.torch.private import Watch, fate_of, tie, unwatched
from refimpl.torch.running_again import NodeCalls
from refimpl.torch.step_orders import Order, StepOrders
from refimpl.torch.transfers import Transfers
from refimpl.torch.values import CHANGED, SavedTensor, StorageValue

UNPLANNED = object()  #: the fate of a storage that an operator made which is not in the plan


class Iteration(Watch):
    """The values of one forward pass.  Its backward pass keeps it alive through autograd's hooks."""

    def __init__(self, paths: Paths, orders: StepOrders, transfers: Transfers) -> None:
        super().__init__()
        self.paths, self.orders, self.transfers = paths, orders, transfers
        self.kind = 0  #: of its inputs
        self.is_forward = True
        self.place = paths.first  #: of the operator that runs, or that was the last
        self.recomputed = 0  #: nodes that ran again, some of them more than once
        self.strayed: Stray | None = None  #: it took a way that no other had taken
        self.unplanned = 0  #: operators that are not in the plan
        self.kept_bytes = 0  #: of what the plan lets go, and the module or its caller still holds at the end of forward
        self.compared = 0  #: bytes that were copied to the host, to be compared with what is computed again
        self.noted: dict[int, ref[StorageValue]] = {}  #: values that backward needs
        self.draining: list[StorageValue] = []
        self._others: dict[int, Any] = {}  #: storages that autograd saved, and that are not the plan's
        self._read: dict[int, list[ref[NodeCalls]]] = {}  #: the same → calls that read it
        self._values: list[ref[StorageValue]] = []
        self._holding: dict[str, list[ref[StorageValue]]] = {}  #: map → values that have held it
        self._pending: list[tuple[Any, Entry]] = []  #: outputs that get hooks when autograd has their nodes
        self._late: list[tuple[ref[Any], Entry]] = []
        self._ended: set[str] = set()  #: nodes whose last node of autograd has its hook
        self._calls: ref[NodeCalls] | None = None  #: of the node that runs
        self._is_unseen = False
        self._moved = transfers.out_bytes, transfers.in_bytes  #: before it

    # -- forward -------------------------------------------------------------------------------------------------------

    def run(self, module: Any, args: Any, kwargs: Any) -> Any:
        """The module's outputs."""
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        self.kind = self.paths.kind(tuple((one.shape, one.dtype) for one in given))
        try:
            with self, torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
                out = module(*args, **kwargs)
            self._settle()
        finally:
            self._pending = []
            self._untie()
        for known, entry in self._late:
            tensor = known()
            if tensor is not None and tensor.grad_fn is not None:
                self._hook(tensor.grad_fn, entry)
        self._late = []
        self.obey(self.orders.end)
        for spare in [value for noted in self.noted.values() if (value := noted()) is not None and value.spare]:
            if spare.calls is not None and spare.calls.reads_saved():
                spare.free()
        if self.strayed is not None:
            self.strayed.align()
        self._given, self.module = {one.untyped_storage()._cdata for one in given}, module
        self._count()
        return out

    def _untie(self) -> None:
        """Forward is over: a storage that the module keeps shall not hold what it is computed from."""
        for value in [value for known in self._values if (value := known()) is not None]:
            storage = value.storage()
            if storage is not None and fate_of(storage) is value:
                tie(storage, value, weakly=True)
        self._values = []

    def _count(self) -> None:
        """Bytes on the device that backward needs."""
        values = [value for known in self.noted.values() if (value := known()) is not None]
        self.kept_bytes = sum(one.nbytes for one in values if one.witness is None and one.kept_by_others() is not None)
        self._held = self.kept_bytes + sum(one.nbytes for one in values if one.witness is not None)
        others = [(key, storage) for key, known in self._others.items() if (storage := known()) is not None]
        self._kept = [(key, one.nbytes(), fate_of(one) is UNPLANNED) for key, one in others]
        self._others, self.noted, self.is_forward = {}, {}, False

    @property
    def held(self) -> int:
        """Bytes on the device at the end of forward, those of weights, statistics and the batch left out."""
        state = (*self.module.parameters(), *self.module.buffers())
        fixed = {one.untyped_storage()._cdata for one in state} | self._given
        return self._held + sum(nbytes for key, nbytes, _ in self._kept if key not in fixed)

    @property
    def unplanned_bytes(self) -> int:
        """Of these what autograd saved of operators that are not in the plan."""
        return sum(nbytes for _, nbytes, is_unplanned in self._kept if is_unplanned)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs is None:
            kwargs = {}
        if self._is_unseen:
            return func(*args, **kwargs)
        if self._pending:
            self._settle()
        place = self.place.next.get(func)
        if place is None:
            place = self._stray(func)
        self.place = place
        if place.is_quick:
            return func(*args, **kwargs)
        entry: Any = place.entry
        if entry is not None and entry.before:
            self.obey(entry.before)
        run = self._overwriting if place.facts.writes else self._making
        out = run(place, entry, func, args, kwargs)
        if entry is not None:
            if entry.start or entry.end:
                first = out[0] if isinstance(out, tuple | list) and out else out
                if isinstance(first, torch.Tensor):
                    self._pending.append((first, entry))
            if entry.after:
                self.obey(entry.after)
        return out

    def _stray(self, func: Any) -> OperatorPlace:
        if self.strayed is None:
            self.strayed = Stray(self.paths, self.place)
        return self.strayed.next(func)

    def _making(self, place: OperatorPlace, entry: Entry | None, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator with outputs of its own."""
        facts: Any = place.facts
        calls = call = None
        if entry is not None and entry.is_dropped and facts.fresh:
            calls = self._calls_of(entry)
            call = calls.add(facts, func, args, kwargs)
        out = func(*args, **kwargs)
        outs = (out,) if isinstance(out, torch.Tensor) else out
        self.unplanned += entry is None and bool(facts.fresh)
        for number, at in enumerate(facts.fresh):
            tensor = outs[at]
            if not isinstance(tensor, torch.Tensor) or fate_of(tensor.untyped_storage()) is not None:
                continue
            label = None if entry is None or facts.is_empty else entry.labels[number]
            if entry is None:
                tie(tensor.untyped_storage(), UNPLANNED)
            elif label is not None or call is not None:
                value = self._value(tensor, label, entry, number)
                value.unfilled = facts.is_empty
                if calls is not None and call is not None and self._is_dropped(entry, label, number):
                    call.makes.append((at, calls.makes(value)))
        return out

    def _overwriting(self, place: OperatorPlace, entry: Entry | None, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that overwrites some of its inputs."""
        facts: Any = place.facts
        written = facts.written(args, kwargs)
        owns = [self.value_of(one) for one in written]
        label = None if entry is None else entry.write
        calls = call = None
        if entry is not None and len(written) == 1 and owns[0] is not None and self._is_dropped(entry, label, -1):
            whole = written[0].nbytes == owns[0].nbytes and facts.fills
            if not owns[0].unfilled or whole:
                calls = self._calls_of(entry)
                source = calls.source_of(owns[0])
                if source is not None:
                    call = calls.add(facts, func, args, kwargs, owns[0])
        for one, own in zip(written, owns, strict=True):
            if own is not None:
                own.before_change()
            elif self._read:
                self._changes(one)
        out = func(*args, **kwargs)
        self.unplanned += entry is None and any(own is not None for own in owns)
        for one, own in zip(written, owns, strict=True):
            if own is not None and not own.changed(one):
                if calls is not None and call is not None:
                    calls.calls.pop()
            elif own is not None or label is not None:
                value = self._value(one, label, entry, -1)
                if calls is not None and call is not None:
                    call.overwrites.extend((source, calls.makes(value)))
        return out

    def _is_dropped(self, entry: Entry, label: str | None, number: int) -> bool:
        """Whether the plan drops the value, or it is only a means to compute another."""
        return entry.is_dropped and number not in entry.differs and (label is None or label in self.orders.recomputed)

    def _calls_of(self, entry: Entry) -> NodeCalls:
        calls = self._calls() if self._calls is not None else None
        if calls is None or calls.node != entry.node:
            calls = NodeCalls(self, entry.node)
            self._calls = ref(calls)
        return calls

    def _value(self, tensor: Any, label: str | None, entry: Entry | None, number: int) -> StorageValue:
        value = StorageValue(self, tensor, label, entry, number)
        self._values.append(ref(value))
        value.spare = label is None and entry is not None and entry.spares[number]
        if label is not None:
            holding = self._holding.setdefault(label, [])
            value.is_wanted = any((one := known()) is not None and one.is_wanted for known in holding)  # of a clone
            holding.append(ref(value))
        return value

    def value_of(self, tensor: Any) -> StorageValue | None:
        """The value of a tensor's storage, if it is one of this iteration's."""
        found = fate_of(tensor.untyped_storage())
        return found if type(found) is StorageValue and found.iteration is self else None

    def is_read(self, tensor: Any, calls: NodeCalls) -> None:
        """Calls read a tensor that is not the plan's."""
        storage = tensor.untyped_storage()
        self._read.setdefault(storage._cdata, []).append(ref(calls))
        self._others[storage._cdata] = ref(storage)

    def _changes(self, tensor: Any) -> None:
        """Something that is not the plan's is about to change: what is computed from it has to be there, and stays."""
        for known in self._read.pop(tensor.untyped_storage()._cdata, ()):
            calls = known()
            if calls is not None:
                calls.settle()

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What runs now is no operator of the module."""
        before, self._is_unseen = self._is_unseen, True
        try:
            yield
        finally:
            self._is_unseen = before

    # -- autograd ------------------------------------------------------------------------------------------------------

    def _pack(self, tensor: Any) -> Any:
        """Called by autograd for every tensor that it saves."""
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return tensor, tensor._version
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # inside a vmap a tensor stands for several
            return tensor, tensor._version
        value = fate_of(storage)
        if type(value) is StorageValue and value.iteration is self:
            self._is_unseen = True
            try:
                return value.save(tensor)
            finally:
                self._is_unseen = False
        self._others[storage._cdata] = ref(storage)
        if tensor.grad_fn is not None:  # an output leads to its node of autograd, and that to what it saves
            with unwatched():
                tensor = tensor.detach()
        return tensor, tensor._version

    def _settle(self) -> None:
        """Now autograd has the nodes of the operators that ran."""
        pending, self._pending = self._pending, []
        for tensor, entry in pending:
            if tensor.grad_fn is not None:
                self._hook(tensor.grad_fn, entry)
            else:
                self._late.append((ref(tensor), entry))

    def _hook(self, grad_fn: Any, entry: Entry) -> None:
        if entry.start:
            grad_fn.register_prehook(partial(self._at_step, entry.start))
        if entry.end and entry.node not in self._ended:  # backward runs the first one last
            self._ended.add(entry.node)
            grad_fn.register_hook(partial(self._at_step, entry.end))

    def _at_step(self, orders: Sequence[Order], *gradients: Any) -> None:
        with self.unseen():
            self.obey(orders)

    def obey(self, orders: Sequence[Order]) -> None:
        """Carry out a plan's orders for the values that hold their maps."""
        for verb, name in orders:
            for known in self._holding.get(name, ()):
                value = known()
                if value is not None and not value.stale:
                    getattr(value, verb)()
        if self.draining:
            draining, self.draining = self.draining, []
            for value in draining:
                if value.leaving:
                    value.leaving = False
                    value.release()

    def moved(self) -> tuple[int, int]:
        """Bytes copied out and in since its forward pass began, by it and by iterations that overlap it."""
        before_out, before_in = self._moved
        return self.transfers.out_bytes - before_out, self.transfers.in_bytes - before_in


def _unpack(packed: Any) -> Any:
    """Called by autograd when backward needs what it saved."""
    if type(packed) is SavedTensor:
        return packed.unpacked()
    tensor, version = packed
    if tensor._version != version:
        raise RuntimeError(CHANGED.format(tuple(tensor.shape), version, tensor._version))
    return tensor

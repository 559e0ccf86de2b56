"""One forward pass of the user's own module, watched operator by operator, and the backward pass that belongs to it.

The module runs as it is.  A mode below autograd sees every operator; where it is the next one of the plan's script, the
plan's orders are carried out.  Where it is not, the operator runs and nothing else happens: what autograd saves of it
stays, as in plain PyTorch.  `_pack` is called for everything that backward will read: it remembers the value instead
of the tensor.  A hook before and one after the nodes of autograd of a layer are the two ends of its backward step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch.utils._pytree import tree_leaves

from refimpl.torch.module_script import Entry
from refimpl.torch.paths import KnownSave, KnownWay, OperatorPlace, Paths, SavePlace, Stray
from refimpl.torch.private import Watch, fate_of, modes, tie, unwatched
from refimpl.torch.running_again import NodeCalls
from refimpl.torch.step_orders import Order, StepOrders
from refimpl.torch.transfers import Transfers
from refimpl.torch.values import CHANGED, StorageValue

STRIDED, Tensor = torch.strided, torch.Tensor  # names of a module take longer
UNPLANNED = object()  #: the fate of a storage that an operator made which is not in the plan


class Iteration(Watch):
    """The values of one forward pass.  Its backward pass keeps it alive through autograd's hooks."""

    def __init__(self, paths: Paths, orders: StepOrders, transfers: Transfers) -> None:
        super().__init__()
        self.paths, self.orders, self.transfers = paths, orders, transfers
        self.kind = 0  #: of its inputs
        self.is_forward = True
        self.is_watched = False  #: a mode sees its operators
        self.is_new = False  #: something was met that was not known
        self.place = paths.first  #: of the operator that runs, or that was the last
        self.recomputed = 0  #: nodes that ran again, some of them more than once
        self.strayed: Stray | None = None  #: it took a way that no other had taken
        self.unplanned = 0  #: operators that are not in the plan
        self.kept_bytes = 0  #: of what the plan lets go, and the module or its caller still holds at the end of forward
        self.compared = 0  #: bytes that were copied to the host, to be compared with what is computed again
        self.noted: dict[int, ref[StorageValue]] = {}  #: values that backward needs
        self.draining: list[StorageValue] = []
        self._known: Iterator[KnownSave] | None = None  #: what autograd is going to save: then nothing is watched
        self._saved: list[KnownSave] = []  #: what it has saved
        self._due: list[Order] = []  #: orders since then
        self._saves = 0  #: tensors since the last operator
        self._others: dict[int, Any] = {}  #: storages that autograd saved, and that are not the plan's
        self._read: dict[int, list[ref[NodeCalls]]] = {}  #: the same → calls that read it
        self._values: list[ref[StorageValue]] = []
        self._holding: dict[str, list[ref[StorageValue]]] = {}  #: map → values that have held it
        self._pending: list[tuple[Any, OperatorPlace]] = []  #: outputs that get hooks when autograd has their nodes
        self._late: list[tuple[ref[Any], OperatorPlace]] = []
        self._met: list[bool] = []  #: not empty: backward has met a step for the first time
        self._ended: set[str] = set()  #: nodes whose last node of autograd has its hook
        self._calls: ref[NodeCalls] | None = None  #: of the node that runs
        self._is_unseen = False
        self._moved = transfers.out_bytes, transfers.in_bytes  #: before it

    # -- forward -------------------------------------------------------------------------------------------------------

    def run(self, module: Any, args: Any, kwargs: Any) -> Any:
        """The module's outputs."""
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        self.kind = self.paths.kind(tuple((one.shape, one.dtype) for one in given))
        known = self.paths.known.get(self.kind)
        self._modes = modes()
        if known is not None:
            self._known = iter(known.saved)
        pack = self._pack if known is None else self._pack_known
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, self._unpack):
                if known is None:
                    self._watch()
                out = module(*args, **kwargs)
            self._settle()
        finally:
            if self.is_watched:
                self.__exit__(None, None, None)
            self._pending = []
            self._untie()
        for tied, place in self._late:
            tensor = tied()
            if tensor is not None and tensor.grad_fn is not None:
                self._hook(tensor.grad_fn, place)
        self._late = []
        self.obey((*known.end, *self.orders.end) if known is not None and self._known is not None else self.orders.end)
        if self.strayed is not None:
            self.strayed.align()
        self._given, self.module = {one.untyped_storage()._cdata for one in given}, module
        self._count(known if self._known is not None else None)
        return out

    def _watch(self) -> None:
        """Enter the mode, unless another one would be left in its place."""
        if modes() == self._modes:
            self.is_watched = True
            self.__enter__()

    def _untie(self) -> None:
        """Forward is over: a storage that the module keeps shall not hold what it is computed from."""
        for value in [value for known in self._values if (value := known()) is not None]:
            storage = value.storage()
            if storage is not None and fate_of(storage) is value:
                tie(storage, value, weakly=True)
        self._values = []

    def _count(self, known: KnownWay | None) -> None:
        """Bytes on the device that backward needs."""
        values = [value for one in self.noted.values() if (value := one()) is not None]
        self.kept_bytes = sum(one.nbytes for one in values if one.witness is None and one.kept_by_others() is not None)
        self._held = self.kept_bytes + sum(one.nbytes for one in values if one.witness is not None)
        if known is not None:
            self.unplanned, (self._given, self._kept) = known.unplanned, known.kept
        else:
            others = [(key, storage) for key, noted in self._others.items() if (storage := noted()) is not None]
            self._kept = [(key, one.nbytes(), fate_of(one) is UNPLANNED) for key, one in others]
            way = KnownWay(self._saved, self._due, self.unplanned, (self._given, self._kept))
            self.paths.note(self.kind, self.is_new, way)
        self._others, self.noted, self.is_forward, self._saved, self._due = {}, {}, False, [], []

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
        if self._is_unseen:
            return func(*args, **(kwargs or {}))
        if self._pending:
            self._settle()
        place = self.place.then
        if place.func is not func:
            place = self._elsewhere(func)
        self.place = place
        if place.is_quick:
            self._saves = 0
            return place.call(*args, **kwargs) if kwargs else place.call(*args)
        entry: Any = place.entry
        if entry is not None and entry.before:
            self.obey(entry.before)
            (self._saved[-1].after if self._saves and self._saved else self._due).extend(entry.before)
        self._saves = 0
        out = (self._overwriting if place.facts.writes else self._making)(place, entry, args, kwargs or {})
        if entry is not None:
            if place.start or place.end:
                first = out[0] if isinstance(out, tuple | list) and out else out
                if isinstance(first, Tensor):
                    self._pending.append((first, place))
            if entry.after:
                self.obey(entry.after)
                self._due.extend(entry.after)
        return out

    def _elsewhere(self, func: Any) -> OperatorPlace:
        """The place of an operator that is not the one that came here last."""
        place = self.place.next.get(func)
        if place is not None:
            self.place.then = place
            return place
        self.is_new = True
        if self.strayed is None:
            self.strayed = Stray(self.paths, self.place)
        return self.strayed.next(func)

    def _making(self, place: OperatorPlace, entry: Entry | None, args: Any, kwargs: Any) -> Any:
        """An operator with outputs of its own."""
        facts: Any = place.facts
        if entry is None:
            out = place.call(*args, **kwargs)
            self.unplanned += bool(facts.fresh)
            for at in facts.fresh:
                tensor = out if isinstance(out, Tensor) else out[at]
                if isinstance(tensor, Tensor) and fate_of(tensor.untyped_storage()) is None:
                    tie(tensor.untyped_storage(), UNPLANNED)
            return out
        call = None
        if entry.is_dropped and facts.fresh:
            calls = self._calls_of(entry)
            call = calls.add(facts, place.func, args, kwargs)
        out = place.call(*args, **kwargs)
        for number, at in enumerate(facts.fresh):
            label = None if facts.is_empty else entry.labels[number]
            tensor = out if isinstance(out, Tensor) else out[at]
            if (label is None and call is None) or not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            if fate_of(storage) is None:
                value = self._value(tensor, storage, label, entry, number)
                if facts.is_empty:
                    value.unfilled = True
                if call is not None and self._is_dropped(entry, label, number):
                    call.makes.append((at, calls.makes(value, call)))
        return out

    def _overwriting(self, place: OperatorPlace, entry: Entry | None, args: Any, kwargs: Any) -> Any:
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
                    call = calls.add(facts, place.func, args, kwargs, owns[0])
        for one, own in zip(written, owns, strict=True):
            if own is not None:
                own.before_change()
            elif self._read:
                self._changes(one)
        out = place.call(*args, **kwargs)
        self.unplanned += entry is None and any(own is not None for own in owns)
        for one, own in zip(written, owns, strict=True):
            if own is not None and not own.changed(one):
                if calls is not None and call is not None:
                    calls.calls.pop()
            elif own is not None or label is not None:
                value = self._value(one, one.untyped_storage(), label, entry, -1)
                if calls is not None and call is not None:
                    call.overwrites = source, calls.makes(value, call)
        return out

    def _is_dropped(self, entry: Entry, label: str | None, number: int) -> bool:
        """Whether the plan drops the value, or it is only a means to compute another."""
        return entry.is_dropped and number not in entry.differs and (label is None or label in self.orders.recomputed)

    def _calls_of(self, entry: Entry) -> NodeCalls:
        calls = self._calls() if self._calls is not None else None
        if calls is None or calls.node != entry.node:
            calls = NodeCalls(self, entry.node)
            self._calls = calls.ref
        return calls

    def _value(self, tensor: Any, storage: Any, label: str | None, entry: Entry | None, number: int) -> StorageValue:
        value = StorageValue(self, tensor, storage, label, entry, number)
        self._values.append(value.ref)
        if label is not None:
            holding = self._holding.setdefault(label, [])
            if holding:  # of a clone
                value.is_wanted = any((one := known()) is not None and one.is_wanted for known in holding)
            holding.append(value.ref)
        return value

    def value_of(self, tensor: Any) -> StorageValue | None:
        """The value of a tensor's storage, if it is one of this iteration's."""
        found = fate_of(tensor.untyped_storage())
        return found if type(found) is StorageValue and found.iteration is self else None

    def is_read(self, tensor: Any, calls: NodeCalls) -> None:
        """Calls read a tensor that is not the plan's."""
        storage = tensor.untyped_storage()
        self._read.setdefault(storage._cdata, []).append(calls.ref)
        self._others[storage._cdata] = ref(storage)

    def _changes(self, tensor: Any) -> None:
        """Something that is not the plan's is about to change: what is computed from it has to be there, and stays."""
        for known in self._read.pop(tensor.untyped_storage()._cdata, ()):
            calls = known()
            if calls is not None:
                calls.settle()

    def unseen(self, run: Any, *given: Any) -> Any:
        """What runs now is no operator of the module."""
        before, self._is_unseen = self._is_unseen, True
        try:
            return run(*given)
        finally:
            self._is_unseen = before

    # -- autograd ------------------------------------------------------------------------------------------------------

    def _pack(self, tensor: Any) -> Any:
        """Called by autograd for every tensor that it saves."""
        saves, nth = self.place.saves, self._saves
        if nth == len(saves):
            saves.append(SavePlace())
        place, self._saves = saves[nth], nth + 1
        made, storage = None, _storage_of(tensor)
        value = None if storage is None else fate_of(storage)
        if type(value) is StorageValue and value.iteration is self:
            if value.label is not None:
                made = (value.label, value.entry, value.output), value.is_wanted, value.is_left
            packed = value.save(tensor, place)
        else:
            if storage is not None:
                self._others[storage._cdata] = ref(storage)
            packed = _kept(tensor, place)
        if self.paths.patience:
            self._saved.append(KnownSave(tensor.shape, tensor.dtype, made, self._due, [], place, self.place))
            self._due = []
        return packed

    def _pack_known(self, tensor: Any) -> Any:
        """The same, where nothing is watched."""
        known = None if self._known is None else next(self._known, None)
        storage = None if known is None or known.made is None else _storage_of(tensor)
        if (
            known is None or tensor.shape != known.shape or tensor.dtype is not known.dtype
            or (known.made is not None and storage is None)
        ):  # fmt: skip
            if self._known is not None:
                self._known, self.is_new = None, True
                self.paths.forget()
            if not self.is_watched:
                self._watch()
            return self._pack(tensor)
        if known.before:
            self.obey(known.before)
        if known.made is None:
            packed = _kept(tensor, known.place)
        else:
            value = fate_of(storage)
            if type(value) is not StorageValue or value.iteration is not self:
                value = None
            elif tensor._version > value.version:
                value.witness, value.stale, value = None, True, None
            if value is None:
                made, is_wanted, is_left = known.made
                value = self._value(tensor, storage, *made)
                value.is_wanted, value.is_left = is_wanted, is_left
            packed = value.save(tensor, known.place)
        if known.after:
            self.obey(known.after)
        self.place = known.operator
        return packed

    def _unpack(self, packed: Any) -> Any:
        """Called by autograd when backward needs what it saved."""
        source, view, place = packed
        if self._due:
            place.orders, self._due = (*place.orders, *self._due), []
        elif place.orders:
            self.unseen(self.obey, place.orders)
        if type(source) is StorageValue:
            return source.unpacked(view)
        if source._version != view:
            raise RuntimeError(CHANGED.format(tuple(source.shape), view, source._version))
        return source

    def _settle(self) -> None:
        """Now autograd has the nodes of the operators that ran."""
        pending, self._pending = self._pending, []
        for tensor, place in pending:
            if tensor.grad_fn is not None:
                self._hook(tensor.grad_fn, place)
            else:
                self._late.append((ref(tensor), place))

    def _hook(self, grad_fn: Any, place: OperatorPlace) -> None:
        node = place.entry.node if place.entry is not None else ""
        if place.asked:  # backward did not come here, as at a clone that is saved and nothing else
            place.start = place.end = ()
            place.settle()
            return
        place.asked = self._met
        if place.start:
            grad_fn.register_prehook(partial(self._at_step, place, "start"))
            self.is_new = True
        if place.end and node in self._ended:  # backward runs the first one last
            place.end = ()
            place.settle()
        elif place.end:
            self._ended.add(node)
            grad_fn.register_hook(partial(self._at_step, place, "end"))
            self.is_new = True

    def _at_step(self, place: OperatorPlace, end: str, *gradients: Any) -> None:
        """A step is met in backward for the first time: its orders go before what is read next, from now on."""
        orders = getattr(place, end)
        setattr(place, end, ())
        place.settle()
        self._due.extend(orders)
        self._met.append(True)
        self.unseen(self.obey, orders)

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


def _storage_of(tensor: Any) -> Any:
    """None: a plan leaves such a tensor alone."""
    if tensor.layout is not STRIDED or tensor.is_conj() or tensor.is_neg():
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # inside a vmap a tensor stands for several
        return None


def _kept(tensor: Any, place: SavePlace) -> Any:
    """What autograd holds of a tensor that the plan leaves alone."""
    if tensor.grad_fn is not None:  # an output leads to its node of autograd, and that to what it saves
        with unwatched():
            tensor = tensor.detach()
    return tensor, tensor._version, place

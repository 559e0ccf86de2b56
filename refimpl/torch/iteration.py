"""One forward pass and the backward pass that belongs to it.

Forward runs the operators of the export on the module's live weights, and autograd records them as usual.  `_pack` is
called for everything that backward will read: it remembers the block instead of the tensor.  A hook before and one
after the node of autograd that belongs to a layer are the two ends of the layer's backward step; there the plan's
orders are carried out, as they are before and after each forward step.  vDNN's prefetch window is such orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from refimpl.torch.blocks import CHANGED, BlockTable, SavedTensor, StorageBlock
from refimpl.torch.exporting import ExportedModule, Operator, Slot
from refimpl.torch.running_again import Autocast, NodeRun
from refimpl.torch.step_orders import NodeOrders, Order, Orders, StepOrders
from refimpl.torch.transfers import Transfers

NOTHING = NodeOrders()  #: of a node that no layer stands for
SMALL = 16  #: a by-product of fewer bytes than the output's over this is kept: batch statistics


class Iteration:
    """The blocks of one forward pass.  Its backward pass keeps it alive through autograd's hooks."""

    def __init__(self, exported: ExportedModule, orders: StepOrders, transfers: Transfers, lean: bool) -> None:
        self.exported, self.orders, self.transfers, self.lean = exported, orders, transfers, lean
        self._moved = transfers.out_bytes, transfers.in_bytes  #: before it
        self.table = BlockTable(transfers)
        self.held = 0  #: bytes of blocks on the device at the end of forward
        self._holding: dict[str, list[ref[StorageBlock]]] = {}  #: map → blocks that have held it: output, by-products
        self._draining: list[ref[StorageBlock]] = []
        self._made: list[tuple[int, StorageBlock]] = []  #: what the running operator saves beside its output
        self._given: set[int] = set()  #: identities of the weights, statistics and inputs, while forward runs
        self._saved = 0  #: tensors that it has saved

    def forward(self, inputs: list[Any]) -> Any:
        """The module's outputs, flattened."""
        exported = self.exported
        values: list[Any] = [None] * exported.width
        blocks: list[Any] = [None] * exported.width  #: the block of each value, or of several values in a tuple
        for slot, state, name in exported.state:
            values[slot] = state[name]
        for slot, value in (*exported.constants, *zip(exported.given, inputs, strict=True)):
            values[slot] = value
        given = [value for value in values if isinstance(value, torch.Tensor)]
        self._given = {id(value) for value in given}
        self.table.fixed = {value.untyped_storage()._cdata for value in given}
        device = next((value.device for value in inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))
        autocast = Autocast.now(device.type)
        its = self.orders.of
        try:
            with saved_tensors_hooks(self._pack, _unpack):
                for operator in exported.operators:
                    self._run(operator, its.get(operator.name, NOTHING), values, blocks, autocast)
                    for slot in operator.done:
                        values[slot] = None
                        if blocks[slot] is not None:
                            self._leave(blocks[slot])
                            blocks[slot] = None
        finally:
            self.table.operator, self._made, self._given = None, [], set()
        self.obey(self.orders.end)
        for name, slot in exported.written:
            _write(exported, name, values[slot])
        self.held = self.table.held()
        return [values[one] if isinstance(one, Slot) else one for one in exported.outputs]

    def _run(
        self, operator: Operator, its: NodeOrders, values: list[Any], blocks: list[Any], autocast: Autocast
    ) -> None:
        maps, is_dropped, is_ordered, orders, backward = its
        if orders is not None and orders.before:
            self.obey(orders.before)
        own = None if operator.overwrites is None else blocks[operator.overwrites]
        if own is not None:
            own.before_change()
        run = NodeRun(operator, values, blocks, own, autocast) if is_dropped or self.lean else None
        self.table.operator, self._saved = operator, 0
        made = self._made = []
        entered: list[Any] = []
        if backward is not None and operator.last_node is None:
            entered = [value.grad_fn for value in tree_leaves([values[slot] for slot in operator.inputs])
                       if isinstance(value, torch.Tensor)]  # fmt: skip
        args, kwargs = operator.filled(values)
        out = operator.target(*args, **kwargs)
        values[operator.out] = out
        if isinstance(out, torch.Tensor):
            block = self.table[out]
            if block is not None:
                blocks[operator.out] = block
                block.readers += 1
                if block is own or (block.made_by is operator and (is_ordered or self.lean)):
                    self._note(block, own, maps, run, out)
                elif maps and block.made_by is operator:
                    block.map = maps[0]  # which stays where it is
            if backward is not None:
                self._hook(out.grad_fn, backward, operator, entered)
        elif isinstance(out, tuple | list):  # of several outputs none is computed again
            outs = blocks[operator.out] = [self.table[one] for one in out if isinstance(one, torch.Tensor)]
            for one in (*outs, *(block for _, block in made)):
                if one is not None and one.made_by is operator and not one.map:
                    self._hold(one, maps[0] if maps else "")
            for one in outs:
                if one is not None:
                    one.readers += 1
        if orders is not None and orders.after:
            self.obey(orders.after)

    def _note(
        self, block: StorageBlock, own: StorageBlock | None, maps: Sequence[str], run: NodeRun | None, out: Any
    ) -> None:
        """Which map the block holds from now on, and how it is computed again."""
        before, earlier = block.map, block.runs
        self._hold(block, maps[0] if maps else block.map)
        again = run is not None and self._is_dropped(block.map, run)
        if block is own:
            block.version = out._version
            again = again and bool(block.runs)  # else what came before cannot be computed again
        block.runs = [*(earlier if block is own else ()), run] if again and run is not None else []
        if again and run is not None:
            run.read(block)
        if self._made:
            rest = list(maps[1:])
            for number, made in self._made:
                if made is block:
                    continue
                if block is own and before and _is_clone(made, out):
                    self._note_clone(made, block, run, earlier, before)
                else:
                    self._note_by_product(number, made, block, rest, run, earlier)

    def _note_clone(
        self, made: StorageBlock, block: StorageBlock, run: NodeRun | None, earlier: list[Any], before: str
    ) -> None:
        """The same of the copy that a node saves of what it overwrites: it has the earlier map, and that map's runs.

        Each of the two can then be there without the other: the node runs again on a copy of the clone.

        Args:
            made: the clone's block.
            block: the output's.
            run: of the node.
            earlier: what computes the block before the node overwrites it.
            before: the map that the block had.
        """
        self._hold(made, before)
        if before != block.map and block.is_wanted:  # ordered when the clone was not there yet
            made.offload()
            block.is_wanted = False
        if run is None:
            return
        if earlier and self._is_dropped(before, run):
            made.runs = earlier
            for one in earlier:
                one.read(made)
        block.runs = []
        if before != block.map and self._is_dropped(block.map, run):
            run.start_from(made)
            run.read(block)
            block.runs = [run]
        if self.lean and made.runs:
            made.free()

    def _note_by_product(
        self, number: int, made: StorageBlock, block: StorageBlock, rest: list[str], run: NodeRun | None,
        earlier: list[Any],
    ) -> None:  # fmt: skip
        """The same of a mask, of indices: of what a node saves beside its output.

        Args:
            number: which of the tensors that the node saved.
            made: its block.
            block: the output's.
            rest: names of the layer's maps that are not found yet.
            run: of the node.
            earlier: what computes the block before the node overwrites it, if it does.
        """
        name = next((name for name in rest if self.orders.bytes.get(name) == made.nbytes), None)
        if name is None and made.nbytes * SMALL < block.nbytes:
            return
        if name is not None:
            rest.remove(name)
        self._hold(made, name or block.map)
        made.beside = ref(block)
        overwritten = run is not None and run.operator.overwrites is not None
        if run is not None and (earlier or not overwritten) and self._is_dropped(made.map, run):
            made.runs = [*earlier, run] if overwritten else [run]
            run.missing[number] = ref(made)
            run.read(made)
            if self.lean and name is None:
                made.free()

    def _is_dropped(self, name: str, run: NodeRun) -> bool:
        """Whether the plan drops the map; a lean iteration may drop what costs no input that is not held anyway."""
        return name in self.orders.recomputed or (self.lean and run.reads_saved())

    def _hold(self, block: StorageBlock, name: str) -> None:
        """From now on the block has the map of this name."""
        if block.map == name:
            return
        block.map = name
        if name in self.orders.ordered:
            self._holding.setdefault(name, []).append(ref(block))

    def moved(self) -> tuple[int, int]:
        """Bytes copied out and in since its forward pass began, by it and by iterations that overlap it."""
        before_out, before_in = self._moved
        return self.transfers.out_bytes - before_out, self.transfers.in_bytes - before_in

    def _leave(self, block: Any) -> None:
        for one in block if isinstance(block, list) else (block,):
            if one is not None:
                one.leave()

    def _hook(self, grad_fn: Any, orders: Orders, operator: Operator, entered: Sequence[Any]) -> None:
        """Both ends of a layer's backward step: an operator may have several nodes of autograd."""
        if grad_fn is None:
            return
        if orders.before:
            grad_fn.register_prehook(partial(self._at_step, orders.before))
        if orders.after:
            if operator.last_node is None:
                operator.last_node = path_to_last(grad_fn, entered)
            for place in operator.last_node:
                grad_fn = grad_fn.next_functions[place][0]
            grad_fn.register_hook(partial(self._at_step, orders.after))

    def _at_step(self, orders: tuple[Order, ...], *gradients: Any) -> None:
        self.obey(orders)

    def obey(self, orders: tuple[Order, ...]) -> None:
        """Carry out a plan's orders for the blocks that hold their maps."""
        for verb, name in orders:
            for known in self._holding.get(name, ()):
                block = known()
                if block is not None and block.map == name:  # which may hold another map by now
                    getattr(block, verb)()
                    if block.leaving and not block.readers:
                        self._draining.append(known)
        if self._draining:
            self._draining = [known for known in self._draining if _still_leaves(known())]

    def _pack(self, tensor: Any) -> Any:
        """Called by autograd for every tensor that it saves."""
        number, self._saved = self._saved, self._saved + 1
        if id(tensor) in self._given:
            return tensor, tensor._version
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return tensor, tensor._version
        operator = self.table.operator
        block = None if operator is None else self.table[tensor]
        if block is None:
            return tensor, tensor._version
        if block.made_by is operator and not block.saved and not block.readers:
            self._made.append((number, block))
        return block.save(tensor)


def _is_clone(made: StorageBlock, out: Any) -> bool:
    """Whether a by-product of an operator in place is the input that autograd saved: ReLU6's is, dropout's is not."""
    saved = getattr(out.grad_fn, "_saved_self", None)
    return (
        isinstance(saved, torch.Tensor) and saved.untyped_storage()._cdata == made.key and saved.numel() == out.numel()
    )


def path_to_last(grad_fn: Any, entered: Sequence[Any]) -> tuple[int, ...]:
    """The way from an operator's output to the last of its nodes that backward runs, as places in `next_functions`.

    Args:
        grad_fn: of the output.
        entered: those of its inputs, which are not its own.
    """
    met = {grad_fn, *entered}
    found: tuple[int, ...] = ()
    waiting: list[tuple[Any, tuple[int, ...]]] = [(grad_fn, ())]
    last = grad_fn._sequence_nr()
    while waiting:
        node, path = waiting.pop()
        if node._sequence_nr() < last:  # backward runs them in the opposite order of their making
            last, found = node._sequence_nr(), path
        for place, (one, _) in enumerate(node.next_functions):
            if one is not None and one not in met and not hasattr(one, "variable"):
                met.add(one)
                waiting.append((one, (*path, place)))
    return found


def _still_leaves(block: StorageBlock | None) -> bool:
    """Whether a block that is being released has to wait for its copy; it is released where it has not."""
    if block is not None and block.leaving:
        block.release()
    return block is not None and bool(block.leaving)


def _unpack(packed: Any) -> Any:
    """Called by autograd when backward needs what it saved."""
    if isinstance(packed, SavedTensor):
        return packed.unpacked()
    tensor, version = packed
    if tensor._version != version:
        raise RuntimeError(CHANGED.format(tuple(tensor.shape), version, tensor._version))
    return tensor


def _write(exported: ExportedModule, name: str, value: Any) -> None:
    """A buffer's value at the end of forward."""
    path, _, own = name.rpartition(".")
    buffer = getattr(exported.module.get_submodule(path), own)
    with torch.no_grad():
        buffer.copy_(value)

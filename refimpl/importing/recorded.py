"""A module's script: what PyTorch runs of it below autograd, seen on fake tensors, node by node.

`refimpl.torch.module_script` says what a script is, and reads it where a plan is carried out.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from refimpl.torch.module_script import facts_of, inputs_of, shapes_of
from refimpl.torch.private import TorchDispatchMode, as_below_autograd, fate_of, tie, unwatched


def _masks_in_training(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """What functions of `transformers.masking_utils` return where a model trains.

    Where the package transformers exports a model, it builds a mask for attention that it leaves out where it trains,
    and with a mask PyTorch's kernel has other bits.  Only given position numbers can say that a row has several texts.
    """
    functions: dict[str, Callable[..., Any]] = {"is_torchdynamo_exporting": lambda: False}
    if len(args) <= 1 and "position_ids" not in kwargs:
        functions["find_packed_sequence_indices"] = lambda position_ids: None
    return functions


@contextmanager
def as_it_trains(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], exports: bool = False
) -> Iterator[None]:  # fmt: skip
    """The module in train mode; all that a run changes of it is as before in the end.

    Args:
        module: any.
        args, kwargs: what it is called with.
        exports: for our own kernels: nothing is recorded, and a model that writes text does not keep what it has read.
    """
    masks = sys.modules.get("transformers.masking_utils")
    stand_ins = {name: one for name, one in _masks_in_training(args, kwargs).items() if hasattr(masks, name)}
    own = {name: getattr(masks, name) for name in stand_ins}
    parts = [*module.modules()]
    attributes = [one for part in parts for one in (vars(part), *vars(part).values())]
    kept = [(one, copy(one)) for one in attributes if isinstance(one, dict | list | set)]
    gradients = [(one, one.grad) for one in module.parameters()]
    drawn = random.getstate()
    configs: list[Any] = [getattr(part, "config", None) for part in parts if exports]
    caching = {id(config): config for config in configs if getattr(config, "use_cache", False) is True}.values()
    try:
        module.train()
        for config in caching:
            config.use_cache = False
        if masks is not None:
            vars(masks).update(stand_ins)
        with torch.set_grad_enabled(not exports):
            yield
    finally:
        random.setstate(drawn)
        for one, before in kept:
            one.clear()
            (one.extend if isinstance(one, list) else one.update)(before)
        for one, gradient in gradients:
            one.grad = gradient
        if masks is not None:
            vars(masks).update(own)
        for config in caching:
            config.use_cache = True


def script_with(lines: list[list[Any]], device: str, module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """A script of these operators, of a module that was called so."""
    inputs = {name: [*map(int, one.shape)] for name, one in inputs_of(module, args, kwargs).items()}
    about = {"torch": torch.__version__, "device": device, "module": shapes_of(module), "inputs": inputs}
    return about | {"operators": [*lines]}


#: Operator of which a fake has no workspace → the place of that among its outputs.
WORKSPACES = {torch.ops.aten.mkldnn_rnn_layer.default: 3}


def _with_workspace(func: Any, args: Sequence[Any], out: Sequence[Any]) -> tuple[Any, ...]:
    """What an operator makes, with the workspace that backward reads; a run on zeros says how large that is."""
    with unwatched(), as_below_autograd(True):
        zeros = tree_map(lambda one: torch.zeros(one.shape, dtype=one.dtype) if torch.is_tensor(one) else one, args)
        size = func(*zeros)[WORKSPACES[func]].shape
    at = WORKSPACES[func]
    return *out[:at], out[at].new_empty(size), *out[at + 1 :]


class StorageRecord:
    """What is known of a storage, which it does not hold."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.made: tuple[int, list[Any], int] = (-1, [], 0)  #: in which node, by which line, as which of its outputs
        self.written: tuple[int, list[Any]] = (-1, [])  #: in which node at last, and by which line
        self.copied: StorageRecord | None = None  #: it is a clone of that
        self.saved = -1  #: in which node at last
        self.value: str | None = None  #: the node whose value it has


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Notes the operators of one node after another."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[list[Any]] = []
        self._number = 0  #: of the node that runs
        self._its: list[list[Any]] = []  #: lines of that node
        self._made: list[StorageRecord] = []  #: storages that it makes

    def saved(self, tensor: Any) -> Any:
        """Autograd saves a tensor of the node that runs."""
        _record(tensor.untyped_storage()).saved = self._number
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in WORKSPACES and torch.is_grad_enabled():
            out = _with_workspace(func, args, out)
        if func.namespace == "prim":  # a fake tensor is asked for its device
            return out
        outs, facts = tuple(out) if isinstance(out, tuple | list) else (out,), facts_of(func)
        line = [str(func), "", [None] * len(facts.fresh), None]
        self._its.append(line)
        for place, at in enumerate(facts.fresh):
            storage = next(_storages(outs[at]), None)
            if storage is not None and fate_of(storage) is None:
                record = _record(storage)
                record.made = self._number, line, place
                self._made.append(record)
                if func is torch.ops.aten.clone.default:
                    record.copied = _record(args[0].untyped_storage())
        for storage in _storages(facts.written(args, kwargs or {})):
            _record(storage).written = self._number, line
        return out

    def ran(self, node: str, out: Any) -> None:
        """A node has run: its operators get their lines."""
        number, its, made = self._number, self._its, self._made
        self._number, self._its, self._made = number + 1, [], []
        for line in its:
            line[1] = node

        def name(record: StorageRecord, value: str | int) -> None:
            """Of what a storage holds after its last operator: dropout's noise is made empty, and then filled."""
            if record.written[0] == number:
                record.written[1][3] = value
            else:
                record.made[1][2][record.made[2]] = value

        outs = list(dict.fromkeys(map(_record, _storages(out))))
        first = outs[0] if outs else None
        in_place = first is not None and first.written[0] == number and first not in made
        before = first.value if first is not None and in_place else None
        for one in outs:
            if one is first and (one in made or in_place):
                name(one, node)
                one.value = node
            elif one in made:
                name(one, one.nbytes)
        for one in made:
            if one.saved == number and one not in outs:
                name(one, before if before and one.copied is first else one.nbytes)
        self.lines += its


def _record(storage: Any) -> StorageRecord:
    found: StorageRecord | None = fate_of(storage)
    if found is None:
        found = StorageRecord(storage.nbytes())
        tie(storage, found)
    return found


def _storages(value: Any) -> Iterator[Any]:
    return (one.untyped_storage() for one in tree_leaves(value) if isinstance(one, torch.Tensor))

"""A module's script: what PyTorch runs of it below autograd, seen on fake tensors as its export runs node by node.

`refimpl.torch.module_script` says what a script is, and reads it where a plan is carried out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_unflatten

from refimpl.torch.module_script import facts_of, inputs_of, shapes_of
from refimpl.torch.private import FakeTensorMode, TorchDispatchMode, fate_of, tie


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
    """The module in train mode.

    Args:
        module: any.
        args, kwargs: what it is called with.
        exports: for our own kernels: nothing is recorded, and a model that writes text does not keep what it has read.
    """
    masks = sys.modules.get("transformers.masking_utils")
    stand_ins = {name: one for name, one in _masks_in_training(args, kwargs).items() if hasattr(masks, name)}
    own = {name: getattr(masks, name) for name in stand_ins}
    modes = {part: part.training for part in module.modules()}
    configs: list[Any] = [getattr(part, "config", None) for part in modes if exports]
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
        if masks is not None:
            vars(masks).update(own)
        for part, mode in modes.items():
            part.training = mode
        for config in caching:
            config.use_cache = True


def script_of(exported: Any, module: Any, autocast: Any = None) -> dict[str, Any]:
    """The script of an export, as plain values that JSON can hold; empty: it does not run on fake tensors.

    Args:
        exported: what `torch.export` has made of the module.
        module: that was exported.
        autocast: a type of numbers, as in `torch.bfloat16` (None: as the module has them).
    """
    signature = exported.graph_signature
    state = dict(module.named_parameters(remove_duplicate=False))
    fakes: dict[Any, Any] = {}

    def fake(node: Any) -> Any:
        value = node.meta.get("val")
        real = state.get(signature.inputs_to_parameters.get(node.name))
        if not isinstance(value, torch.Tensor):
            return value
        if real is None or real not in fakes:
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            fakes[node if real is None else real] = made.requires_grad_(real is not None and real.requires_grad)
        return fakes[node if real is None else real]

    given = [node for node in exported.graph.nodes if node.op == "placeholder"]
    kinds = {value.device.type for node in given if isinstance(value := node.meta.get("val"), torch.Tensor)}
    kind = (kinds - {"cpu"} or {"cpu"}).pop()
    casting = torch.autocast(kind, dtype=autocast, enabled=autocast is not None)
    recorder = Recorder()
    hooks = torch.autograd.graph.saved_tensors_hooks(recorder.saved, lambda tensor: tensor)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), casting, hooks:
            runner = _Nodes(exported.graph_module, recorder)
            runner.run(*map(fake, given), enable_io_processing=False)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return {}
    values = {node.name: node.meta.get("val") for node in given}
    args, kwargs = tree_unflatten([values.get(name) for name in signature.user_inputs], exported.call_spec.in_spec)
    return script_with(recorder.lines, kind, module, args, kwargs)


def script_with(lines: list[list[Any]], device: str, module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """A script of these operators, of a module that was called so."""
    inputs = {name: [*map(int, one.shape)] for name, one in inputs_of(module, args, kwargs).items()}
    about = {"torch": torch.__version__, "device": device, "module": shapes_of(module), "inputs": inputs}
    return about | {"operators": [*lines]}


class _Nodes(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs the nodes of an export, each under the recorder."""

    def __init__(self, graph_module: Any, recorder: Recorder) -> None:
        super().__init__(graph_module)
        self.recorder = recorder

    def run_node(self, n: Any) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        if "_assert_tensor_metadata" in str(n.target):
            return None
        with self.recorder, torch.set_grad_enabled("out" not in n.kwargs):  # which autograd does not take
            out = super().run_node(n)
        self.recorder.ran(n.name, out)
        return out


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

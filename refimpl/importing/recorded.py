"""A module's script: what PyTorch runs of it below autograd, seen on fake tensors as its export runs node by node.

`refimpl.torch.module_script` says what a script is, and reads it where a plan is carried out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from refimpl.torch.module_script import facts_of, shapes_of
from refimpl.torch.private import FakeTensorMode, TorchDispatchMode


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
def as_it_trains(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """The module in train mode, recording nothing; a model that writes text does not keep what it has read."""
    masks = sys.modules.get("transformers.masking_utils")
    stand_ins = {name: one for name, one in _masks_in_training(args, kwargs).items() if hasattr(masks, name)}
    own = {name: getattr(masks, name) for name in stand_ins}
    modes = {part: part.training for part in module.modules()}
    configs: list[Any] = [getattr(part, "config", None) for part in modes]
    caching = {id(config): config for config in configs if getattr(config, "use_cache", False) is True}.values()
    try:
        module.train()
        for config in caching:
            config.use_cache = False
        if masks is not None:
            vars(masks).update(stand_ins)
        with torch.no_grad():
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
    recorder = _Recorder()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), casting, recorder.hooks:
            runner = _Nodes(exported.graph_module, recorder)
            runner.run(*[recorder.given(fake(node)) for node in given], enable_io_processing=False)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return {}
    return {"torch": torch.__version__, "device": kind, "module": shapes_of(module), "operators": recorder.lines}


def script_here(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The script of a module where it is now, for inputs like these; empty: it cannot be exported."""

    def plain(value: Any) -> Any:
        return torch.zeros_like(value.detach()) if isinstance(value, torch.Tensor) else value

    args, kwargs = tuple(map(plain, args)), {name: plain(value) for name, value in kwargs.items()}
    device = next(module.parameters()).device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    try:
        with as_it_trains(module, args, kwargs), torch.autocast(device, enabled=False):
            exported = torch.export.export(module, args, kwargs or None, strict=False)
    except Exception:  # whatever the module's own code raises
        return {}
    return script_of(exported, module, autocast)


class _Nodes(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs the nodes of an export, each under the recorder."""

    def __init__(self, graph_module: Any, recorder: _Recorder) -> None:
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


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Notes the operators of one node after another."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[list[Any]] = []
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor)
        self._calls: list[tuple[Any, list[Any], list[Any], list[Any]]] = []  #: of the node that runs
        self._saved: set[int] = set()
        self._known: dict[int, Any] = {}  #: storages, by their identities, so that none is given to another
        self._value: dict[int, str] = {}  #: storage → the node whose value it has

    def given(self, value: Any) -> Any:
        for storage in _storages(value):
            self._known[id(storage)] = storage
        return value

    def _save(self, tensor: Any) -> Any:
        self._saved.add(id(tensor.untyped_storage()))
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace != "prim":  # a fake tensor is asked for its device
            outs, facts = tuple(out) if isinstance(out, tuple | list) else (out,), facts_of(func)
            fresh = [next(_storages(outs[place]), None) for place in facts.fresh]
            written = [*_storages(facts.written(args, kwargs or {}))]
            self._calls.append((func, fresh, [*_storages((args, kwargs))], written))
        return out

    def ran(self, node: str, out: Any) -> None:
        """A node has run: its operators get their lines."""
        calls, saved, self._calls, self._saved = self._calls, self._saved, [], set()
        lines: list[list[Any]] = [[str(func), node, [None] * len(fresh), None] for func, fresh, _, _ in calls]
        made: dict[int, tuple[list[Any], int]] = {}  #: storage → the line that makes it, and which output it is there
        last: dict[int, list[Any]] = {}  #: storage → the line that writes to it last
        clones: dict[int, Any] = {}  #: storage → what it is a copy of
        for line, (func, fresh, given, written) in zip(lines, calls, strict=True):
            for place, storage in enumerate(fresh):
                if storage is not None and id(storage) not in self._known:
                    self._known[id(storage)] = storage
                    made[id(storage)] = line, place
                    if func is torch.ops.aten.clone.default:
                        clones[id(storage)] = given[0]
            last |= {id(storage): line for storage in written}

        def name(key: int, value: str | int) -> None:
            """Of what a storage holds after its last operator: dropout's noise is made empty, and then filled."""
            if key in last:
                last[key][3] = value
            else:
                line, place = made[key]
                line[2][place] = value

        outs = list(dict.fromkeys(map(id, _storages(out))))
        own = outs[0] if outs and outs[0] in last and outs[0] not in made else None  # works in place
        before = self._value.get(own) if own is not None else None
        for key in outs:
            if key == outs[0] and (key in made or key == own):
                name(key, node)
                self._value[key] = node
            elif key in made:
                name(key, self._known[key].nbytes())
        for key in made:
            if key in saved and key not in outs:
                copied = own is not None and id(clones.get(key)) == own
                name(key, before if copied and before else self._known[key].nbytes())
        self.lines += lines


def _storages(value: Any) -> Iterator[Any]:
    return (one.untyped_storage() for one in tree_leaves(value) if isinstance(one, torch.Tensor))

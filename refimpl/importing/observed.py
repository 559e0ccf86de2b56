"""What PyTorch does with memory in one iteration of an exported module, seen without computing anything.

The nodes of the export run one after another on fake tensors, which have shapes, types and storages, and no numbers.
Autograd records them as in training.  A hook on what it saves says which storages backward will read; a storage that
is saved and that no node has as its output was made for backward alone: the positions of a pooling, a mask, a copy.
Then backward runs on fake tensors too, for PyTorch's own counts of operations, and for the gradients that are handed on
without a new storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from weakref import finalize

from refimpl.network.operation import Storage

Key = int  #: of a storage


@dataclass(eq=False)
class Seen:
    """What one node of an export did."""

    node: Any
    reads: dict[Key, bool] = field(default_factory=dict)  #: storage → whether a gradient goes back to it
    read_bytes: Counter[Key] = field(default_factory=Counter)  #: storage → bytes of what is read of it
    makes: list[Key] = field(default_factory=list)  #: first those that other nodes may read
    overwrites: list[Key] = field(default_factory=list)
    saves: dict[Key, None] = field(default_factory=dict)
    outputs: list[Key] = field(default_factory=list)
    learns: bool = False
    forward_flops: int = 0
    backward_flops: int = 0
    forward_levels: tuple[int, ...] = ()  #: bytes that it takes while it runs, each time before it frees some
    backward_levels: tuple[int, ...] = ()
    hands_on: bool = False


class Observed:
    """One iteration of an export.

    Args:
        torch: the module of that name.
        exported: what `torch.export` has made.
        module: that was exported.
        autocast: a type of numbers, as in `torch.bfloat16` (None: as the module has them).
        loss: a function of what the module returns, which is computed after it and is no part of the export.
    """

    def __init__(self, torch: Any, exported: Any, module: Any, autocast: Any = None, loss: Any = None) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.utils.flop_counter import FlopCounterMode

        from refimpl.torch.meter import Meter

        self.torch = torch
        self.storages: dict[Key, Storage] = {}
        self.nbytes: dict[Key, int] = {}
        self.state: dict[Key, str] = {}  #: storage → the name of the parameter or buffer that has it
        self.parameters = set(exported.graph_signature.inputs_to_parameters.values())  #: names
        self.learning: set[str] = set()  #: those of them that need a gradient
        self.inputs: dict[Key, str] = {}  #: storage → the node of the input that has it
        self.seen: list[Seen] = []
        self.loss: Seen | None = None  #: what a loss outside of the export did
        self.outputs: dict[Key, bool] = {}  #: storage of an output → whether a gradient comes back for it
        self.keys: dict[str, Key] = {}  #: node → the storage of its first output
        self._there: dict[int, Key] = {}  #: storage that is there, as PyTorch's allocator knows it → its key
        self._owners: dict[Any, Seen | None] = {}  #: node of autograd → the node of the export that made it
        self._fakes: dict[Any, Any] = {}  #: parameter → its fake
        self._now: Seen | None = None  #: the node that runs
        self._known = 0  #: storages that were there before it
        self._root: Any = None  #: the loss
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._state_of = dict(module.named_parameters(remove_duplicate=False))
        given = [self._given(mode, exported, node) for node in placeholders(exported)]
        casting: AbstractContextManager[Any] = nullcontext()
        if autocast is not None:
            casting = torch.autocast("cpu", autocast)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor)
        with mode, torch.enable_grad(), FlopCounterMode(display=False) as counter, Meter(()) as meter:
            self._counts = _Counts(counter, meter)
            with hooks, casting:
                found = _Run(self, exported.graph_module).run(*given, enable_io_processing=False)
                if loss is not None:
                    self._run_loss(loss, exported, found)
            self._ends(found)

    # -- forward -------------------------------------------------------------------------------------------------------

    def _given(self, mode: Any, exported: Any, node: Any) -> Any:
        """The fake tensor of a parameter, a buffer, a constant or an input; of one that is shared the same."""
        torch, signature = self.torch, exported.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        names |= signature.inputs_to_lifted_tensor_constants
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return value  # a number that the module is called with
        real = self._state_of.get(names.get(node.name))
        if real is not None and real in self._fakes:
            return self._fakes[real]
        with mode:
            fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
        learns = real is not None and real.requires_grad
        fake.requires_grad_(learns)
        if real is not None:
            self._fakes[real] = fake
        key = self._key(fake)
        if node.name in names:
            self.state[key] = names[node.name]
            self.learning |= {names[node.name]} if learns else set()
        else:
            self.inputs[key] = node.name
        self.keys[node.name] = key
        return fake

    def _key(self, tensor: Any) -> Key:
        storage = tensor.untyped_storage()
        key = self._there.get(storage._cdata)
        if key is None:
            key = self._there[storage._cdata] = len(self.storages)
            whole = storage.nbytes() == tensor.nbytes and tensor.nbytes
            shape = tuple(map(int, tensor.shape)) if whole else (storage.nbytes() // tensor.element_size(),)
            self.storages[key] = Storage(shape or (1,), str(tensor.dtype).removeprefix("torch."))
            self.nbytes[key] = storage.nbytes()
            finalize(storage, self._there.pop, storage._cdata).atexit = False
        return key

    def keys_of(self, values: Any) -> list[Key]:
        """The storages of all tensors in a value of the graph, empty ones left out."""
        return [self._key(one) for one in self.tensors(values) if one.untyped_storage().nbytes()]

    def tensors(self, values: Any) -> list[Any]:
        leaves = self.torch.utils._pytree.tree_leaves(values)
        return [one for one in leaves if isinstance(one, self.torch.Tensor) and _has_storage(one)]

    def _save(self, tensor: Any) -> Any:
        """What autograd saves for backward."""
        if self._now is not None and _has_storage(tensor) and tensor.untyped_storage().nbytes():
            self._now.saves[self._key(tensor)] = None
        return tensor

    def begins(self, node: Any, values: Sequence[Any]) -> Seen:
        """A node is about to run on these values."""
        self._now = seen = Seen(node)
        for tensor in self.tensors(values):
            if tensor.untyped_storage().nbytes():
                key = self._key(tensor)
                seen.reads[key] = seen.reads.get(key, False) or tensor.requires_grad
                seen.read_bytes[key] += tensor.nbytes
        self._known = len(self.storages)
        self._counts.settle()
        return seen

    def ran(self, seen: Seen, changed: Sequence[Any], made: Any) -> None:
        """A node has run, and this is what it made."""
        self._now = None
        seen.forward_flops, seen.forward_levels = self._counts.settle()
        seen.outputs = list(dict.fromkeys(self.keys_of(made)))
        new = set(islice(self.storages, self._known, None))
        seen.makes = list(dict.fromkeys(key for key in (*seen.outputs, *seen.saves) if key in new))
        seen.overwrites = [key for key in self.keys_of(list(changed)) if key not in self.state]
        seen.learns = any(tensor.requires_grad for tensor in self.tensors(made))
        if seen.outputs:
            self.keys[seen.node.name] = seen.outputs[0]
        self.seen.append(seen)
        self._own(seen if seen.makes or seen.overwrites else None, self.tensors(made))

    def _own(self, seen: Seen | None, made: Sequence[Any]) -> None:
        """Remember which nodes of autograd belong to this node of the export."""
        waiting = [tensor.grad_fn for tensor in made if tensor.grad_fn is not None]
        while waiting:
            function = waiting.pop()
            if function in self._owners:
                continue
            self._owners[function] = seen
            waiting += [before for before, _ in function.next_functions if before is not None]

    def _run_loss(self, loss: Any, exported: Any, found: Sequence[Any]) -> None:
        """The loss of what the module returns."""
        specs = exported.graph_signature.output_specs
        outputs = [one for spec, one in zip(specs, found, strict=True) if spec.kind.name == "USER_OUTPUT"]
        seen = self.begins(None, outputs)
        self._root = loss(self.torch.utils._pytree.tree_unflatten(outputs, exported.call_spec.out_spec))
        self._now = None
        _, seen.forward_levels = self._counts.settle()
        seen.makes = [key for key in seen.saves if key >= self._known]
        self._own(seen, self.tensors(self._root))
        self.loss = seen

    # -- backward ------------------------------------------------------------------------------------------------------

    def _ends(self, made: Any) -> None:
        torch, outputs = self.torch, self.tensors(made)
        self.outputs = {self._key(one): one.requires_grad for one in outputs if one.untyped_storage().nbytes()}
        current: list[Seen | None] = [None]

        def settle() -> None:
            flops, levels = self._counts.settle()
            if (seen := current[0]) is not None:
                seen.backward_flops += flops
                seen.backward_levels += levels

        def starts(owner: Seen | None) -> Any:
            def hook(_: Any) -> None:
                if current[0] is not owner:  # an operator may have several nodes of autograd
                    settle()
                    current[0] = owner

            return hook

        def ends(owner: Seen) -> Any:
            def hook(filled: Sequence[Any], given: Sequence[Any]) -> None:
                has = {one.untyped_storage()._cdata for one in given if one is not None}
                handed = [one.untyped_storage()._cdata in has for one in filled if one is not None]
                owner.hands_on = all(handed) and (owner.hands_on or owner not in met)
                met.append(owner)

            return hook

        met: list[Seen] = []
        for function, owner in self._owners.items():
            function.register_prehook(starts(owner))
            if owner is not None:
                function.register_hook(ends(owner))
        learning = [one for one in (outputs if self._root is None else [self._root]) if one.requires_grad]
        with suppress(NotImplementedError, RuntimeError):  # an operator that has no shapes without numbers
            torch.autograd.backward(learning, [torch.ones_like(one) for one in learning])
        settle()
        for seen in self.seen:
            if seen.learns and seen.forward_flops and not seen.backward_flops:
                seen.backward_flops = 2 * seen.forward_flops  # a product has two gradients
        self._owners.clear()


def _has_storage(tensor: Any) -> bool:
    """Whether it is one: inside a `vmap` a tensor stands for several."""
    try:
        tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return False
    return True


def placeholders(exported: Any) -> list[Any]:
    return [node for node in exported.graph.nodes if node.op == "placeholder"]


def changed_by(node: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The values that an operator changes in place, by its schema."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    given = dict(zip((one.name for one in schema.arguments), arguments, strict=False)) | dict(named)
    return [given[a.name] for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
            if a.name in given]  # fmt: skip


class _Counts:
    """Operations and bytes since the last look."""

    def __init__(self, counter: Any, meter: Any) -> None:
        self._counter, self._meter = counter, meter
        self._flops, self._mark = 0, meter.mark()

    def settle(self) -> tuple[int, tuple[int, ...]]:
        """Floating-point operations, and `Meter.levels_since`."""
        flops, before, mark = self._counter.get_total_flops(), self._flops, self._mark
        self._flops, self._mark = flops, self._meter.mark()
        return flops - before, self._meter.levels_since(mark)


def _Run(observed: Observed, graph_module: Any) -> Any:
    """An interpreter of the graph that reports every node to `observed`."""
    torch = observed.torch

    class Run(torch.fx.Interpreter):  # type: ignore[name-defined,misc]
        def run_node(self, node: Any) -> Any:
            if node.op != "call_function":
                return super().run_node(node)
            arguments, named = self.fetch_args_kwargs_from_env(node)
            seen = observed.begins(node, [arguments, named])
            with torch.set_grad_enabled("out" not in named):  # which autograd does not take
                made = super().run_node(node)
            observed.ran(seen, changed_by(node, arguments, named), made)
            return made

    return Run(graph_module)

"""What PyTorch does with memory in one iteration of a module, seen without computing anything.

The module runs on fake tensors, which have shapes, types and storages, and no numbers.  A mode before autograd sees the
operators that the module calls; each is a *node*, and so is an `autograd.Function` of the user's own.  A mode below
autograd sees what PyTorch makes of a node: these are its lines in the script (`refimpl.importing.recorded`).  A hook on
what autograd saves says which storages backward will read; a storage that is saved and that no node has as its output
was made for backward alone: the positions of a pooling, a mask, a copy.  Then backward runs on fake tensors too, for
PyTorch's own counts of operations, and for the gradients that are handed on without a new storage.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any
from weakref import finalize, ref

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from refimpl.importing.own_code import error_line
from refimpl.importing.recorded import Recorder, as_it_trains, script_with
from refimpl.network.layer import NetworkError
from refimpl.network.operation import Storage
from refimpl.torch.meter import Meter
from refimpl.torch.private import (
    BeforeAutograd,
    FakeTensor,
    FakeTensorMode,
    functions_called_by,
    unwatched,
    users_of,
)

Key = int  #: of a storage


@dataclass(eq=False)
class Seen:
    """What one node did."""

    name: str  #: of the node
    operator: str = ""  #: as in "conv2d"
    path: str = ""  #: of the module that called it
    kind: Any = None  #: that module's class
    reads: dict[Key, bool] = field(default_factory=dict)  #: storage → whether a gradient goes back to it
    read_bytes: Counter[Key] = field(default_factory=Counter)  #: storage → bytes of what is read of it
    factors: list[Key] = field(default_factory=list)  #: storages of its first two arguments
    makes: list[Key] = field(default_factory=list)  #: first those that other nodes may read
    overwrites: list[Key] = field(default_factory=list)
    saves: dict[Key, None] = field(default_factory=dict)
    outputs: list[Key] = field(default_factory=list)
    shape: tuple[int, ...] = ()  #: of its first output
    learns: bool = False
    hides: str = ""  #: why its gradient is not that of its operators; empty: it is
    forward_flops: int = 0
    backward_flops: int = 0
    forward_levels: tuple[int, ...] = ()  #: bytes that it takes while it runs, each time before it frees some
    backward_levels: tuple[int, ...] = ()
    hands_on: bool = False


class Observed:
    """One iteration of a module as it trains.

    Args:
        module: any.
        args: what it is called with: tensors, of which shape and type count, and anything else.
        kwargs: the same, by name.
        autocast: a type of numbers, as in `torch.bfloat16` (None: as the module has them).
        loss: a function of what the module returns, which is observed like a part of it.
        outer_loss: one that is not: what it takes is counted as a whole.
    """

    def __init__(
        self,
        module: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        autocast: Any = None,
        loss: Callable[[Any], Any] | None = None,
        outer_loss: Callable[[Any], Any] | None = None,
    ) -> None:
        self.storages: dict[Key, Storage] = {}
        self.nbytes: dict[Key, int] = {}
        self.state: dict[Key, str] = {}  #: storage → the name of the parameter or buffer that has it
        self.parameters = {name for name, _ in module.named_parameters()}
        self.learning: set[str] = set()  #: those of them that need a gradient
        self.inputs: dict[Key, str] = {}  #: storage → the name of the input that has it
        self.seen: list[Seen] = []
        self.loss: Seen | None = None  #: what a loss outside of the network did
        self.outputs: dict[Key, bool] = {}  #: storage of an output → whether a gradient comes back for it
        self.until: dict[Key, int] = {}  #: storage → nodes that have run when no variable holds it any more
        self._variables: dict[Key, ref[Any]] = {}  #: storages that variables of the module hold
        self._packed: dict[Key, list[ref[Any]]] = {}  #: storage → what autograd holds of it
        self._there: dict[int, Key] = {}  #: storage that is there, as PyTorch's allocator knows it → its key
        self._owners: dict[Any, Seen | None] = {}  #: node of autograd → the node that made it
        self._names: Counter[str] = Counter()  #: of nodes
        self._calling: list[tuple[str, Any]] = [("", type(module))]  #: modules that run: their paths and classes
        self._now: Seen | None = None  #: the node that runs
        self._current: Seen | None = None  #: whose backward runs
        self._known = 0  #: storages that were there before it
        self._recorder = Recorder()
        device = next((one.device.type for one in module.parameters()), "cpu")
        self.device = "cpu" if device == "meta" else device

        def run(call: Callable[[], Any]) -> None:
            before = BeforeAutograd(self._node)
            hooks = torch.autograd.graph.saved_tensors_hooks(self._save, self._unpack)
            casting = torch.autocast(self.device, autocast, enabled=autocast is not None)
            with hooks, casting, self._recorder, before, functions_called_by(self._function):
                found = call()
                self.script = script_with(self._recorder.lines, self.device, module, args, kwargs)
                found = found if loss is None else _of(loss, found, module)
            with hooks, casting:
                self._ends(found, found if outer_loss is None else self._run_loss(outer_loss, found, module))

        self._iterate(module, args, kwargs, run)

    def _iterate(
        self, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], run: Callable[[Callable[[], Any]], None]
    ) -> None:  # fmt: skip
        """Run with the module on fake tensors."""
        paths = {part: path for path, part in module.named_modules()}

        class Whole(torch.nn.Module):  # type: ignore[misc]
            """The iteration, so that the fakes are the module's in backward, too: a checkpoint runs parts again."""

            def __init__(self) -> None:
                super().__init__()
                self.module = module

            def forward(self) -> None:
                run(lambda: module(*args, **kwargs))

        def begins(part: Any, given: Any) -> None:
            self._calling.append((paths.get(part, self._calling[-1][0]), type(part)))

        def over(part: Any, given: Any, out: Any) -> None:
            self._calling.pop()

        hooks = torch.nn.modules.module
        with as_it_trains(module, args, kwargs), ExitStack() as stack:
            stack.enter_context(FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True))
            fakes = self._fakes(module)
            args, kwargs = self._given(module, args, kwargs)
            stack.callback(hooks.register_module_forward_pre_hook(begins).remove)
            stack.callback(hooks.register_module_forward_hook(over, always_call=True).remove)
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            with FlopCounterMode(display=False, custom_mapping=FLOPS) as counter, Meter(()) as meter:
                counter.mod_tracker.__exit__()  # its hooks on modules call operators
                self._counts = _Counts(counter, meter)
                torch.func.functional_call(Whole(), {f"module.{name}": fake for name, fake in fakes.items()}, ())

    # -- what is there before ------------------------------------------------------------------------------------------

    def _fake(self, tensor: Any) -> Any:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device)

    def _fakes(self, module: Any) -> dict[str, Any]:
        """The fake tensor of each parameter and buffer; of one that is shared the same."""
        fakes: dict[Any, Any] = {}
        named: dict[str, Any] = {}
        for name, real in (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ):
            if real not in fakes:
                fakes[real] = self._fake(real).requires_grad_(real.requires_grad)
                key = self._key(fakes[real])
                self._there[real.untyped_storage()._cdata] = key  # a module may have it in a list of its own, too
                self.state[key] = name
                self.learning |= {name} if real.requires_grad else set()
            named[name] = fakes[real]
        self._keep = fakes
        return named

    def _given(self, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """Fake inputs, named as the module's `forward` names them."""

        def fake(value: Any) -> Any:
            is_tensor = isinstance(value, torch.Tensor)
            return self._fake(value).requires_grad_(value.requires_grad) if is_tensor else value

        args, kwargs = tuple(tree_map(fake, [*args])), tree_map(fake, dict(kwargs))
        try:
            named = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):
            named = {"args": args, "kwargs": kwargs}
        for name, value in named.items():
            its = [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]
            several = isinstance(value, tuple | list | dict) and len(its) > 1
            for number, one in enumerate(its):
                self.inputs[self._key(one)] = f"{name}_{number}" if several else name
        return args, kwargs

    # -- forward -------------------------------------------------------------------------------------------------------

    def _node(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator is called, by the module or inside a function of the user's own."""
        if self._now is not None:
            self._reads(self._now, (args, kwargs), is_inside=True)
            return as_with_numbers(func, args, kwargs)
        seen = self._begins(func._schema.name.partition("::")[2], (args, kwargs))
        seen.factors = [key for one in args[:2] for key in self.keys_of(one)[:1]]
        out = as_with_numbers(func, args, kwargs)
        self._ran(seen, changed_by(func, args, kwargs), out)
        return out

    def _function(self, function: Any, run: Callable[[], Any], args: Any) -> Any:
        """An `autograd.Function` is called; it is one node, as it has one backward."""
        if self._now is not None:
            return run()
        seen = self._begins(function.__name__, args)
        out = run()
        self._ran(seen, (), out)
        if not function.__module__.startswith("torch."):
            seen.hides = "is an autograd.Function"
        return out

    def _key(self, tensor: Any) -> Key:
        storage = tensor.untyped_storage()
        key = self._there.get(storage._cdata)
        if key is None:
            key = self._there[storage._cdata] = len(self.storages)
            whole = storage.nbytes() == tensor.nbytes and tensor.nbytes
            shape = tuple(map(int, tensor.shape)) if whole else (storage.nbytes() // tensor.element_size(),)
            self.storages[key] = Storage(shape or (1,), str(tensor.dtype).removeprefix("torch."))
            self.nbytes[key] = storage.nbytes()
            if not isinstance(tensor, FakeTensor):
                self.state[key] = f"constant_{key}"
            finalize(storage, self._there.pop, storage._cdata).atexit = False
        return key

    def keys_of(self, values: Any) -> list[Key]:
        """The storages of all tensors in a value, empty ones left out."""
        return [self._key(one) for one in tensors_in(values) if one.untyped_storage().nbytes()]

    def _save(self, tensor: Any) -> Any:
        """What autograd saves for backward."""
        if _has_storage(tensor) and tensor.untyped_storage().nbytes():
            key = self._key(tensor)
            if self._now is not None:
                self._now.saves[key] = None
            self._recorder.saved(tensor)
            if isinstance(tensor, FakeTensor):  # a tensor of its own, to tell what autograd holds from what others do
                with unwatched():
                    tensor = FakeTensor(tensor.fake_mode, tensor.detach(), tensor.fake_device)
                self._packed.setdefault(key, []).append(ref(tensor))
        return tensor

    def _unpack(self, tensor: Any) -> Any:
        """What backward reads: the last node of a checkpoint is the first to read what the checkpoint begins with."""
        if self._current is not None and _has_storage(tensor) and tensor.untyped_storage().nbytes():
            self._current.saves.setdefault(self._key(tensor))
        return tensor

    def _begins(self, operator: str, values: Any) -> Seen:
        """A node is about to run on these values."""
        count = self._names[operator]
        self._names[operator] += 1
        path, kind = self._calling[-1]
        self._look_at_variables()
        self._now = seen = Seen(f"{operator}_{count}" if count else operator, operator.rstrip("_"), path, kind)
        self._reads(seen, values)
        self._known = len(self.storages)
        self._counts.settle()
        return seen

    def _look_at_variables(self) -> None:
        """A node is about to run: which storages does autograd alone hold now?"""
        for key, known in [*self._variables.items()]:
            storage = known()
            packed = sum(one() is not None for one in self._packed.get(key, ()))
            if storage is None or users_of(storage) <= packed:
                del self._variables[key]
                self.until[key] = len(self.seen)

    def _reads(self, seen: Seen, values: Any, is_inside: bool = False) -> None:
        for tensor in tensors_in(values):
            if tensor.untyped_storage().nbytes():
                key = self._key(tensor)
                if not is_inside or key < self._known:
                    seen.reads[key] = seen.reads.get(key, False) or tensor.requires_grad
                    seen.read_bytes[key] += tensor.nbytes

    def _ran(self, seen: Seen, changed: Sequence[Any], made: Any) -> None:
        """A node has run, and this is what it made."""
        self._now = None
        seen.forward_flops, seen.forward_levels = self._counts.settle()
        seen.outputs = list(dict.fromkeys(self.keys_of(made)))
        new = set(islice(self.storages, self._known, None)) - {*self.state}
        seen.makes = list(dict.fromkeys(key for key in (*seen.outputs, *seen.saves) if key in new))
        seen.overwrites = [key for key in self.keys_of(list(changed)) if key not in self.state]
        its = tensors_in(made)
        self._variables |= {self._key(one): ref(one.untyped_storage()) for one in its if self._key(one) in new}
        seen.learns = any(one.requires_grad for one in its)
        seen.shape = tuple(map(int, its[0].shape)) if its else ()
        if not torch.is_grad_enabled() and any(seen.reads.values()) and its and its[0].is_floating_point():
            seen.hides = "runs under torch.no_grad, and reads what learns"
        self.seen.append(seen)
        self._own(seen if seen.makes or seen.overwrites else None, its)
        self._recorder.ran(seen.name, its)

    def _own(self, seen: Seen | None, made: Sequence[Any]) -> None:
        """Remember which nodes of autograd belong to this node."""
        waiting = [tensor.grad_fn for tensor in made if tensor.grad_fn is not None]
        while waiting:
            function = waiting.pop()
            if function in self._owners:
                continue
            self._owners[function] = seen
            waiting += [before for before, _ in function.next_functions if before is not None]

    def _run_loss(self, loss: Callable[[Any], Any], found: Any, module: Any) -> Any:
        """The loss of what the module returns."""
        seen = self._begins("loss", found)
        root = _of(loss, found, module)
        self._now = None
        _, seen.forward_levels = self._counts.settle()
        seen.makes = [key for key in seen.saves if key >= self._known]
        self._own(seen, tensors_in(root))
        self.loss = seen
        return root

    # -- backward ------------------------------------------------------------------------------------------------------

    def _ends(self, made: Any, root: Any) -> None:
        self.until |= dict.fromkeys(self._variables, len(self.seen))
        outputs = [one for one in tensors_in(made) if one.untyped_storage().nbytes()]
        roots = [one for one in tensors_in(root) if one.requires_grad]
        losses = [one for one in roots if one.dim() == 0]  # a model that returns its loss, and its logits beside that
        roots = losses or roots
        wanted = {self._key(one) for one in roots} if root is made else {self._key(one) for one in outputs}
        self.outputs = {self._key(one): one.requires_grad and self._key(one) in wanted for one in outputs}

        def settle() -> None:
            flops, levels = self._counts.settle()
            if (seen := self._current) is not None:
                seen.backward_flops += flops
                seen.backward_levels += levels

        def starts(owner: Seen | None) -> Any:
            def hook(_: Any) -> None:
                if owner is not None and self._current is not owner:  # a view is a part of what was before it
                    settle()
                    self._current = owner

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
        with suppress(NotImplementedError, RuntimeError):  # an operator that has no shapes without numbers
            torch.autograd.backward(roots, [torch.ones_like(one) for one in roots])
        settle()
        for seen in self.seen:
            if seen.learns and seen.forward_flops and not seen.backward_flops:
                seen.backward_flops = 2 * seen.forward_flops  # a product has two gradients
        self._owners.clear()
        self._keep.clear()


def script_here(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The script of a module where it is now, for inputs like these; empty: its code does not run on fake tensors."""
    device = next(module.parameters()).device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    try:
        with torch.autocast(device, enabled=False):
            return Observed(module, args, kwargs, autocast).script
    except Exception:  # whatever the module's own code raises
        return {}


def _of(loss: Callable[[Any], Any], found: Any, module: Any) -> Any:
    try:
        return loss(found)
    except Exception as error:  # whatever the user's own code raises
        what = f"the loss of what {type(module).__name__} returns failed"
        raise NetworkError(f"{what}: {error_line(error)}") from None


def tensors_in(value: Any) -> list[Any]:
    """All tensors with a storage in a value, and in the attributes of one that PyTorch does not know the inside of."""
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found += [leaf] if _has_storage(leaf) else []
        elif hasattr(leaf, "__dataclass_fields__"):
            found += tensors_in(dict(vars(leaf)))
    return found


def _has_storage(tensor: Any) -> bool:
    """Whether it is one: inside a `vmap` a tensor stands for several."""
    try:
        tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _recurrent_flops(given: Sequence[int], one: Sequence[int], other: Sequence[int], *more: Any, **named: Any) -> int:
    """Of all steps of all texts, by the shapes of the input and of both weights."""
    return 2 * prod(given[:-1]) * (prod(one) + prod(other))


#: Operators that PyTorch does not count.
FLOPS = {torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops}


def as_with_numbers(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call an operator.  Without numbers PyTorch computes `one_hot` in another way, which keeps other maps."""
    if func is not torch.ops.aten.one_hot.default or len(args) < 2 or args[1] < 1:
        return func(*args, **kwargs)
    of, classes = args
    made = torch.zeros((*of.shape, classes), dtype=of.dtype, device=of.device)
    return made.scatter_(-1, of.unsqueeze(-1), 1)


def changed_by(func: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The values that an operator changes in place, by its schema."""
    schema = func._schema
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

"""Names of PyTorch that are not public, in one place; `tests/refimpl/torch/test_private.py` asks each what it does.

A storage keeps attributes as long as it lives.  So what a plan knows of a storage is an attribute of
the storage: no table has to be told when an allocator gives its place to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "TESTED", "BeforeAutograd", "FakeTensor", "FakeTensorMode", "TorchDispatchMode", "Watch", "as_below_autograd",
    "caller_of", "count_together", "fate_of", "functions_called_by", "gather", "hooks_are_free", "modes",
    "not_compiled", "tie", "unwatched", "users_of",
]  # fmt: skip

TESTED = ("2.13",)  #: versions of PyTorch that the tests were run with

unwatched = torch._C._DisableTorchDispatch  #: inside, no mode sees an operator
not_compiled = torch._disable_dynamo  #: as torch.compiler.disable, which imports the compiler at once
modes = torch._C._len_torch_dispatch_stack  #: how many are entered


class BeforeAutograd(SchemaCheckMode):
    """A mode that sees every operator as it is called, before autograd and autocast take it apart.

    PyTorch takes three classes there, and this is one of them in name alone.

    Args:
        call: is called with an operator, its arguments, and those by name; returns what the operator does.
    """

    def __init__(self, call: Callable[[Any, Any, Any], Any]) -> None:
        TorchDispatchMode.__init__(self, torch._C.DispatchKey.PreDispatch)
        self._call = call

    def __enter__(self) -> BeforeAutograd:
        self._dispatcher = enable_python_dispatcher()
        self._dispatcher.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._dispatcher.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C._DisablePythonDispatcher():  # as it runs in training
            return self._call(func, args, kwargs or {})


@contextmanager
def functions_called_by(call: Callable[[Any, Callable[[], Any], Any], Any]) -> Iterator[None]:
    """Inside, this is called for each `autograd.Function`: with its class, what applies it, and its arguments."""
    base = torch.autograd.function._SingleLevelFunction  # `Function.apply` itself may have other names by now

    def apply(cls: Any, *args: Any) -> Any:
        return call(cls, lambda: super(base, cls).apply(*args), args)

    base.apply = classmethod(apply)
    try:
        yield
    finally:
        del base.apply


class Watch(TorchDispatchMode):
    """A mode that sees every operator below autograd, and leaves alone what is compiled inside a module."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # else what torch.compile has compiled would run uncompiled

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a wrapper that takes some microseconds a call


@contextmanager
def as_below_autograd(recording: bool) -> Iterator[None]:
    """Operators are called as a mode sees them: autograd and autocast have done their part.

    Args:
        recording: whether gradients were enabled; some kernels make more for backward then.
    """
    with torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd(), torch.set_grad_enabled(recording):
        yield


def hooks_are_free() -> bool:
    """Whether nothing around has hooks on saved tensors, as `checkpoint` has, or lets a tensor stand for others."""
    autograd, stack = torch._C._autograd, torch._C._functorch.peek_interpreter_stack()  # of torch.func
    free = autograd._saved_tensors_hooks_is_enabled() and autograd._top_saved_tensors_default_hooks(False) is None
    return stack is None and free


def caller_of(func: Any) -> Any:
    """What an operator calls, without a frame of Python's."""
    return func._op


def fate_of(storage: Any) -> Any:
    """What was tied to a storage; None: nothing."""
    found = getattr(storage, "_fate", None)
    return found() if type(found) is ref else found


def tie(storage: Any, fate: Any, weakly: bool = False) -> None:
    """Tie something to a storage; weakly, if it holds the storage."""
    storage._fate = ref(fate) if weakly else fate


def count_together(one: Any, other: Any) -> bool:
    """Whether a change of one tensor counts as a change of the other; then it is counted once more."""
    before = one._version
    torch.autograd.graph.increment_version(other)
    return bool(one._version != before)


def gather(module: Any, weight: Any) -> None:
    """The weights of the part that a weight belongs to are there again, where `fully_shard` has freed them."""
    for part in module.modules():
        groups = part._get_fsdp_state()._fsdp_param_groups if hasattr(part, "unshard") else ()
        its = [one._unsharded_param.untyped_storage()._cdata for group in groups for one in group.fsdp_params]
        if weight.untyped_storage()._cdata in its:
            part.unshard()


def users_of(storage: Any) -> int:
    """How many hold a storage, this Python object not counted."""
    return int(torch._C._storage_Use_Count(storage._cdata)) - 1

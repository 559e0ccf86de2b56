"""The names of PyTorch that are not public do what `refimpl.torch.private` says, in the version that is installed."""

from __future__ import annotations

import gc
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from refimpl.torch import private  # noqa: E402


class Seen(private.Watch):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_the_version_is_one_that_the_tests_were_run_with() -> None:
    assert torch.__version__.startswith(private.TESTED), (
        f"refimpl.torch was tested with PyTorch {', '.join(private.TESTED)}: if the tests of tests/refimpl/torch pass "
        "with this one, add it to refimpl.torch.private.TESTED"
    )


def test_a_mode_sees_operators_below_autograd_and_not_those_inside_a_guard() -> None:
    x, weight = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3)
    with Seen() as seen:
        y = torch.nn.functional.linear(x, weight)
        with private.unwatched():
            y.detach()
    assert seen.names == ["aten.t.default", "aten.mm.default"] and y.grad_fn is not None


def test_modes_are_counted_and_operators_called_without_a_frame() -> None:
    before = private.modes()
    with Seen():
        assert private.modes() == before + 1
    x = torch.ones(2)
    assert torch.equal(private.caller_of(torch.ops.aten.mul.Tensor)(x, 2.0), x * 2.0)


def test_what_is_tied_to_a_storage_lasts_as_long_as_it() -> None:
    class Fate:
        pass

    x, fate = torch.ones(3), Fate()
    private.tie(x.untyped_storage(), fate)
    kept = x[1:]
    del x
    gc.collect()
    assert private.fate_of(kept.untyped_storage()) is fate and private.fate_of(torch.ones(3).untyped_storage()) is None
    private.tie(kept.untyped_storage(), fate, weakly=True)
    assert private.fate_of(kept.untyped_storage()) is fate
    del fate
    assert private.fate_of(kept.untyped_storage()) is None


def test_operators_are_called_as_a_mode_sees_them() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16), private.as_below_autograd(True):
        y = torch.ops.aten.mm.default(x, x)
        assert y.dtype == torch.float32 and not y.requires_grad and torch.is_grad_enabled()
    with private.as_below_autograd(False):
        assert not torch.is_grad_enabled()


def test_changes_are_counted_together_for_views_and_not_for_data() -> None:
    x = torch.ones(3)
    assert private.count_together(x, x[1:]) and private.count_together(x.detach(), x)
    assert not private.count_together(x, x.data)


def test_users_of_a_storage() -> None:
    x = torch.ones(3)
    storage = x.untyped_storage()
    assert private.users_of(storage) == 1
    y = x[1:]
    assert private.users_of(storage) == 2
    del x, y
    assert private.users_of(storage) == 0


def test_what_is_compiled_inside_runs_compiled() -> None:
    compiled = torch.compile(lambda x: x.sin().cos(), backend="eager")
    with Seen():
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3).sin().cos())
    assert private.Watch.ignore_compile_internals() and not private.Watch._should_skip_dynamo()


def test_hooks_of_others_are_seen() -> None:
    assert private.hooks_are_free()
    with torch.autograd.graph.save_on_cpu():
        assert not private.hooks_are_free()
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        assert not private.hooks_are_free()
    torch.func.vmap(lambda x: _not_free() * x)(torch.ones(2))
    assert private.hooks_are_free()


def _not_free() -> float:
    assert not private.hooks_are_free()
    return 1.0


def test_a_compiler_does_not_look_into_a_function() -> None:
    @private.not_compiled
    def compiled() -> bool:
        return bool(torch.compiler.is_compiling())

    found = torch.compile(lambda x: x * (2.0 if compiled() else 1.0), backend="eager")(torch.ones(1))
    torch.compiler.reset()
    assert found == 1.0


class Twice(torch.autograd.Function):  # type: ignore[name-defined,misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x + x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


def test_operators_are_seen_before_autograd_takes_them_apart_and_so_are_functions() -> None:
    called, apply = [], Twice.apply

    def call(func: Any, args: Any, kwargs: Any) -> Any:
        called.append(str(func))
        return func(*args, **kwargs)

    def function(cls: Any, run: Any, args: Any) -> Any:
        called.append(cls.__name__)
        return run()

    x, weight = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3)
    with Seen() as below, private.BeforeAutograd(call), private.functions_called_by(function):
        y = apply(torch.nn.functional.linear(x, weight))
    y.sum().backward()
    assert called == ["aten.linear.default", "Twice", "aten.add.Tensor"]
    assert below.names[:2] == ["aten.t.default", "aten.mm.default"] and "aten.add.Tensor" in below.names
    assert torch.equal(x.grad, torch.full((2, 3), 8.0))
    apply(x)
    torch.relu(x)
    assert len(called) == 3

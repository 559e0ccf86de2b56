"""How users call a planned module: names of inputs, signatures, attributes, copies, compilers, shapes."""

from __future__ import annotations

import copy
import inspect
import io
from dataclasses import dataclass
from typing import Any

import pytest

import refimpl

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from refimpl.torch import DeferredTransfers, Planned, PlannedError  # noqa: E402
from tests.messages import raises_naming  # noqa: E402
from tests.refimpl.torch.trained_modules import alike, program_of  # noqa: E402

X = torch.randn(8, 12, 32, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 10, (8, 12), generator=torch.Generator().manual_seed(2))


class Part(nn.Linear):
    """A part of the user's own, that can be compiled."""

    def forward(self, input: Any) -> Any:
        return functional.linear(input, self.weight, self.bias)


class Classifier(nn.Module):
    """With the names of inputs that networks here have, too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.labels = nn.Linear(32, 64), Part(64, 64), nn.Linear(64, 10)
        self.drop = nn.Dropout(0.2)
        self.temperature, self.calls = 1.0, 0

    def forward(self, input: Any, labels: Any = None, temperature: Any = 1.0, *, flip: bool = False) -> Any:
        self.calls += 1
        x = functional.gelu(self.a(input.flip(0) if flip else input))
        logits = self.labels(self.drop(functional.softmax(self.b(x), -1) * x)) / (temperature * self.temperature)
        return logits if labels is None else functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Structured(Classifier):
    """Takes a dict and a list, and returns a dataclass with a dict and a list."""

    @dataclass
    class Out:
        logits: Any
        more: dict[str, Any]

    def forward(self, batch: dict[str, Any], extra: list[Any]) -> Any:  # type: ignore[override]
        logits = super().forward(batch["x"] + extra[0])
        return self.Out(logits, {"means": [logits.mean(), logits.tanh().mean()]})


def planned(module: Any, example: Any = X, policy: str = "superneurons") -> Planned:
    network = refimpl.networks.from_torch(module, example, keeps="pytorch-cpu")
    return Planned(module, program_of(network, policy), transfers=DeferredTransfers())


@pytest.fixture(scope="module")
def decisions() -> Any:
    return planned(Classifier().train()).orders.plan


@pytest.fixture
def module() -> Any:
    torch.manual_seed(0)
    return Classifier().train()


def bits(model: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """The loss and the gradients of a call."""
    model.zero_grad()
    torch.manual_seed(3)
    out = model(*args, **kwargs)
    if isinstance(out, Structured.Out):
        out = out.logits.square() + out.more["means"][0] * out.more["means"][1]
    loss = out if out.dim() == 0 else out.square().sum()
    loss.backward()
    return [loss.detach(), *(weight.grad.clone() for weight in model.parameters())]


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "by position": ((X,), {}), "by name": ((), {"input": X}), "labels by position": ((X, Y), {}),
    "labels by name": ((X,), {"labels": Y}), "all by name": ((), {"labels": Y, "flip": True, "input": X}),
    "numbers": ((X, None, 2.0), {}), "a tensor of no dimension": ((X,), {"temperature": torch.tensor(2.0)}),
    "shorter": ((X[:, :5],), {"labels": Y[:, :5]}), "fewer": ((X[:3],), {"flip": True}), "none": ((X[:0],), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_module_is_called_as_it_was(name: str, module: Any, decisions: Any) -> None:
    args, kwargs = CALLS[name]
    model = Planned(module, decisions, transfers=DeferredTransfers())
    right = bits(module, *args, **kwargs)
    for _ in range(2):
        assert alike(right, bits(model, *args, **kwargs))
    assert model.last is not None and model.last.recomputed


@pytest.mark.parametrize(
    "example", [(X, Y), {"input": X, "labels": Y}, {"labels": Y, "input": X, "temperature": 2.0, "flip": True}]
)
def test_inputs_may_be_called_input_and_labels(module: Any, example: Any) -> None:
    model = planned(module, example)
    args, kwargs = ((), example) if isinstance(example, dict) else (example, {})
    assert alike(bits(module, *args, **kwargs), bits(model, *args, **kwargs))
    assert model.last is not None and model.last.recomputed and not model.last.unplanned
    with raises_naming(PlannedError, "labels is 8×13, and the plan is for 8×12 or less"):
        model(X, labels=torch.zeros(8, 13))


def test_structures_go_in_and_come_out() -> None:
    torch.manual_seed(0)
    module = Structured().train()
    given: dict[str, Any] = {"batch": {"x": X, "name": "a batch"}, "extra": [X, 3]}

    def called(part: Any) -> tuple[Any, Any]:
        return {"x": part, "name": "another"}, [part, 4]

    model = planned(module, given)
    for part in (X, X[:, :5]):
        assert alike(bits(module, *called(part)), bits(model, *called(part)))
    assert model.last is not None and model.last.recomputed
    with raises_naming(PlannedError, "batch['x'] is 8×24×32, and the plan is for 8×12×32 or less"):
        model(*called(X.repeat(1, 2, 1)))


def test_a_number_that_changes_records_nothing_anew(module: Any, decisions: Any) -> None:
    model = Planned(module, decisions)
    known, checked = set(), set()
    for step in range(4):
        module.temperature = 1.0 + step
        model(X, temperature=torch.tensor(0.5 + step) if step % 2 else 0.5 + step).sum().backward()
        assert model.last is not None and model._paths is not None
        known.add(model._paths.places)
        checked.add(model.last.compared)
    assert len(known) == 2 and 0 in checked, "a number and a tensor are two ways"


def test_forward_has_the_signature_of_the_module(module: Any, decisions: Any) -> None:
    model = Planned(module, decisions)
    assert inspect.signature(model.forward) == inspect.signature(module.forward)
    assert inspect.signature(type(model).forward) == inspect.signature(Classifier.forward)
    assert isinstance(model, Planned) and type(model).__name__ == "Planned"


def test_it_is_no_instance_of_the_modules_class_and_has_its_attributes(module: Any, decisions: Any) -> None:
    model = Planned(module, decisions)
    assert not isinstance(model, Classifier) and model.module is module
    assert model.calls == 0 and model.a is module.a and not hasattr(model, "absent")
    model(X)
    model.temperature = 4.0
    model.b = nn.Linear(64, 64)
    model.own = 1
    assert model.calls == 1 and module.temperature == 4.0 and module.b is model.b and not hasattr(module, "own")
    assert alike(bits(module, X), bits(model, X))


class Extra(Classifier):
    def get_extra_state(self) -> Any:
        return {"temperature": self.temperature}

    def set_extra_state(self, state: Any) -> None:
        self.temperature = state["temperature"]


def test_a_state_is_that_of_the_module() -> None:
    module = Extra().train()
    model = planned(module)
    module.temperature = 3.0
    state = model.state_dict()
    assert list(state) == list(module.state_dict()) and state["_extra_state"] == {"temperature": 3.0}
    around = nn.Sequential(model)
    assert list(around.state_dict()) == [f"0.{name}" for name in state]
    module.temperature = 1.0
    model.load_state_dict(state)
    assert module.temperature == 3.0
    module.temperature = 1.0
    around.load_state_dict(around.state_dict() | {"0._extra_state": {"temperature": 2.0}})
    assert module.temperature == 2.0


def test_copies_are_planned_modules_of_their_own(module: Any, decisions: Any) -> None:
    model, file = Planned(module, decisions), io.BytesIO()
    model(X)
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert type(other) is type(model)
        assert other.a.weight is other.module.a.weight is not module.a.weight
        assert alike(bits(model, X), bits(other, X))
        assert other.last is not None and other.last is not model.last


@pytest.mark.parametrize("what", ["the model", "a function around", "a part"])
def test_a_compiler_leaves_it_alone(module: Any, decisions: Any, what: str) -> None:
    model = Planned(module, decisions)
    if what == "a part":
        module.b.compile(backend="aot_eager")
    right = bits(module, X, Y)
    try:
        for _ in range(2):
            torch.manual_seed(3)
            module.zero_grad()
            if what == "a function around":
                loss = torch.compile(lambda x: model(x, Y) * 1.0, backend="aot_eager")(X)
            else:
                loss = (torch.compile(model, backend="aot_eager") if what == "the model" else model)(X, Y)
            loss.backward()
            assert alike(right, [loss.detach(), *(weight.grad for weight in module.parameters())])
            assert model.last is not None and model.last.recomputed
    finally:
        torch.compiler.reset()

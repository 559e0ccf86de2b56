"""A plan carried out in PyTorch: the bits of plain PyTorch, whatever the training loop does, and nothing left held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import refimpl

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from refimpl.torch import Meter, Planned, PlannedError  # noqa: E402
from tests.messages import raises_naming  # noqa: E402
from tests.refimpl.torch.trained_modules import (  # noqa: E402
    POLICIES,
    SHAPE,
    Beside,
    Branches,
    nothing_left,
    program_of,
    same,
)


@pytest.fixture(scope="module")
def beside() -> Beside:
    return Beside(Branches().train())


@pytest.fixture(scope="module")
def network(beside: Beside) -> Any:
    return refimpl.networks.from_torch(beside.module, SHAPE)


@pytest.fixture(scope="module")
def planned(beside: Beside, network: Any) -> dict[str, Planned]:
    return {policy: Planned(beside.module, program_of(network, policy)) for policy in POLICIES}


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    with nothing_left():
        yield


def test_plans_move_and_recompute(beside: Beside, planned: dict[str, Planned]) -> None:
    right = beside.iteration(beside.plain, beside.module)
    for policy, model in planned.items():
        assert same(right, beside.iteration(beside.plain, model)), policy
        assert model.last is not None
        out, back = model.last.moved()
        counts = model.orders.plan["predicted"]
        assert (out > 0) == (counts["out"] > 0), policy
        assert (back > 0) == (out > 0)
        dropped = any(one["recomputed"] for one in model.orders.plan["maps"].values())
        assert (model.last.recomputed > 0) == dropped, policy
    assert planned["vdnn-all"].last.moved()[0] and planned["superneurons"].last.recomputed  # type: ignore[union-attr]


def test_held_at_the_turn_is_what_the_meter_counts(beside: Beside, planned: dict[str, Planned]) -> None:
    model = planned["superneurons"]
    with Meter(model.parameters(), model.transfers) as meter:
        loss = functional.cross_entropy(model(beside.x), beside.y)
        meter.turn()
        loss.backward()
        held, peak = model.last.held, meter.peak  # type: ignore[union-attr]
        loss_bytes = 8 * 10 * 4 + 4 + 4  # the loss, its total weight and its logarithms
        assert held <= meter.held <= held + 2 * loss_bytes
        assert peak >= meter.held
        del loss
    model.zero_grad()
    table = model.report(meter)
    assert "maps held at the turn" in table and "not counted" not in table
    assert "not counted" in model.report()


def test_import_and_plan_in_one_call(beside: Beside) -> None:
    program = refimpl.torch.plan(beside.module, beside.x, "vdnn-all", machine="titan-x")
    model = Planned(beside.module, program)
    right = beside.iteration(beside.plain, beside.module)
    assert same(right, beside.iteration(beside.plain, model))
    predicted = program.decisions()["predicted"]["held"]
    assert 0 <= model.last.held - predicted < 512  # type: ignore[union-attr]
    assert program.decisions()["keeps"] == "pytorch" and "keeps=" not in model.report()
    with pytest.raises(AttributeError, match="has no 'plam'"):
        getattr(refimpl.torch, "plam")  # noqa: B009


def test_a_change_of_a_saved_tensor_is_an_error_as_in_pytorch() -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = torch.sigmoid(self.fc(x))
            return self.fc(y.mul_(2.0))

    module, x = Wrong(), torch.randn(2, 4)
    for policy in ("baseline", "vdnn-all"):
        planned = Planned(module, refimpl.torch.plan(module, x, policy, "1GiB", "titan-x"))
        for model in (module, planned, planned):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                model(x).sum().backward()


def test_bad_input_is_one_line(beside: Beside, planned: dict[str, Planned], network: Any) -> None:
    program = program_of(network, "superneurons")
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 14 * 14, 10))
    for wrong in (other, Beside(Branches()).module.a):
        with raises_naming(PlannedError, "has other weights or shapes"):
            Planned(wrong, program)
    model = planned["superneurons"]
    for shape in ((8, 3, 24, 24), (9, 3, 16, 16), (3, 16, 16)):
        with raises_naming(PlannedError, f"x is {'×'.join(map(str, shape))}, and the plan is for 8×3×16×16 or less"):
            model(torch.zeros(shape))
    with raises_naming(PlannedError, "not a torch.nn.Module"):
        Planned("module", program)
    with raises_naming(PlannedError, "no script"):
        Planned(beside.module, program.decisions() | {"script": {}})
    with raises_naming(PlannedError, "nothing to report"):
        Planned(beside.module, program).report()

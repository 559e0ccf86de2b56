"""What training takes, from its least to its most, beside a run of it; and what a machine has left."""

from __future__ import annotations

from typing import Any

import pytest

import refimpl
from refimpl.machine import MACHINES, here
from refimpl.network import NetworkError
from refimpl.report.will_it_fit import Need, budget_of, moves, need, usable_bytes
from tests.messages import raises_naming

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from refimpl.torch import Meter, Planned  # noqa: E402

MIB = 1 << 20
SHAPE = (1024, 256)  # 1 MiB


class OneName(nn.Module):
    """One name for each map in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(6))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.sum(1)


class SixNames(OneName):
    """Each map has a name until forward returns."""

    def forward(self, x: Any) -> Any:
        a, b, c, d, e, f = self.layers
        one = torch.tanh(a(x))
        two = torch.tanh(b(one))
        three = torch.tanh(c(two))
        four = torch.tanh(d(three))
        five = torch.tanh(e(four))
        six = torch.tanh(f(five))
        return six.sum(1)


def taken(module: Any, run: Any, transfers: Any = None, shape: Any = SHAPE) -> int:
    """The most bytes of an iteration, without weights and the optimiser's states, which are there before it."""
    optimiser, x = torch.optim.AdamW(module.parameters(), foreach=True), torch.randn(shape)
    for _ in range(3):
        with Meter((), transfers) as meter:
            run(x).sum().backward()
            optimiser.step()
        optimiser.zero_grad()
    return meter.peak


@pytest.mark.parametrize("made", [OneName, SixNames])
def test_a_run_takes_from_the_least_to_the_most(made: Any) -> None:
    """What names in forward keep is in the prediction."""
    module = made()
    network = refimpl.networks.from_torch(module, SHAPE, keeps="pytorch-cpu").trained_by("adamw")
    plain = refimpl.plan(network, "baseline", "h100")
    lean = refimpl.plan(network, "superneurons", "h100", network.resident_bytes + 7 * MIB)
    assert moves(lean) and not moves(plain)
    planned = Planned(module, lean)
    for program, run, transfers in ((plain, module, None), (lean, planned, planned.transfers)):
        found = need(program)
        measured = network.resident_bytes + taken(module, run, transfers)
        assert found.predicted == pytest.approx(measured, rel=0.01) and measured <= found.most


def test_the_optimisers_step_is_in_the_range() -> None:
    """Of two rows the weights' gradients are the peak; the step has as many bytes of temporaries."""
    module, shape = OneName(), (2, 256)
    program = refimpl.plan(refimpl.networks.from_torch(module, shape, keeps="pytorch-cpu"), "baseline", "h100")
    found, resident = need(program), program.network.resident_bytes
    learnt = sum(one.nbytes for one in module.parameters())
    assert found.predicted - resident < 1.1 * learnt
    assert 2 * learnt <= taken(module, module, shape=shape) <= found.most - resident < 2.1 * learnt + 32 * MIB


def test_a_plan_in_python_has_the_same_arguments() -> None:
    module = nn.Linear(256, 8)
    asked = {"machine": "rtx-3060", "loss": "softmax", "optimiser": "sgd:momentum=0", "autocast": "bfloat16"}
    program = refimpl.torch.plan(module, SHAPE, "baseline", **asked)
    assert program.budget == budget_of(program) and program.network.layers[0].y.dtype == "bfloat16"
    assert not [one for one in program.network.resident if one.kind == "momentum"]
    with raises_naming(NetworkError, "there is no optimiser 'adagrad'", "sgd:momentum=0"):
        refimpl.torch.plan(module, SHAPE, optimiser="adagrad")
    with raises_naming(NetworkError, "there is no loss 'hinge'"):
        refimpl.torch.plan(module, SHAPE, loss="hinge")


def test_a_machine_has_its_memory_without_the_contexts() -> None:
    """The budget leaves room for cuBLAS's workspace and the loss: gradient and more of an output of 4 KiB."""
    card = MACHINES["rtx-3060"]
    assert usable_bytes(card) == (12_288 - 512) * MIB and usable_bytes(here.rough_cpu()) == here.memory_bytes()
    assert usable_bytes(MACHINES["m1-pro"]) == 21_845 * MIB
    network = refimpl.networks.from_torch(OneName(), SHAPE, keeps="pytorch")
    program = refimpl.plan(network, "baseline", card)
    assert 0 <= usable_bytes(card) - 32 * MIB - 2 * 4096 - budget_of(program) < 32 << 10  # and for rounding
    assert str(Need(3 << 29, 3 << 29, 1_073 * MIB * 2)) == "1.5 GiB (1.5 to 2.1)"

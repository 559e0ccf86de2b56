"""How a network learns: optimisers, clipping, schedules and frozen parameters, in little memory and against PyTorch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend import CheckpointError, RunError, Trainer
from refimpl.backend.schedules import Schedule
from refimpl.names.networks import build
from refimpl.network import SUPERNEURONS, VDNN, VDNNPP, Builder, Conventions, Network, NetworkError
from refimpl.parallel.communicators import in_threads
from tests.matrix import diagonal
from tests.messages import raises_naming
from tests.refimpl.backend.ranks import trained as trained_by_ranks
from tests.refimpl.backend.running import (
    comes_to_the_plain_bits,
    differing,
    settings_of,
    small_network,
    small_program,
    trained,
    trainer,
)  # fmt: skip
from tests.refimpl.plainly import draw_batch, new_state

LEARNING: dict[str, dict[str, Any]] = {
    "adamw": {"optimiser": "adamw"},
    "adamw, clipped, of weights": {"optimiser": "adamw", "clip": 0.3, "decay_on": "weights"},
    "clipped": {"clip": 0.5},
    "frozen below": {"frozen": ("first", "normal")},
    "frozen above": {"frozen": ("*", "!first.w", "!*.beta"), "optimiser": "adamw"},
    "frozen between": {"frozen": ("normal", "right"), "clip": 0.2},
}


@pytest.mark.parametrize("name", ["adamw, clipped, of weights", "frozen above"])
def test_training_in_little_memory_comes_to_the_plain_bits(name: str) -> None:
    comes_to_the_plain_bits(small_network().trained_by(**LEARNING[name]))


@pytest.mark.parametrize(("conventions", "name"), diagonal([VDNN, SUPERNEURONS, VDNNPP], LEARNING))
def test_an_iteration_as_in_pytorch(name: str, conventions: Conventions, torch: Any) -> None:
    from tests.refimpl.by_torch import trains_as_in_torch

    b = Builder("small", (3, 2, 6, 6), conventions)
    b.conv(4, 3, pad=1, name="first")
    b.batchnorm(name="normal")
    trunk = b.relu()
    b.join(b.conv(4, 1, name="right"), trunk)
    b.gelu()
    b.fc(4, name="last")
    b.softmax()
    if conventions is VDNNPP and LEARNING[name].get("clip"):
        with raises_naming(NetworkError, "d(first.w)", "vdnnpp"):
            b.build().trained_by(**LEARNING[name])
        return
    network = b.build().trained_by(**LEARNING[name])
    state = new_state(network)
    random = np.random.default_rng(1)
    for _, _, parameter in network.parameters():
        for kept, tensor in parameter.states.items():
            drawn = random.standard_normal(tensor.shape).astype(np.float32)
            state[tensor.name][...] = 0.1 * (drawn**2 if kept == "exp_avg_sq" else drawn)
    after = trains_as_in_torch(network, settings_of(network) | {"iteration": 5}, state)
    for _, _, parameter in network.parameters():
        same = state[parameter.weight.name].tobytes() == after[parameter.weight.name].tobytes()
        assert same == parameter.frozen


def test_biases_and_normalisations_do_not_decay_where_weights_alone_do() -> None:
    for learning, names in (({"decay_on": "weights"}, {"b", "gamma", "beta"}), ({}, set())):
        network = small_network().trained_by("adamw", **learning)  # type: ignore[arg-type]
        updates = [call for step in network.steps for call in step.calls if call.function == "adamw.update"]
        kept = {str(call.updates[0]).rpartition(".")[2] for call in updates if call.arguments["decay"] == 0.0}
        assert kept == names


def test_what_is_frozen_takes_no_memory_and_no_backward() -> None:
    whole = build("vgg16", 2)
    kept = whole.trained_by(frozen=["conv*"])
    convolutions = sum(p.weight.nbytes for layer, _, p in whole.parameters() if layer.kind == "conv")
    assert whole.resident_bytes - kept.resident_bytes == 2 * convolutions  # gradients and momentum
    adamw = whole.trained_by("adamw")
    every = sum(p.weight.nbytes for _, _, p in whole.parameters())
    assert adamw.resident_bytes - whole.resident_bytes == every
    working = [step.layer.kind for step in kept.steps[kept.depth :] if step.calls]
    assert "conv" not in working and "pool" not in working and "fc" in working
    import refimpl

    of = {one: refimpl.plan(network, "baseline", "titan-x") for one, network in (("whole", whole), ("kept", kept))}
    assert of["kept"].peak_bytes < of["whole"].peak_bytes - 2 * convolutions
    assert of["kept"].planned_seconds < 0.51 * of["whole"].planned_seconds
    assert kept.trained_by() is kept and whole.trained_by() is whole
    assert kept.trained_by(frozen=["!conv*"]).resident_bytes == whole.resident_bytes


def test_ranks_learn_what_one_learns_from_all_images() -> None:
    """The gradients' mean is clipped, and not each rank's gradient."""
    for more in ({"optimiser": "adamw", "clip": 0.1, "rate": 1e-3}, {"clip": 0.1, "rate": 0.5}):
        given: dict[str, Any] = {"network": "tiny-vgg", "frozen": ("conv1_1",), **more}
        first, second = in_threads(2, partial(trained_by_ranks, **given))
        assert first["learnt"] == second["learnt"] and first["losses"] == second["losses"]
        (alone,) = in_threads(1, partial(trained_by_ranks, **given, batch=4))
        assert first["losses"] == pytest.approx(alone["losses"], rel=1e-5)


# -- checkpoints and schedules -----------------------------------------------------------------------------------------


def test_a_resumed_training_goes_on_bit_for_bit_with_its_schedule(tmp_path: Path) -> None:
    program = small_program(small_network().trained_by("adamw", clip=0.5))
    schedule = Schedule.parse("cosine:5:0.001", warmup=2)
    losses, straight = trained(program, 5, schedule=schedule)
    constant, _ = trained(program, 5)
    assert losses[:1] == constant[:1] and losses[2:] != constant[2:]
    with trainer(program, schedule=schedule) as first:
        for i in range(3):
            first.step(*draw_batch(program.network, i))
        first.save(tmp_path / "here.npz")
    with Trainer(program) as second:
        second.restore(tmp_path / "here.npz")
        assert (second.schedule, second.beta2, second.iteration) == (schedule, 0.95, 3)
        assert [second.step(*draw_batch(program.network, i)) for i in (3, 4)] == losses[3:]
        assert differing(second.state(), straight) == []
    with Trainer(small_program()) as plain, raises_naming(CheckpointError, "here.npz", "adamw", "sgd"):
        plain.restore(tmp_path / "here.npz")


def test_rates_are_pytorchs(torch: Any) -> None:
    def theirs(made: Any, count: int) -> list[float]:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimiser = torch.optim.SGD([weight], lr=0.3)
        schedule, found = made(optimiser), []
        for _ in range(count):
            found.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step()
        return found

    lr = torch.optim.lr_scheduler
    for text, made in (
        ("step:4:0.5", lambda o: lr.StepLR(o, 4, 0.5)), ("step:4", lambda o: lr.StepLR(o, 4)),
        ("cosine:20:0.01", lambda o: lr.CosineAnnealingLR(o, 20, 0.01)), ("constant", lambda o: lr.ConstantLR(o, 1.0)),
    ):  # fmt: skip
        schedule = Schedule.parse(text)
        assert [schedule.rate(0.3, i) for i in range(20)] == pytest.approx(theirs(made, 20)), text
        after = Schedule.parse(text if text != "cosine:20:0.01" else "cosine:25:0.01", warmup=5)
        assert [after.rate(0.3, i) for i in range(5)] == pytest.approx([0.06, 0.12, 0.18, 0.24, 0.3])
        assert [after.rate(0.3, i + 5) for i in range(20)] == pytest.approx([schedule.rate(0.3, i) for i in range(20)])
    assert Schedule.parse("cosine:20:0.01").rate(0.3, 1000) == 0.01
    assert Schedule.parse(str(Schedule.parse("cosine:20:1.23456789e-05"))).options["eta_min"] == 1.23456789e-05
    assert Schedule.parse("cosine", iterations=30) == Schedule.parse("cosine:30")


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Schedule.parse("cosine:100", 200), ("cosine:100", "ends before it begins", 200, 100)),
        (lambda: Schedule.parse("cosine"), ("cosine", "t_max")),
        (lambda: Schedule.parse("step:10:nan"), ("'nan'", "gamma")),
        (lambda: Schedule.parse("step:1.5"), ("'1.5'", "step_size", "whole")),
        (lambda: Schedule.parse("cosine:1:2:3"), ("cosine:1:2:3", "T_MAX")),
        (lambda: Schedule.parse("cosin:1"), ("cosin", "cosine")),
    ],
)  # fmt: skip
def test_a_wrong_schedule_is_one_line(make: Any, says: tuple[Any, ...]) -> None:
    with raises_naming(RunError, *says):
        make()


def test_wrong_learning_is_one_line() -> None:
    adamw, sgd = (small_program(small_network().trained_by(optimiser)) for optimiser in ("adamw", "sgd"))
    with raises_naming(RunError, "momentum", "adamw", "beta1"):
        Trainer(adamw, momentum=0.9)
    with raises_naming(RunError, "beta1", "sgd"):
        Trainer(sgd, betas=(0.9, 0.99))
    with raises_naming(RunError, "beta2", 1.0):
        Trainer(adamw, betas=(0.9, 1.0))


# -- one parameter in several layers -----------------------------------------------------------------------------------


def sharing(conventions: Conventions = VDNN, own_bias: bool = False) -> Network:
    """Three convolutions and two fully connected layers share; one is below and beside another."""
    b = Builder("sharing", (3, 4, 6, 6), conventions)
    first = b.conv(4, 3, pad=1, name="first")
    trunk = b.relu()
    second = b.conv(4, 3, pad=1, name="second")
    third = b.conv(4, 3, pad=1, name="third", after=trunk)
    b.join(second, third)
    b.pool(6, mode="average")
    one = b.fc(4, name="one")
    b.relu()
    two = b.fc(4, name="two")
    b.share(first, second, third, own_bias=own_bias)
    b.share(two, one, own_bias=own_bias)  # named after the one that runs later
    b.softmax()
    return b.build()


@pytest.mark.parametrize(
    ("conventions", "learning"), diagonal([VDNN, SUPERNEURONS, VDNNPP], [{}, {"frozen": ["first"]}])
)
def test_shared_parameters_learn_from_all_their_layers(
    conventions: Conventions, learning: dict[str, Any], torch: Any
) -> None:
    from tests.refimpl.by_torch import trains_as_in_torch

    network = sharing(conventions).trained_by(**learning)
    assert [f"{layer}.{name}" for layer, name, _ in network.parameters()] == ["first.w", "first.b", "two.w", "two.b"]
    assert network.parameter_count == 4 * 4 * 9 + 4 + 4 * 4 + 4
    updates = [call for step in network.steps for call in step.calls if call.function == "sgd.update"]
    assert len(updates) == (2 if learning else 4)
    trains_as_in_torch(network)


@pytest.mark.parametrize("learning", [{}, {"frozen": ["first.w", "one.b"]}], ids=["all", "frozen"])
def test_a_weight_is_shared_and_every_layer_has_its_own_bias(learning: dict[str, Any], torch: Any) -> None:
    from tests.refimpl.by_torch import trains_as_in_torch

    network = sharing(own_bias=True).trained_by(**learning)
    named = {f"{layer}.{name}": parameter for layer, name, parameter in network.parameters()}
    biases = [f"{name}.b" for name in ("first", "second", "third", "one", "two")]
    assert sorted(named) == sorted(["first.w", "two.w", *biases])
    assert network.parameter_count == 4 * 4 * 9 + 4 * 4 + 5 * 4
    assert [name for name, parameter in named.items() if parameter.frozen] == learning.get("frozen", [])
    trains_as_in_torch(network)
    comes_to_the_plain_bits(network)

"""Gradients of weights that live while their layer's backward step runs: `:gradients`."""

from __future__ import annotations

from refimpl.names.largest_batch import least_conceivable
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.network import NetworkError
from refimpl.network.seams import with_seams
from refimpl.planner import plan
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, dense_network, trainer


def test_a_gradient_is_alive_in_its_layers_backward_step_alone() -> None:
    plain, network = dense_network(), dense_network().leaner("gradients")
    moved = {tensor.name for tensor in plain.resident if tensor.kind == "weight gradient"}
    assert moved == {f"d({layer.name}.{name})" for layer, name, _ in plain.parameters()}
    assert moved == {tensor.name for tensor in network.managed} - {tensor.name for tensor in plain.managed}
    assert not moved & {tensor.name for tensor in network.resident}
    for layer, _, parameter in network.parameters():
        assert [step for step in network.steps if parameter.gradient in step.uses] == [layer.backward]


def test_a_shared_weights_gradient_lives_from_its_first_users_step_to_its_last() -> None:
    network = build("tiny-gpt:gradients", 2)
    table = network.layer("words").parameters["w"].gradient
    using = [step for step in network.steps if table in step.uses]
    assert using == [network.layer("head").backward, network.layer("words").backward]


def test_less_is_needed_by_the_gradients_of_other_layers() -> None:
    """VGG-16's largest step is a convolution's, and most weights are those of fully connected layers."""
    for cut in (lambda network: network, with_seams):
        plain, network = (least_conceivable(cut(build(name, 64))) for name in ("vgg16", "vgg16:gradients"))
        spared = sum(parameter.gradient.nbytes for _, _, parameter in build("vgg16", 1).parameters())
        assert 0 <= spared - (plain - network) < 1 << 20


def test_a_trainers_state_has_no_gradients() -> None:
    with trainer(plan(dense_network().leaner("gradients"), setup("baseline"), MACHINE, 1 << 24)) as made:
        assert {"first.w", "momentum of first.w"} <= {*made.state()} and not any("d(" in name for name in made.state())


def test_where_a_gradient_is_needed_later_one_line_says_so() -> None:
    for network in (build("lenet").trained_by(clip=1.0), build("lenet:vdnnpp")):
        with raises_naming(NetworkError, network.name, "clipping", ":vdnnpp", "leave out :gradients"):
            network.leaner("gradients")
        assert "gradients" not in network.leaner("lean").conventions.lean
    with raises_naming(NetworkError, "norm", "without :vdnnpp and :gradients"):
        build("lenet:gradients").trained_by(clip=1.0)
    with raises_naming(NetworkError, "data-parallel", "without :vdnnpp and :gradients"):
        build("lenet:gradients").data_parallel(2)
